"""A directory is written whole or not at all, whatever happens on the way."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from qgraph import drafts, files
from qgraph.drafts import lock_directory
from qgraph.errors import OutputError
from qgraph.files import check_free, reserved, sha256_of, whole_directory, write_whole


def write(path: Path, text: str, **options) -> None:
    with whole_directory(path, **options) as draft:
        (draft / "sub").mkdir()
        (draft / "sub/file").write_text(text)


def everything_in(folder: Path) -> dict[str, str]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_text() for p in files}


def test_what_is_written_is_there(tmp_path):
    write(tmp_path / "far/below/out", "new")
    assert everything_in(tmp_path) == {"far/below/out/sub/file": "new"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, OSError])
def test_nothing_is_left_behind(tmp_path, error):
    with (
        pytest.raises(OutputError if error is OSError else error),
        whole_directory(tmp_path / "far/below/out") as draft,
    ):
        (draft / "half").write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", [1, 2])
def test_the_old_is_kept_until_the_new_is_in_place(tmp_path, monkeypatch, step, error):
    out = tmp_path / "out"
    write(out, "old")
    rename, calls = Path.rename, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == step:
            raise error
        return rename(source, target)

    monkeypatch.setattr("qgraph.files._exchanged", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OutputError if error is OSError else error):
        write(out, "new", own=("sub",), force=True)
    monkeypatch.undo()
    assert len(calls) >= step
    assert everything_in(tmp_path) == {"out/sub/file": "old"}
    write(out, "new", own=("sub",), force=True)
    assert everything_in(tmp_path) == {"out/sub/file": "new"}


def test_places_that_are_taken(tmp_path):
    write(tmp_path / "out", "old")
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    check_free(tmp_path / "empty")
    for path, complaint in (
        ("out", "exists and is not empty"),
        ("file", "exists and is not a directory"),
        ("file/below", "Not a directory|is not a writable directory"),
    ):
        with pytest.raises(OutputError, match=complaint):
            check_free(tmp_path / path)
    with pytest.raises(OutputError, match="contains `sub`, which qgraph did not write"):
        check_free(tmp_path / "out", own=("other",), force=True)


def test_an_unwritable_place(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match="out: cannot be written here"):
        check_free(tmp_path / "out")


def test_hashes_see_content_and_names(tmp_path):
    write(tmp_path / "a", "text")
    write(tmp_path / "b", "text")
    assert sha256_of(tmp_path / "a") == sha256_of(tmp_path / "b")
    (tmp_path / "b/sub/file").rename(tmp_path / "b/sub/other")
    assert sha256_of(tmp_path / "a") != sha256_of(tmp_path / "b")
    (tmp_path / "a/sub/file").write_text("other")
    assert sha256_of(tmp_path / "a/sub/file") != sha256_of(tmp_path / "b/sub/other")


def test_one_file_is_replaced_or_left(tmp_path, monkeypatch):
    write_whole(tmp_path / "page", b"old")
    write_whole(tmp_path / "page", b"new")
    assert (tmp_path / "page").read_bytes() == b"new"
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        write_whole(tmp_path / "gone/page", b"")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OutputError, match="cannot be written: disk full"):
        write_whole(tmp_path / "page", b"newer")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"new"]


def fail(*_):
    raise OSError(28, "disk full")


# -- one step -------------------------------------------------------------------------------


def test_a_replaced_directory_is_never_missing(tmp_path):
    out, stop, missing = tmp_path / "out", threading.Event(), []

    def watch():
        while not stop.is_set():
            if not (out / "sub").is_dir():
                missing.append(1)

    write(out, "0")
    if not files._exchanged(out, tmp_path / "out"):
        pytest.skip("the file system cannot exchange names")
    watcher = threading.Thread(target=watch)
    watcher.start()
    for i in range(20):
        write(out, str(i), own=("sub",), force=True)
    stop.set()
    watcher.join()
    assert not missing
    assert everything_in(tmp_path) == {"out/sub/file": "19"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_exchange_that_fails_leaves_the_old(tmp_path, monkeypatch, error):
    write(tmp_path / "out", "old")

    def failing(one, other):
        raise error

    monkeypatch.setattr(files, "_exchanged", failing)
    with pytest.raises(OutputError if error is OSError else error):
        write(tmp_path / "out", "new", own=("sub",), force=True)
    assert everything_in(tmp_path) == {"out/sub/file": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_came_meanwhile_is_not_replaced(tmp_path):
    with (
        pytest.raises(OutputError, match="contains `thesis`, which qgraph did not write"),
        whole_directory(tmp_path / "out", ("sub",), force=True) as draft,
    ):
        (draft / "sub").write_text("new")
        write(tmp_path / "elsewhere", "")
        (tmp_path / "elsewhere").rename(tmp_path / "out")
        (tmp_path / "out/thesis").write_text("years of work")
    assert (tmp_path / "out/thesis").read_text() == "years of work"


# -- runs beside each other -----------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from qgraph.files import reserved
from qgraph import drafts
with {what} as place:
    {step}
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_run(what: str, path: Path, step: str = "pass"):
    """A process that holds `path`; killed without a chance to clean up."""
    text = HOLDER.format(what=what, step=step).replace("PATH", f"Path({str(path)!r})")
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


DIRECTORY, FILE = "reserved(PATH)", "drafts.locked_draft(PATH, drafts.FILE)"


def test_the_second_of_two_runs_that_write_one_directory_reports_it(tmp_path):
    out = tmp_path / "new/out"
    with another_run(DIRECTORY, out):
        held = {p.name for p in out.parent.iterdir()}
        with pytest.raises(OutputError, match="out: another run is writing here"):
            write(out, "mine")
        assert {p.name for p in out.parent.iterdir()} == held
        write(tmp_path / "new/other", "another place")
    write(out, "mine")
    assert everything_in(tmp_path) == {
        "new/out/sub/file": "mine",
        "new/other/sub/file": "another place",
    }


def test_the_second_of_two_runs_that_write_one_file_reports_it(tmp_path):
    with another_run(FILE, tmp_path / "page"):
        with pytest.raises(OutputError, match="page: another run is writing here"):
            write_whole(tmp_path / "page", b"mine")
        write_whole(tmp_path / "other", b"another place")
    write_whole(tmp_path / "page", b"mine")
    assert {p.name for p in tmp_path.iterdir()} == {"page", "other"}


def test_a_directory_in_use_is_not_replaced(tmp_path):
    write(tmp_path / "out", "old")
    with another_run("drafts.lock_directory(PATH)", tmp_path / "out"):
        with pytest.raises(OutputError, match="another run is writing here"):
            write(tmp_path / "out", "new", own=("sub",), force=True)
        with (
            pytest.raises(OutputError, match="another run is writing here"),
            lock_directory(tmp_path / "out"),
        ):
            pass
    write(tmp_path / "out", "new", own=("sub",), force=True)
    assert everything_in(tmp_path) == {"out/sub/file": "new"}


@pytest.mark.parametrize("next_one", ["out", "other"])
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path, next_one):
    deep = "(place.draft / 'deep').mkdir(parents=True)"
    with another_run(DIRECTORY, tmp_path / "out", deep), another_run(FILE, tmp_path / "page"):
        pass
    assert {p.name for p in tmp_path.iterdir()} == {".out.qgraph-dir", ".page.qgraph-file"}
    write(tmp_path / next_one, "new")
    assert [p.name for p in tmp_path.iterdir()] == [next_one]
    assert everything_in(tmp_path) == {f"{next_one}/sub/file": "new"}


def test_only_leftovers_are_removed(tmp_path):
    (tmp_path / ".bashrc").write_text("mine")
    (tmp_path / "data.qgraph-dir").mkdir()
    write_whole(tmp_path / "page", b"new")
    assert {p.name for p in tmp_path.iterdir()} == {".bashrc", "data.qgraph-dir", "page"}


def test_an_output_that_a_killed_run_had_moved_away_comes_back(tmp_path):
    """Without an exchange there is a moment in which the old output has no name."""
    step = "place.draft.mkdir(); PATH.rename(place.draft.with_name('old'))"
    write(tmp_path / "out", "old")
    with another_run("reserved(PATH, ('sub',), force=True)", tmp_path / "out", step):
        pass
    assert not (tmp_path / "out").exists()
    write(tmp_path / "other", "")
    with pytest.raises(OutputError, match="exists and is not empty"), reserved(tmp_path / "out"):
        pass
    assert everything_in(tmp_path) == {"out/sub/file": "old", "other/sub/file": ""}


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "r\udce9seau", " ", "a\nb"])
def test_outputs_of_any_name(tmp_path, name):
    write(tmp_path / name, "old")
    write(tmp_path / name, "new", own=("sub",), force=True)
    assert (tmp_path / name / "sub/file").read_text() == "new"
    longest = name[:-1] + "y"
    write_whole(tmp_path / longest, b"page")
    assert {p.name for p in tmp_path.iterdir()} == {name, longest}


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path, monkeypatch):
    def without(handle, operation):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(drafts.fcntl, "flock", without)
    (tmp_path / ".other.qgraph-dir").mkdir()  # it may be of a run that lives
    write(tmp_path / "out", "new")
    write_whole(tmp_path / "page", b"new")
    assert {p.name for p in tmp_path.iterdir()} == {".other.qgraph-dir", "out", "page"}
