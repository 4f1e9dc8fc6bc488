"""Verification finds the first wrong element, and reports what it compared."""

import json
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest

from qgraph import quantize
from qgraph.backends.network_forms import Network
from qgraph.backends.tf.tensorflow_form import TensorFlowForm
from qgraph.errors import UsageError
from qgraph.exact.float_parts import integer_values
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import Fixed
from qgraph.passes import PassManager
from qgraph.program import lower, run
from qgraph.recipes import FLOAT
from qgraph.records import to_json
from qgraph.stored import load_network
from qgraph.verification import verify as module
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare
from qgraph.verification.dump import against
from qgraph.verification.verify import verify
from tests.helpers.cli import run as cli
from tests.helpers.cli import small_network, typical_images
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import INT8
from tests.helpers.quantized import quantize as quantize_graph


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    return quantize(folder / "net.pb", typical_images(), effort="plain").save(folder / "out")


@pytest.fixture(scope="module")
def network(out):
    return load_network(out)


@pytest.fixture
def dump(out, network):
    """Codes of all integer values: those of the directory, and those between its quantizers."""
    with np.load(out / "tensors.npz") as found:
        stored = dict(found)
    values = Reference(network.graph).run(network.sample, integer_values(network.graph))
    codes = {f"codes/{n}": v.codes for n, v in values.items() if isinstance(v, Fixed)}
    assert codes.keys() > {name for name in stored if name.startswith("codes/")}
    return {**codes, **stored}


def test_what_a_directory_has_is_right(out, network):
    with np.load(out / "tensors.npz") as stored:
        found = against(network, stored)
    assert not found.differences and not found.unknown
    missing = set(network.program.tensors) - set(found.tensors.values()) - {"lost"}
    rounded = {s.inputs[0] for s in network.program.steps if s.op == "requantize"}
    assert missing and missing <= {*network.program.tensors} - {*network.program.exits}
    assert {"first", "second"} & rounded <= missing


def every(network):
    return [n for n in network.program.tensors if n not in network.program.constants]


def plain(network, change=lambda codes: codes):
    """The program itself as a form, its codes changed."""
    return lambda entries: change(run(network.program, entries, every(network)))


# -- forms ------------------------------------------------------------------------------------


def test_equal_forms_have_no_differences(network) -> None:
    cases = [*from_samples(network, network.samples), *extreme_cases(network.program),
             random_case(network.program, 3)]  # fmt: skip
    found = compare(network, {"plain": plain(network)}, cases)
    tally = found.tallies["plain"]
    assert tally.wrong == 0 and tally.tensors == set(every(network))
    assert found.cases["samples"] == len(network.samples["image"])
    elements = sum(np.prod(network.program.tensors[n].shape) for n in tally.tensors)
    assert tally.elements == elements * sum(found.cases.values())


def test_one_code_that_is_off_by_one_is_found(network) -> None:
    def change(codes):
        codes["second"][0, 2] += 1
        return codes

    case = random_case(network.program, 3)
    (tally,) = compare(network, {"x": plain(network, change)}, [case]).tallies.values()
    (first,) = tally.differences.values()
    assert tally.wrong == 1
    assert (first.tensor, first.index, first.actual - first.expected) == ("second", (0, 2), 1)


def test_saturation_is_counted_on_samples(network) -> None:
    case = next(from_samples(network, network.samples))
    found = compare(network, {}, [case]).saturation
    codes = run(network.program, case.entries, every(network))
    for step in network.program.steps:
        if step.op == "requantize":
            at_ends = np.isin(codes[step.output], [step.attrs.low, step.attrs.high]).sum()
            counted = found[step.output].below + found[step.output].above
            assert counted <= at_ends and found[step.output].elements == codes[step.output].size
    assert not compare(network, {}, [random_case(network.program, 1)]).saturation


