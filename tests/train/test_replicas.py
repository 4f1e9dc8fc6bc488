"""`qgraph train` on several devices and in several processes, and after the loss of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qgraph
from qgraph import retrain
from qgraph.errors import UsageError
from qgraph.train.data import LabelledBatch
from qgraph.train.replicas import parts_of, same_everywhere
from qgraph.train.task import TF_CONFIG, WorkerTask, task_of
from tests.helpers.trained import images, trained
from tests.train.test_distribute import assert_near, free_ports

ROOT = Path(__file__).parents[2]
COUNT, STEPS = 64, 6
OPTIONS = ("--epochs", "2", "--batch-size", "16", "--weight-rate", "1e-3", "--validate-every", "2")


# -- parts of a batch -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "count", "step", "sizes"),
    [
        (8, 2, 1, [4, 4]),
        (7, 2, 1, [3, 4]),
        (8, 3, 2, [2, 2, 4]),
        (2, 3, 1, [1, 1, 1]),  # the first one computes a sample again, with a share of 0
        (1, 1, 1, [1]),
    ],
)
def test_parts_are_the_batch(samples, count, step, sizes) -> None:
    batch = LabelledBatch({"x": np.arange(samples)}, np.arange(samples))
    parts = parts_of(batch, count, step)
    assert [len(part.batch.inputs["x"]) for part in parts] == sizes
    own = [part.batch for part in parts if part.share]
    np.testing.assert_array_equal(np.concatenate([b.inputs["x"] for b in own]), np.arange(samples))
    np.testing.assert_array_equal(np.concatenate([b.labels for b in own]), np.arange(samples))
    assert sum(part.share for part in parts) == pytest.approx(1)


def test_workers_agree_or_not() -> None:
    assert same_everywhere([[3, 4], [3, 4]])
    assert not same_everywhere([[3, 4], [3, 5]])


# -- TF_CONFIG --------------------------------------------------------------------------------


def config(index: int, kind: str = "worker", **cluster: list[str]) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_the_place_of_a_worker(monkeypatch) -> None:
    assert task_of(False) == WorkerTask()
    monkeypatch.setenv(TF_CONFIG, config(1, worker=["a:1", "b:1"]))
    assert task_of(True) == WorkerTask(1, 2)
    monkeypatch.setenv(TF_CONFIG, config(0, worker=["a:1", "b:1"], chief=["c:1"]))
    assert task_of(True) == WorkerTask(1, 3)
    monkeypatch.setenv(TF_CONFIG, config(0, "chief", worker=["a:1", "b:1"], chief=["c:1"]))
    assert task_of(True) == WorkerTask(0, 3) and task_of(True).is_chief


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", config(2, worker=["a:1", "b:1"]), config(0, "ps", worker=["a:1"]),
     config(0, ps=["a:1"], worker=["b:1"])],
)  # fmt: skip
def test_a_cluster_that_is_not_valid(text, monkeypatch) -> None:
    monkeypatch.setenv(TF_CONFIG, text)
    with pytest.raises(UsageError, match=TF_CONFIG):
        task_of(True)


# -- runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A training directory, with `train.npz` beside it."""
    place = tmp_path_factory.mktemp("source")
    made = qgraph.quantize(trained(), images(), mode="retrain", profile="graffitist-int4")
    labels = np.random.default_rng(0).integers(0, 5, COUNT)
    np.savez(place / "train.npz", image=images(COUNT), labels=labels)
    return retrain.save(made, place / "out")


def copied(source: Path, folder: Path) -> Path:
    """A copy of the training directory, before any training."""
    made = folder / "out"
    made.mkdir(parents=True)
    for file in source.iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    return made


def started(source: Path, out: Path, *options: str, dies: int = 0, **extra: str):
    """`qgraph train` in a separate process, which kills itself after `dies` steps."""
    data = source.parent / "train.npz"
    arguments = [str(dies), "train", str(out), "--data", str(data), *OPTIONS, *options, "--json"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", **extra}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.mortal_train", *arguments],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(*processes: subprocess.Popen, seconds: float = 240) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    try:
        found = [(*process.communicate(timeout=seconds),) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, *texts) for p, texts in zip(processes, found, strict=True)]


