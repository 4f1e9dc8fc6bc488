"""The Makefile with a Python that only notes its calls: when it builds, and what it prints."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# `python -m venv --clear .venv` makes a .venv with this as its python. A build runs what is in
# the file `meanwhile`.
PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$*" in
*"venv --clear"*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
*--editable*) if [ -e meanwhile ]; then . ./meanwhile; fi ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of a few empty files."""
    tree = tmp_path / "tree"
    for name in ("fused_ops/a.cpp", "qgraph/__init__.py", "transforms/__init__.py", "cli/x.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    for name in ("Makefile", "pyproject.toml", "CMakeLists.txt"):
        shutil.copy(ROOT / name, tree)
    _script(tree / "python", PYTHON)
    return tree


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def make(tree: Path, target: str = "venv") -> subprocess.CompletedProcess[str]:
    command = ["make", target, "PYTHON=./python"]
    # Not what a `make test` around this test has set.
    own = {k: v for k, v in os.environ.items() if k not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}
    return subprocess.run(command, cwd=tree, env=own, capture_output=True, text=True)


def builds(tree: Path) -> int:
    """Make the environment; return how often it was built."""
    (tree / "calls").unlink(missing_ok=True)
    done = make(tree)
    assert done.returncode == 0, done.stderr
    calls = tree / "calls"
    return calls.read_text().count("--editable") if calls.exists() else 0


def test_a_build_follows_each_change_and_nothing_else(tree: Path) -> None:
    assert builds(tree) == 1
    assert builds(tree) == 0
    for name in ("fused_ops/a.cpp", "CMakeLists.txt", "pyproject.toml", "qgraph/__init__.py"):
        (tree / name).touch()
        assert builds(tree) == 1, name
        assert builds(tree) == 0, name


def test_a_file_that_is_edited_during_the_build_is_built_again(tree: Path) -> None:
    (tree / "meanwhile").write_text("sleep 0.1; touch fused_ops/a.cpp; sleep 0.1")
    assert builds(tree) == 1
    (tree / "meanwhile").unlink()
    assert builds(tree) == 1
    assert builds(tree) == 0


def test_a_build_that_fails_is_tried_again(tree: Path) -> None:
    (tree / "meanwhile").write_text("exit 1")
    assert make(tree).returncode != 0
    (tree / "meanwhile").unlink()
    assert builds(tree) == 1
    assert "venv --clear" not in (tree / "calls").read_text()  # what was installed is kept


def test_a_copied_folder_gets_an_environment_of_its_own(tree: Path) -> None:
    builds(tree)
    copy = tree.with_name("copy")
    shutil.copytree(tree, copy)
    assert builds(copy) == 1
    assert "venv --clear" in (copy / "calls").read_text()
    assert builds(tree) == 0


def test_lint_names_files_that_are_not_formatted(tree: Path) -> None:
    builds(tree)
    _script(tree / ".venv/bin/ruff", "#!/bin/sh\n")
    found = "fused_ops/a.cpp:7:3: error: code should be clang-formatted [-Wclang]\\nint  a;\\n   ^"
    _script(tree / ".venv/bin/clang-format", f"#!/bin/sh\nprintf '{found}\\n' >&2; exit 1\n")
    done = make(tree, "lint")
    assert done.returncode != 0
    assert done.stdout == "fused_ops/a.cpp:7: not formatted\nrun: make format\n"


def test_lint_shows_another_fault_of_clang_format_whole(tree: Path) -> None:
    builds(tree)
    _script(tree / ".venv/bin/ruff", "#!/bin/sh\n")
    _script(tree / ".venv/bin/clang-format", "#!/bin/sh\necho no such option >&2; exit 1\n")
    done = make(tree, "lint")
    assert done.returncode != 0
    assert done.stdout == "no such option\n"


def test_build_tools_include_the_build_requirements() -> None:
    """Without build isolation, pip does not install them itself."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    tools = next(line for line in lines if line.startswith("BUILD_TOOLS := "))
    project = (ROOT / "pyproject.toml").read_text().splitlines()
    requires = next(line for line in project if line.startswith("requires = "))
    for required in requires.split('"')[1::2]:
        assert f"'{required}'" in tools
