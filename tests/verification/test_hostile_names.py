"""Whatever tensors are called: every form computes the same codes, and people see their names."""

import json
import subprocess

import numpy as np
import pytest

from qgraph import quantize
from qgraph.backends.c.source import unit
from qgraph.backends.tf.emit import tf_io_names
from qgraph.cli.options import names as split_names
from qgraph.errors import UsageError
from qgraph.exports import export
from qgraph.names import from_entry_name
from qgraph.npz import write_npz
from qgraph.program import lower
from qgraph.runtime import Session
from qgraph.stored import load_network
from qgraph.verification.dump import against
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.cli import run
from tests.helpers.forms import OWN_PROFILES
from tests.helpers.named_networks import (
    INPUTS,
    OUTPUTS,
    TENSORS,
    branching_network,
    named_network,
    samples_for,
)
from tests.helpers.onnx_graphs import imported, runtime

SETS = {
    "exporters": [
        "onnx::Conv:0", "/in/z", "/head/Mul_output_0", "onnx::Side:1", "conv.weight", "conv/bias:0",
        "/conv/Conv_output_0", "/relu/Relu_output_0", "x:0", "x", "fc.weight:0", "_fc", "-gate",
    ],
    "texts": [
        "my input !", "größe 日本", 'say "y"', "back\\slash", "it's", "a`b", "new\nline",
        "tab\t\x1b[31m", "*/ int x; /*", "??/", "</script><b>", "{{ x }}", "%s %d",
    ],
    "numbers": [str(number) for number in range(TENSORS)],
    "ours": [
        "x", "x/q8", "x as float64", "x/NCHW", "qgraph/constants/float32", "y/codes", "codes/x",
        "feed0", "layer_x", "x/q8/round", "x_1", "i", "x/scale",
    ],
    "reserved": [
        "int", "model_arena", "main", "module", "model_run", "run", "arena", "begin", "memcpy",
        "NULL", "window", "wire", "model_trace",
    ],
    "archives": [
        "..", "../../x", "file", "allow_pickle", "x.npy", "x", "x\0y", "x\0z", "%41", "A",
        "/etc/x", "a/../b", " ",
    ],
    "alike": ["Net", "nET", "net", "n et", "n.et", "n:et", "n-et", "n_et", "n/et", "N_ET",
              "a" * 300, "a" * 299 + "b", "A" * 300],
}  # fmt: skip


QUICK = ("ours", "archives")  # the rest take a quarter of a minute each
KINDS = [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in SETS]


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_is_equal_under_any_names(kind, tmp_path) -> None:
    names = SETS[kind]
    assert len(names) == len(set(names)) == TENSORS
    (tmp_path / "model.onnx").write_bytes(named_network(names).SerializeToString())
    samples = samples_for(names)
    made = quantize(tmp_path / "model.onnx", samples, effort="plain")
    out = made.save(tmp_path / "out")
    inputs, outputs = names[:INPUTS], names[INPUTS : INPUTS + OUTPUTS]

    found = verify(out)
    assert found.refused.keys() <= {"qonnx", *OWN_PROFILES}
    for name, form in found.certificate.forms.items():
        assert (form.compared and not form.differences) or name in found.refused, name

    manifest = json.loads((out / "manifest.json").read_text())
    assert [*manifest["inputs"]] == inputs
    assert [*manifest["outputs"]] == outputs
    with np.load(out / "tensors.npz") as stored:
        kept = {from_entry_name(key) for key in stored.files}
    assert {f"input/{name}" for name in inputs} <= kept
    assert {f"codes/{value}" for value in made.graph.outputs.values()} <= kept
    assert Session.open(out).run(samples).keys() == set(outputs)


def test_own_names_stay_at_the_ends(tmp_path) -> None:
    names = SETS["exporters"]
    (tmp_path / "model.onnx").write_bytes(named_network(names).SerializeToString())
    samples = samples_for(names)
    out = quantize(tmp_path / "model.onnx", samples, effort="plain").save(tmp_path / "out")
    network = load_network(out)
    wanted = Session.open(out).run(samples)

    for form in ("onnx-qdq", "qonnx"):
        import onnx

        export(network, form, tmp_path / form)
        (file,) = (tmp_path / form).glob("*.onnx")
        model = onnx.load(file)
        assert [i.name for i in model.graph.input] == names[:INPUTS]
        assert {o.name for o in model.graph.output} >= set(names[INPUTS : INPUTS + OUTPUTS])
        if form == "onnx-qdq":
            found = runtime(model, samples)
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array)

    import tensorflow as tf

    export(network, "tensorflow", tmp_path / "tensorflow")
    served = tf.saved_model.load(str(tmp_path / "tensorflow/saved_model")).signatures[
        "serving_default"
    ]
    found = served(**{name: tf.constant(array) for name, array in samples.items()})
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_onnx_outputs_have_public_names_where_values_have_others(tmp_path) -> None:
    import onnx

    names = [f"t{i}" for i in range(TENSORS)]
    names[2] = "y:1"
    graph = imported(named_network(names))
    assert graph.outputs == {"y:1": "y_1", "t3": "t3"}
    graph.outputs = {"scores": "y_1", "t0": "t3"}  # one has the name of an input
    made = quantize(graph, samples_for(names), effort="plain")
    out = made.save(tmp_path / "out")
    network = load_network(out)
    for form, wanted in (
        ("onnx-qdq", {"scores", "t0_1"}),
        ("qonnx", {"scores", "t0_1"}),
        ("onnx-integer", {"scores", "t0"}),  # whose inputs are codes
    ):
        export(network, form, tmp_path / form)
        model = onnx.load(tmp_path / form / "network.onnx")
        assert {o.name for o in model.graph.output} == wanted
    found = onnx.load(tmp_path / "onnx-integer" / "dequantize.onnx")
    assert {i.name for i in found.graph.input} == {"scores", "t0"}
    assert verify(out, forms=["onnx-qdq", "onnx-integer"]).equal