def test_integers_that_begin_behind_float_ops(tmp_path) -> None:
    """TensorFlow's graph optimiser would take the sum's consumers back to the input."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 1, 1, 1))
    joined = g.add("relu", g.add("concat", x, x, attrs={"axis": 3}))
    turned = g.add("transpose", joined, attrs={"perm": (0, 2, 1, 3)})
    filters = g.const(np.ones((1, 1, 1, 2), np.float32), "w")
    window = WINDOW
    g.outputs["y"] = g.add("conv2d", g.add("add", turned, turned), filters, attrs=window)
    samples = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(8, 1, 1, 1)}
    PassManager(FLOAT).run(g)
    quantized = quantize_graph(g, INT8, samples)
    network = Network(quantized, lower(quantized), INT8, samples, samples)
    assert [e.source for e in network.program.entries] != ["x"]
    form = TensorFlowForm()
    form.write(network, tmp_path)
    cases = [*from_samples(network, samples), random_case(network.program, 1)]
    (tally,) = compare(network, {"x": form.runner(network, tmp_path)}, cases).tallies.values()
    assert tally.wrong == 0 and tally.elements


@dataclass(frozen=True)
class Wrong(TensorFlowForm):
    """TensorFlow, with the last code changed."""

    name = "wrong"

    def runner(self, network, folder):
        whole = super().runner(network, folder)

        def changed(entries):
            codes = whole(entries)
            name = network.program.exits[0]
            return {**codes, name: codes[name] ^ 1}

        return changed


def test_samples_of_a_network_that_mixes_them_are_tried_one_by_one(tmp_path) -> None:
    g = Graph("net")
    rng = np.random.default_rng(0)
    rows = g.add("reshape", g.input("x", "float32", (None, 6, 4)), attrs={"shape": (-1, 4)})
    w = g.const(rng.normal(size=(4, 5)).astype(np.float32))
    g.outputs["y"] = g.add("reshape", g.add("matmul", rows, w), attrs={"shape": (-1, 6, 5)})
    samples = {"x": rng.normal(size=(8, 6, 4)).astype(np.float32)}
    found = verify(quantize(g, samples, effort="plain").save(tmp_path / "out"))
    assert found.equal and not found.network.program.batch_free
    cases = list(from_samples(found.network, samples))
    assert [list(map(np.shape, case.entries.values())) for case in cases] == [[(1, 6, 4)]] * 8


def test_a_certificate_lists_what_was_compared_and_what_was_not(out, monkeypatch) -> None:
    @dataclass(frozen=True)
    class Unable(TensorFlowForm):
        name = "unable"

        def refusal(self, network):
            return "`second` is too much"

    forms = {"tensorflow": TensorFlowForm(), "wrong": Wrong(), "unable": Unable()}
    monkeypatch.setattr(module, "FORMS", forms)
    monkeypatch.setattr(module, "form", forms.get)
    found = verify(out)
    assert not found.equal and found.refused == {"unable": "`second` is too much"}
    written = json.loads((out / "certificate.json").read_text())
    assert written == to_json(found.certificate) and written["equal"] is False
    assert written["forms"]["tensorflow"]["differences"] == 0
    assert written["forms"]["tensorflow"]["elements"] > 10_000
    assert written["forms"]["wrong"]["first"][0]["tensor"] == found.network.program.exits[0]
    assert not written["forms"]["unable"]["compared"]
    layer = written["accumulators"][0]
    assert layer["layer"] == "first" and layer["bits"] == max(layer["bits_by_channel"])
    assert layer["bits"] == max(layer["bits_before_bias"], layer["bits_with_bias"])
    assert layer["float32"]["exact"] and "2^24" in layer["float32"]["why"]
    assert verify(out, forms=["tensorflow"]).equal


def test_hashes_follow_what_they_are_of(out, network) -> None:
    from qgraph.verification.certificate import hashes

    before = asdict(hashes(out, network))
    name = next(iter(network.program.constants))
    constants = {**network.program.constants, name: network.program.constants[name] + 1}
    other = replace(network, program=replace(network.program, constants=constants))
    after = asdict(hashes(out, other))
    assert {key for key in before if before[key] != after[key]} == {"weights"}


# -- dumps ------------------------------------------------------------------------------------


def test_a_dump_that_is_right(network, dump) -> None:
    found = against(network, dump)
    assert not found.differences and not found.unknown
    assert set(found.tensors.values()) == set(network.program.tensors) - {"lost"}


def test_names_may_be_those_of_c_and_codes_values(network, dump) -> None:
    theirs = {name.removeprefix("codes/").replace("/", "_"): array
              for name, array in dump.items() if name.startswith("codes/")}  # fmt: skip
    floats = {name: np.ldexp(codes.astype(np.float32), -exponent_of(network, name))
              for name, codes in theirs.items() if name == "relu_q8"}  # fmt: skip
    assert floats
    found = against(network, {**theirs, **floats, "more": np.zeros(2)})
    assert not found.differences and found.unknown == ("more",)


def exponent_of(network, plain_name):
    return next(t.exponent for n, t in network.program.tensors.items()
                if n.replace("/", "_") == plain_name)  # fmt: skip


def test_the_first_difference_is_shown_with_its_way(network, dump) -> None:
    kept = {n: a for n, a in dump.items() if n.startswith("input/") or n.endswith("/q8")}
    kept["codes/relu/q8"] = kept["codes/relu/q8"].copy()
    kept["codes/relu/q8"][0, 1, 2, 3] ^= 1
    found = against(network, kept)
    (first,) = found.differences
    assert (first.tensor, first.index, first.count) == ("relu/q8", (0, 1, 2, 3), 1)
    assert [line.op for line in found.computation] == [
        "requantize",
        "clip",
        "add",
        "requantize",
        "conv2d",
    ]
    products = found.computation[-1].sources
    total = sum(x[2] * w[2] for x, w in zip(products[::2], products[1::2], strict=True))
    assert total == found.computation[-1].code


def test_the_layer_that_comes_first_is_named_first(network, dump) -> None:
    for name in ("codes/second", "codes/relu/q8"):
        dump[name] = dump[name] + 1
    assert [d.tensor for d in against(network, dump).differences] == ["relu/q8", "second"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"foo": np.zeros(3)}, "has the name of a tensor"),
        ({"codes/second": np.zeros((1, 9), np.int32)}, "has shape"),
        ({"codes/second": np.full((1, 4), 0.3)}, "not on its grid"),
        ({"codes/second": np.full((1, 4), "x")}, "not numbers"),
        ({"input/image": np.full((1, 8, 8, 3), "x")}, "`input/image` is of dtype <U1, not numbers"),
        ({"image": np.full((1, 8, 8, 3), 1j)}, "`image` is of dtype complex128, not numbers"),
        ({"codes/second": np.full((1, 4), np.inf)}, "not on its grid"),
        ({"codes/image/q8": np.zeros((3, 7), np.int8)}, "has shape"),
        ({"codes/image/q8": np.zeros((), np.int8)}, "has shape"),
        ({"codes/image/q8": np.zeros((0, 8, 8, 3), np.int8)}, "has shape"),
    ],
)
def test_dumps_that_do_not_fit(network, arrays, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        against(network, arrays)


@pytest.mark.parametrize("limit", [0, -2])
def test_a_limit_below_one_is_refused(out, limit) -> None:
    with pytest.raises(UsageError, match=f"must be at least 1, not {limit}"):
        verify(out, forms=["engine"], limit=limit)


# -- the command line -------------------------------------------------------------------------


@pytest.mark.parametrize("option", [("--input", "x.npz"), ("--limit", 2), ("-f", "c")])
def test_against_refuses_options_that_it_would_ignore(out, tmp_path, option) -> None:
    found = cli("verify", out, "--against", tmp_path / "dump.npz", *option)
    assert found.code == 2 and "--against excludes" in found.err


def test_verbs(out, dump, tmp_path) -> None:
    found = cli("verify", out, "-f", "tensorflow", "--limit", 3)
    assert found.code == 0 and "equal" in found.out and "3 samples" in found.out
    as_json = json.loads(cli("verify", out, "-f", "tensorflow", "--json").out)
    assert as_json["equal"] is True
    np.savez(tmp_path / "right.npz", **dump)
    assert "to the last bit" in cli("verify", out, "--against", tmp_path / "right.npz").out
    words = {"input/image": np.full((1, 8, 8, 3), "x"), "codes/second": dump["codes/second"]}
    np.savez(tmp_path / "words.npz", **words)
    text = cli("verify", out, "--against", tmp_path / "words.npz")
    assert text.code == 2
    assert f"error: {tmp_path / 'words.npz'}: `input/image` is of dtype <U1" in text.err
    dump["codes/second"] = dump["codes/second"] + 1
    np.savez(tmp_path / "wrong.npz", **dump)
    wrong = cli("verify", out, "--against", tmp_path / "wrong.npz")
    assert wrong.code == 9 and "second[0, 0]" in wrong.out.replace("\n", "")
    assert json.loads(cli("verify", out, "--against", tmp_path / "wrong.npz", "--json").out)


def test_exports(out, tmp_path) -> None:
    target = tmp_path / "pb"
    assert "inference.pb" in cli("export", out, "-f", "tensorflow", "-o", target).out
    assert (target / "inference.pb").read_bytes() == (out / "inference.pb").read_bytes()
    assert cli("export", out, "-f", "tensorflow", "-o", target).code == 8
    assert cli("export", out, "-f", "tensorflow", "-o", target, "--force").code == 0
    (target / "mine.txt").write_text("mine")
    assert cli("export", out, "-f", "tensorflow", "-o", target, "--force").code == 8
    assert (target / "mine.txt").read_text() == "mine"
    unknown = cli("export", out, "-f", "nothing", "-o", tmp_path / "x")
    assert unknown.code == 2 and "unknown format" in unknown.err
