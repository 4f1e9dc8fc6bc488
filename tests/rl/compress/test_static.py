"""The static end of a chain is the integer policy that `qgraph rl quantize` writes."""

import numpy as np
import pytest

from qgraph.errors import CalibrationError, UsageError
from qgraph.rl.compress import Compressor, Policy
from qgraph.rl.policy import load_policy
from tests.helpers.actors import mlp, random_weights


def test_a_pruned_policy_in_integers(tmp_path):
    program = mlp(4, 32, 32, 2)
    whole = Policy(program, random_weights(program))
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
