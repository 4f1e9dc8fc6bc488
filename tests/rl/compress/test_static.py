"""The static end of a chain is the integer policy that `qgraph rl quantize` writes."""

import numpy as np
import pytest

from qgraph.errors import CalibrationError, UsageError
from qgraph.exports import form
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.head import Head
from qgraph.rl.learn.frozen import write_policy
from qgraph.rl.policy import load_policy, pack, read_policy
from tests.helpers.actors import mlp, random_weights
from tests.helpers.c_programs import needs_compiler
from tests.helpers.cli import run


def test_a_pruned_policy_in_integers(tmp_path):
    program = mlp(4, 32, 32, 2)
    whole = ChainPolicy(program, random_weights(program))
    seen = np.random.default_rng(0).normal(size=(500, 4)).astype("f4")
    chain = Compressor().prune(0.25).static(8)
    made = chain(whole, seen)
    made.file.write(tmp_path / "policy.qpol")
    static = load_policy(tmp_path / "policy.qpol")
    assert made.file.manifest["form"] == "static"
    wanted = Compressor().prune(0.25)(whole).actor()(seen)
    assert np.sqrt(((static.outputs(seen) - wanted) ** 2).mean()) < 0.1 * wanted.std()
    assert (static(seen) == wanted.argmax(1)).mean() > 0.9
    with pytest.raises(CalibrationError, match="needs observations"):
        chain(whole)
    with pytest.raises(UsageError, match="2 to 8 bits, not 16"):
        Compressor().static(16)
    with pytest.raises(UsageError, match="it ends the chain"):
        chain.pack()


def test_the_quantizer_has_the_requested_bits():
    program = mlp(4, 16, 16, 2)
    whole = ChainPolicy(program, random_weights(program))
    seen = np.random.default_rng(0).normal(size=(100, 4)).astype("f4")
    made = Compressor().quantize(4).static()(whole, seen)
    assert made.bits[0] == made.file.manifest["bits"] == 4
    for chain in ("quantize(4)|static(8)", "quantize(4, first=16)|static"):
        with pytest.raises(UsageError, match=r"a static policy (has|can have)"):
            Compressor.parse(chain)(whole, seen)
    with pytest.raises(UsageError, match="2 to 8 bits, not 16"):
        Compressor.parse("quantize(16)|static")(whole, seen)


@pytest.mark.parametrize(
    "name", ["onnx-integer", "onnx-qdq", pytest.param("c", marks=needs_compiler)]
)
def test_other_forms_of_it_compute_the_same_codes(tmp_path, name):
    if name.startswith("onnx"):
        pytest.importorskip("onnxruntime")
    program = mlp(4, 32, 3)
    whole = ChainPolicy(program, random_weights(program))
    seen = np.random.default_rng(0).normal(size=(200, 4)).astype("f4")
    path = tmp_path / "policy.qpol"
    Compressor().prune(0.5).static(8)(whole, seen).file.write(path)
    for one in (name, "engine"):
        done = run("export", path, "--format", one, "--output", tmp_path / one)
        assert done.code == 0, done.err
        assert "qgraph verify" not in done.out  # which takes what `qgraph quantize` wrote
    network = load_policy(path).network
    (entry,) = network.program.entries
    codes = np.random.default_rng(1).integers(entry.spec.lo, entry.spec.hi + 1, (64, 4))
    found, wanted = (
        form(one).runner(network, tmp_path / one)({entry.tensor: codes}) for one in (name, "engine")
    )
    assert network.program.exits
    assert all(np.array_equal(found[e], wanted[e]) for e in network.program.exits)


def test_a_dynamic_policy_has_no_other_forms(tmp_path):
    program, path = mlp(4, 8, 3), tmp_path / "policy.qpol"
    write_policy(tmp_path / "policy.pb", program, random_weights(program), {})
    pack(read_policy(tmp_path / "policy.pb"), Head("argmax"), 8).write(path)
    done = run("export", path, "--format", "c", "--output", tmp_path / "c")
    assert done.code == 2 and "a dynamic policy has no integer program" in done.err
    assert not (tmp_path / "c").exists()
