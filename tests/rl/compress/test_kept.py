"""Students' weights, in a file beside a run."""

import errno

import numpy as np
import pytest

from qgraph.errors import LoadError, OutputError
from qgraph.rl.compress.student_file import FILE
from qgraph.rl.monitor import LearnerFacts
from tests.helpers.compressors import seen, weights, worker


def test_students_go_on_where_they_were_kept(tmp_path):
    text = "distill(8, steps=3)|quantize(32)"
    whole, begun = worker(text), worker(text, folder=str(tmp_path))
    for version in range(3):
        assert (whole.step(weights(), LearnerFacts(version), seen()) == begun.step(
            weights(), LearnerFacts(version), seen())).all()  # fmt: skip
    begun.keep()
    wanted = whole.step(weights(), LearnerFacts(3), seen())
    resumed = worker(text, folder=str(tmp_path), until=2)
    assert (resumed.step(weights(), LearnerFacts(3), seen()) == wanted).all()
    anew = worker(text, folder=str(tmp_path))  # does not read an existing file
    assert (anew.step(weights(), LearnerFacts(3), seen()) != wanted).any()


@pytest.mark.parametrize("text", ["quantize(8)", "prune(0.5)|distill(steps=2)"])
def test_without_students_no_file_is_kept(tmp_path, text):
    one = worker(text, folder=str(tmp_path))
    one.step(weights(), LearnerFacts(0), seen())
    one.keep()
    assert not (tmp_path / FILE).exists()


def test_a_file_of_students_that_is_damaged_is_refused(tmp_path):
    (tmp_path / FILE).write_bytes(b"PK, but no more of it")
    with pytest.raises(LoadError, match="cannot be read"):
        worker("distill(8)", folder=str(tmp_path), until=0)
    np.savez(tmp_path / FILE, other=np.zeros(3))
    with pytest.raises(LoadError, match="not a file of students"):
        worker("distill(8)", folder=str(tmp_path), until=0)


def test_on_a_full_disk_students_stay_as_they_were_kept(tmp_path, monkeypatch):
    one = worker("distill(8, steps=2)", folder=str(tmp_path))
    one.step(weights(), LearnerFacts(0), seen())
    one.keep()
    kept = (tmp_path / FILE).read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("qgraph.files.os.replace", full)
    one.step(weights(), LearnerFacts(1), seen())
    with pytest.raises(OutputError, match="No space left"):
        one.keep()
    assert (tmp_path / FILE).read_bytes() == kept
    assert [p.name for p in tmp_path.glob("*students*")] == [FILE]