def workers(source: Path, out: Path, *options: str, dies: int = 0) -> list[tuple[int, str, str]]:
    """Two workers, of which the second may die."""
    names = [f"localhost:{port}" for port in free_ports(2)]
    tasks = [{TF_CONFIG: config(i, worker=names)} for i in range(2)]
    return ended(
        *(
            started(source, out, "--workers", *options, dies=dies if i else 0, **task)
            for i, task in enumerate(tasks)
        )
    )


def learned(out: Path, name: str = "last.npz") -> dict[str, np.ndarray]:
    with np.load(out / "checkpoints" / name) as arrays:
        return {key: arrays[key] for key in arrays if key.startswith("variable/")}


@pytest.fixture(scope="module")
def alone(source: Path, tmp_path_factory) -> Path:
    """Trained on one device."""
    out = copied(source, tmp_path_factory.mktemp("alone"))
    ((code, _, errors),) = ended(started(source, out, "--norm-epochs", "0"))
    assert code == 0, errors
    return out


@pytest.mark.slow
def test_two_devices_learn_what_one_does(source, alone, tmp_path) -> None:
    """Batch norms frozen: statistics of half a batch differ."""
    out = copied(source, tmp_path)
    ((code, text, errors),) = ended(started(source, out, "--norm-epochs", "0", "--devices", "2"))
    assert code == 0, errors
    assert json.loads(text)["steps"] == STEPS
    assert_near(learned(out), learned(alone))


@pytest.mark.slow
def test_two_workers_learn_what_one_does(source, alone, tmp_path) -> None:
    out = copied(source, tmp_path)
    found = workers(source, out, "--norm-epochs", "0")
    assert [code for code, *_ in found] == [0, 0], found
    assert [json.loads(text)["steps"] for _, text, _ in found] == [STEPS] * 2
    assert_near(learned(out), learned(alone))


def shares(epoch=None, input_context=None):
    """The samples in order, or every second one for one of two workers."""
    import tensorflow as tf

    with np.load(os.environ["SAMPLES"]) as arrays:
        made = tf.data.Dataset.from_tensor_slices(dict(arrays))
    if input_context is None:
        return made
    return made.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)


@pytest.mark.slow
def test_workers_read_their_own_shares(source, tmp_path, monkeypatch) -> None:
    """The samples of a batch are the same, so is what is learned."""
    monkeypatch.setenv("SAMPLES", str(source.parent / "train.npz"))
    data = "--data", "tests.train.test_replicas:shares"
    whole, shared = (copied(source, tmp_path / name) for name in ("whole", "shared"))
    ((code, text, errors),) = ended(started(source, whole, "--norm-epochs", "0", *data))
    assert code == 0, errors
    found = workers(source, shared, "--norm-epochs", "0", *data)
    assert [code for code, *_ in found] == [0, 0], found
    assert {json.loads(each)["steps"] for _, each, _ in found} == {json.loads(text)["steps"]}
    assert_near(learned(shared), learned(whole))


@pytest.mark.slow
def test_a_run_continues_after_the_loss_of_a_worker(source, tmp_path) -> None:
    """To the bit, with batch norms that move."""
    whole, broken = (copied(source, tmp_path / name) for name in ("whole", "broken"))
    assert [code for code, *_ in workers(source, whole)] == [0, 0]
    (first, _, errors), (second, *_) = workers(source, broken, dies=3)
    assert (first, second) == (12, -9), errors
    assert "a worker was lost after step" in errors
    assert "start all workers again" in errors
    found = workers(source, broken)
    assert [code for code, *_ in found] == [0, 0], found
    wanted, made = learned(whole), learned(broken)
    assert wanted.keys() == made.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(made[name], array, err_msg=name)


@pytest.mark.slow
def test_workers_with_different_options_are_refused(source, tmp_path) -> None:
    out = copied(source, tmp_path)
    names = [f"localhost:{port}" for port in free_ports(2)]
    found = ended(
        *(
            started(source, out, "--workers", "--seed", str(i),
                    **{TF_CONFIG: config(i, worker=names)})
            for i in range(2)
        )
    )  # fmt: skip
    assert [code for code, *_ in found] == [2, 2], found
    assert all("have different options" in errors for *_, errors in found)
