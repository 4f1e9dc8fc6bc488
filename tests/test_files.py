"""A directory is written whole or not at all, whatever happens on the way."""

import os
from pathlib import Path

import pytest

from qgraph.errors import OutputError
from qgraph.files import check_free, sha256_of, whole_directory, write_whole


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

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OutputError if error is OSError else error):
        write(out, "new", replaceable=("sub",))
    monkeypatch.undo()
    assert len(calls) >= step
    assert everything_in(tmp_path) == {"out/sub/file": "old"}
    write(out, "new", replaceable=("sub",))
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
    with pytest.raises(OutputError, match="holds `sub`, which is not replaced"):
        check_free(tmp_path / "out", replaceable=("other",))


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
