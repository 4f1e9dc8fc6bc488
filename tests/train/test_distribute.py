"""Training on several devices and in several processes is training."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qgraph import retrain
from qgraph.compiler import quantize
from tests.helpers.trained import images, trained

ROOT = Path(__file__).parents[2]


def started(folder: Path, *runs: str, **extra: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.helpers.distributed", str(folder), *runs]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", **extra}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)


def finished(*processes: subprocess.Popen, seconds: float = 300) -> None:
    try:
        for process in processes:
            _, errors = process.communicate(timeout=seconds)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Results of one process, alone and on two devices."""
    folder = tmp_path_factory.mktemp("runs")
    runs = ("alone-frozen", "mirrored-frozen", "mirrored-moving", "mirrored-loop")
    finished(started(folder, *runs))
    return folder


def learned(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as arrays:
        return dict(arrays)


def assert_near(found: dict, wanted: dict) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        scale = np.abs(array.astype("float64")).max(initial=0) + 1e-9
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * scale, err_msg=name)


def test_two_devices_learn_what_one_does(folder):
    """With batch norms frozen; statistics of half a batch are others."""
    assert_near(learned(folder / "mirrored-frozen.npz"), learned(folder / "alone-frozen.npz"))


@pytest.mark.parametrize(
    "run", ["alone-frozen", "mirrored-frozen", "mirrored-moving", "mirrored-loop"]
)
def test_everything_that_learns_has_moved(run, folder):
    start = retrain.module(quantize(trained(), images(), mode="retrain", profile="graffitist-int4"))
    found = learned(folder / f"{run}.npz")
    moving = {n for n, v in start.state.items() if not np.array_equal(v.numpy(), found[n])}
    statistics = {n for n in found if "-mean/" in n or "-variance/" in n}
    assert moving == found.keys() - (statistics if "frozen" in run else set())
    assert found["freezing/0"].sum() in (3, 4)


@pytest.mark.slow
def test_two_processes_learn_what_two_devices_do(folder, tmp_path):
    """To the bit in both; and near to what one process learns."""
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": i}} for i in range(2)]
    runs = ("workers-frozen", "workers-moving", "workers-loop")
    finished(*(started(tmp_path, *runs, TF_CONFIG=json.dumps(task)) for task in tasks))
    for run in runs:
        first, second = (learned(tmp_path / f"{run}{i}.npz") for i in range(2))
        assert first.keys() == second.keys()
        for name, array in first.items():
            np.testing.assert_array_equal(second[name], array, err_msg=name)
        assert_near(first, learned(folder / f"{run.replace('workers', 'mirrored')}.npz"))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
