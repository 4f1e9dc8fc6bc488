"""A batch that devices share."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qgraph.errors import UsageError
from tests.helpers.impala import learner

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
ROOT = Path(__file__).parents[3]


def test_replicas_learn_what_one_learns(tmp_path):
    """In separate processes: a processor is divided before TensorFlow begins."""
    program = (
        "import sys; import numpy as np; from tests.helpers import impala as t;"
        "from tests.helpers.rl_records import batch_of;"
        "made = t.learner(replicas=int(sys.argv[1]), reward_scale=1.0);"
        "found = [made.step(batch_of(t.trajectories(seed=i))) for i in range(3)];"
        "np.savez(sys.argv[2], errors=[e for e, _ in found], losses=[x for _, x in found],"
        "**{k: v.numpy() for k, v in made.state.items()});"
        "assert made.strategy.num_replicas_in_sync == int(sys.argv[1])"
    )
    for count in ("1", "2"):
        in_a_process(program, count, str(tmp_path / f"{count}.npz"))
    one, two = (np.load(tmp_path / f"{count}.npz") for count in "12")
    assert one["adam/powers"][0] < 0.8
    for name in one.files:
        assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name


def test_a_run_divides_the_processor_before_tensorflow_is_at_work(tmp_path):
    program = (
        "import sys; from pathlib import Path; from qgraph.rl.learn.runs import train;"
        "from tests.helpers.impala import SMALL;"
        "settings = {**SMALL, 'steps': 100, 'replicas': 2};"
        "made = train(Path(sys.argv[1]), 'impala', 'CartPole-v1', settings);"
        "assert made.learner.strategy.num_replicas_in_sync == 2 and made.done"
    )
    in_a_process(program, str(tmp_path / "run"))


def in_a_process(program, *arguments):
    command = [sys.executable, "-c", program, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr


def test_a_processor_at_work_is_not_divided():
    learner()
    with pytest.raises(UsageError, match="TensorFlow has started already"):
        learner(replicas=2)