def test_the_manifest_has_the_tensorflow_names_of_inputs_and_outputs(tmp_path) -> None:
    names = SETS["exporters"]
    graph = imported(named_network(names))
    changed = tf_io_names(graph).changed
    assert changed == {
        "inputs": {"onnx::Conv:0": "onnx__Conv_0", "/in/z": "n/in/z"},
        "outputs": {
            "/head/Mul_output_0": "n/head/Mul_output_0",
            "onnx::Side:1": "onnx__Side_1",
        },
    }
    made = quantize(graph, samples_for(names), effort="plain")
    out = made.save(tmp_path / "out")
    assert json.loads((out / "manifest.json").read_text())["tensorflow_names"] == changed


def test_an_output_may_have_the_name_of_an_input(tmp_path) -> None:
    graph = imported(named_network([f"t{i}" for i in range(TENSORS)]))
    graph.outputs = {"t0": graph.outputs["t2"], "t1": "t1"}
    ends = tf_io_names(graph)
    assert ends.inputs == {"t0": "t0", "t1": "t1"}
    assert ends.outputs == {"t0": "t0_1", "t1": "t1"}
    samples = samples_for(graph.inputs)
    out = quantize(graph, samples, effort="plain").save(tmp_path / "out")
    assert verify(out, forms=["tensorflow", "c"]).equal


def test_a_dump_goes_by_names_that_are_exact_or_not_ambiguous(tmp_path) -> None:
    names = ["x y", "x.y", *(f"t{i}" for i in range(TENSORS - 2))]
    names[9:11] = ["%41", "A"]
    graph = imported(named_network(names))
    made = quantize(graph, samples_for(names), effort="plain")
    network = load_network(made.save(tmp_path / "out"))
    whole = dict(np.load(tmp_path / "out" / "tensors.npz"))
    assert against(network, whole).unknown == ()
    entries = {n: c for n, c in whole.items() if n.startswith(("codes/x y", "codes/x.y"))}
    assert {"codes/x y/q8", "codes/x.y/q8"} <= entries.keys()
    with pytest.raises(UsageError, match=r"`x_y_q8` may be `x y/q8` or `x\.y/q8`"):
        against(network, {"x_y_q8": whole["codes/x y/q8"]})


def test_names_hold_through_calibration_files_training_and_the_report(tmp_path) -> None:
    names = ["in, put", "%42", 'say "y"', "</script>", *SETS["archives"][4:]]
    (tmp_path / "net.onnx").write_bytes(named_network(names).SerializeToString())
    write_npz(tmp_path / "samples.npz", samples_for(names))
    net, samples, out = tmp_path / "net.onnx", tmp_path / "samples.npz", tmp_path / "out"
    ends = ("--inputs", '"in, put",%42', "--outputs", '"say ""y""",</script>')
    for verb in (
        ("quantize", net, "-c", samples, "-o", out, "--effort", "plain", *ends),
        ("report", out),
        ("run", out, "-i", samples, "-o", tmp_path / "outputs.npz"),
        ("quantize", net, "-c", samples, "-o", tmp_path / "train", "--mode", "retrain"),
        ("train", tmp_path / "train", "--data", samples, "--epochs", 1, "--output", "</script>"),
        ("finalize", tmp_path / "train"),
        ("verify", tmp_path / "train" / "inference", "-f", "tensorflow"),
    ):
        done = run(*verb)
        assert done.code == 0, (verb, done.err)
    assert "<b></script>" not in (out / "report.html").read_text()
    with np.load(tmp_path / "outputs.npz") as found:
        assert set(found.files) == {'say "y"', "</script>"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a,b", ["a", "b"]),
        (" a , b,", ["a", "b"]),
        ('"a,b",c', ["a,b", "c"]),
        ('a"b,c', ['a"b', "c"]),
        ('"a ""b""",c d', ['a "b"', "c d"]),
        ("", None),
    ],
)
def test_names_in_options(text, wanted) -> None:
    assert split_names(text) == wanted


def test_c_memory_does_not_depend_on_names() -> None:
    """Scratch memory of layers must not be mistaken for a tensor that is called by a number."""
    words = [f"tensor_{letter}" for letter in "abcdefghijkl"]
    samples = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)

    def arena(names):
        made = quantize(imported(branching_network(names)), samples, effort="plain")
        return unit(lower(made.graph), "net").arena

    wanted = arena(words)
    for start in range(3):
        assert arena([str(i + start) for i in range(len(words))]) == wanted


@pytest.mark.parametrize("kind", ["texts", "reserved", "archives"])
def test_the_bench_of_any_names_compiles_and_passes(kind, tmp_path, simulator) -> None:
    graph = imported(named_network(SETS[kind]))
    out = quantize(graph, samples_for(SETS[kind]), effort="plain").save(tmp_path / "out")
    export(load_network(out), "vectors", tmp_path / "vectors")
    assert "PASS: 0 of" in simulator(tmp_path / "vectors")


@pytest.fixture
def simulator():
    import shutil

    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog (iverilog) is not installed")

    def simulate(folder) -> str:
        command = ["iverilog", "-g2012", "-Wall", "-o", "bench", "bench.sv"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return subprocess.run(
            ["vvp", "bench"], cwd=folder, check=True, capture_output=True, text=True
        ).stdout

    return simulate
