"""Install a wheel without a compiler, and run the fast tests against it: `make test-wheel`.

Usage: `python -m tests.helpers.wheel [--python PYTHON] [--wheels FOLDER] [PYTEST_ARGUMENT ...]`.
The tests and the files that they read come from the source distribution beside the wheel. They are
copied to build/wheel-test without the sources of qgraph.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers.project import pyproject

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "wheel-test"
COMPILER = re.compile(
    r"(.*-)?(cc|c[89]9|cpp|gcc|clang|[cg]\+\+|clang\+\+|nvcc|cmake|ninja)(-\d.*)?"
)
VARIABLES = ("CC", "CXX", "CUDACXX", "PYTHONPATH", "VIRTUAL_ENV")


def newest(folder: Path, pattern: str) -> Path:
    """The newest file whose name matches."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit(f"{folder} has no {pattern}; make one: make wheel")
    return found[-1]


def wheel_for(python: str, folder: Path) -> Path:
    """The newest wheel in a folder that is for this Python."""
    code = "import sys; print('cp%d%d' % sys.version_info[:2])"
    tag = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    return newest(folder, f"*-{tag.strip()}-*.whl")


def lay_sources(sdist: Path, folder: Path) -> None:
    """Copy the files that tests read, without the sources of qgraph."""
    shutil.unpack_archive(sdist, folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    (folder / "copy").mkdir()
    for name in pyproject()["tool"]["cibuildwheel"]["test-sources"]:
        (unpacked / name).rename(folder / "copy" / name)
    shutil.rmtree(folder / "unpacked")


def programs_without_compilers(folder: Path) -> None:
    """Link all programs of PATH except compilers and programs that call them."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if not COMPILER.fullmatch(program.name) and not os.path.lexists(link):
                link.symlink_to(program)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist")
    options, pytest_arguments = parser.parse_known_args()
    wheel = wheel_for(options.python, options.wheels.resolve())
    print(f"testing {wheel.name} in {PLACE}", flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    programs_without_compilers(PLACE / "bin")
    lay_sources(newest(options.wheels.resolve(), "*.tar.gz"), PLACE)

    subprocess.run([options.python, "-m", "venv", PLACE / "venv"], check=True)
    python = PLACE / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment["PATH"] = os.pathsep.join(map(str, (python.parent, PLACE / "bin")))
    run = {"cwd": PLACE / "copy", "env": environment, "check": True}
    subprocess.run([python, "-m", "pip", "install", "-q", f"{wheel}[demo,test]"], **run)
    where = "import pathlib, qgraph; print(pathlib.Path(qgraph.__file__).parents[4])"
    done = subprocess.run([python, "-c", where], capture_output=True, text=True, **run)
    if Path(done.stdout.strip()) != PLACE / "venv":
        sys.exit(f"`import qgraph` found {done.stdout.strip()} instead of the wheel")
    subprocess.run([python, "-m", "qgraph", "doctor"], **run)
    tests = [python, "-m", "pytest", "-n", "2", "--dist", "loadfile", *pytest_arguments]
    return subprocess.run(tests, **{**run, "check": False}).returncode


if __name__ == "__main__":
    sys.exit(main())
