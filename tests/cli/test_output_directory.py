"""The output directory is written whole or not at all, and replaces only its own kind."""

import errno
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from qgraph.errors import OutputError
from qgraph.files import check_free, whole_directory
from qgraph.stored.write import FILES
from tests.helpers.cli import left_in, run

OUTPUT = 8


@pytest.fixture
def quantize(model, samples):
    return lambda out, *flags: run("quantize", model, "-c", samples, "-o", out, *flags)


def state(folder):
    """Every file below a folder, with its bytes."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_refused(done, *messages):
    assert done.code == OUTPUT and done.out == "", done.err
    assert done.err.startswith("error: ") and "Traceback" not in done.err
    assert all(m in done.err for m in messages), done.err


def test_an_empty_directory_is_filled_a_full_one_is_left(quantize, tmp_path):
    (tmp_path / "out").mkdir()
    assert quantize(tmp_path / "out").code == 0
    before = state(tmp_path)
    assert_refused(quantize(tmp_path / "out"), "out: exists and is not empty", "--force")
    assert state(tmp_path) == before


def test_force_is_not_advised_where_it_would_not_help(quantize, tmp_path):
    assert quantize(tmp_path / "out").code == 0
    before = state(tmp_path)
    for force in ((), ("--force",)):
        done = run("export", tmp_path / "out", "-f", "c", "-o", tmp_path / "out", *force)
        assert_refused(done, "choose another path")
        assert "--force" not in done.err and state(tmp_path) == before


def test_force_replaces_an_earlier_output(quantize, tmp_path):
    assert quantize(tmp_path / "out").code == 0
    (tmp_path / "out/graph.txt").write_text("old")
    assert quantize(tmp_path / "out", "--force", "--method", "max").code == 0
    assert (tmp_path / "out/graph.txt").read_text() != "old"
    assert left_in(tmp_path) == {"out"} and left_in(tmp_path / "out") == set(FILES)


def test_force_never_takes_what_is_not_an_output(quantize, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert_refused(
        quantize(tmp_path, "--force"), "contains `thesis.tex`, which qgraph did not write"
    )
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_file_in_the_way(quantize, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/below", "file/far/below"):
        assert_refused(quantize(tmp_path / out, "--force"), str(tmp_path / out))
    assert (tmp_path / "file").read_text() == "mine" and left_in(tmp_path) == {"file"}


def test_places_that_cannot_be_written(quantize):
    assert_refused(quantize("/proc/qgraph-out"), "/proc/qgraph-out: ")
    assert_refused(quantize("a" * 300), "File name too long")


def test_parents_are_made_and_taken_back(quantize, tmp_path, monkeypatch):
    assert quantize(tmp_path / "a/b/out").code == 0
    monkeypatch.setattr(
        "qgraph.stored.write.write_npz", fail_with(OSError(errno.ENOSPC, "disk full"))
    )
    assert_refused(quantize(tmp_path / "c/d/out"), "c/d/out: cannot be written: disk full")
    assert left_in(tmp_path) == {"a"}


def test_a_link_stays_one(quantize, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    assert quantize(tmp_path / "out").code == 0 and quantize(tmp_path / "out", "--force").code == 0
    assert (tmp_path / "out").is_symlink() and left_in(tmp_path / "real") == set(FILES)


def test_the_mode_is_that_of_any_other_directory(quantize, tmp_path):
    assert quantize(tmp_path / "out").code == 0
    (tmp_path / "other").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "other").stat().st_mode


# -- failures while writing --------------------------------------------------------------------


def fail_with(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    "step",
    [
        "pathlib.Path.write_bytes",
        "qgraph.stored.write.emit_graph_def",
        "qgraph.stored.write.write_npz",
        "qgraph.stored.write.print_graph",
        "qgraph.files._sync",
    ],
)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_what_was_there(quantize, tmp_path, monkeypatch, step, error):
    assert quantize(tmp_path / "out").code == 0
    before = state(tmp_path)
    monkeypatch.setattr(step, fail_with(error))
    for out in ("out", "new"):
        done = quantize(tmp_path / out, "--force")
        if isinstance(error, OSError):
            assert_refused(done, f"{out}: cannot be written: No space left")
        else:
            assert done.code == 130 and "interrupted" in done.err
    monkeypatch.undo()
    assert state(tmp_path) == before and left_in(tmp_path) == {"out"}


@contextmanager
def files_at_most(size):
    """Imitate a full disk for all writers, TensorFlow's C++ included."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, was[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)


@pytest.mark.parametrize("file", ["inference.pb", "tensors.npz"])
def test_a_disk_that_is_full_for_real(quantize, written, tmp_path, file):
    with files_at_most((written / file).stat().st_size - 1):
        done = quantize(tmp_path / "out")
    assert_refused(done, "out: cannot be written: File too large")
    assert left_in(tmp_path) == set()


def test_what_stood_there_comes_back_if_the_swap_fails(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_text("old")
    rename = Path.rename

    def interrupted(source, target):
        if "new" in str(source):
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr("qgraph.files._exchanged", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        whole_directory(tmp_path / "out", ["old"], force=True) as draft,
    ):
        (draft / "new").write_text("new")
    assert left_in(tmp_path) == {"out"} and (tmp_path / "out/old").read_text() == "old"


def test_check_free_names_the_place_that_cannot_be_written(tmp_path):
    check_free(tmp_path / "fresh")
    check_free(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"`.*file` is not a writable directory"):
        check_free(tmp_path / "file/out")
