"""Remove each place of one op in turn: ``python -m benchmarks.one_op [abs]``.

An op is named in definitions, in tables of targets and importers, and in `switch`es of the engine.
Each of these places is removed once, in a copy of the checkout. Then the tests that cover all ops
run (or the compiler, for C++), and a small network with the op is quantized and compared in every
form (`one_op_network.py`). The table shows what a developer and a user see. A place fails if no
test fails, if an error does not name the op, if Python crashes, or if a form differs from the
reference. Without a trait, another network may result, in which all forms agree; the tests detect
that.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.checkouts import copy_native_libraries, variables_of
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("qgraph", "transforms", "cli")
COPIED = ("qgraph", "transforms", "cli", "tests", "benchmarks", "fused_ops", "docs", "examples")
WALKS = (
    "tests/ops",
    "tests/ir/test_definitions.py",
    "tests/ir/test_ops.py",
    "tests/program/test_ops.py",
    "tests/backends/test_lowerings.py",
    "tests/frontends/test_import_tables.py",
    "tests/test_golden.py",
)
GENERATED = ("fused_ops/engine/ops.h",)
# Keys are names in file formats.
IMPORTS = ("qgraph/frontends/onnx/ops/", "qgraph/frontends/tf/ops/")


@dataclass(frozen=True)
class Place:
    """Characters begin..end of a file, which are its whole entry for the op at this place."""

    path: str
    line: int
    begin: int
    end: int

    def removed(self, text: str) -> str:
        return text[: self.begin] + text[self.end :]


@dataclass(frozen=True)
class Outcome:
    developer: str  # the message of the tests or of the compiler
    user: str  # the message for a user of the op
    sound: bool


def main(
    op: Annotated[str, typer.Argument(help="Op of the graph and of the integer program.")] = "abs",
    only: Annotated[str, typer.Option(help="Only places whose path contains this.")] = "",
    json_file: JsonFile = None,
) -> None:
    """Print a line for each place, and exit with 1 if a place fails."""
    places = [p for p in [*_python_places(op), *_native_places(op)] if only in p.path]
    files = sorted({place.path for place in places})
    print(f"`{op}` has {len(places)} places in {len(files)} files: {', '.join(files)}")
    columns = ("place", "developer", "user", "verdict")
    table = Table(f"Without one place of `{op}`", dict.fromkeys(columns, ""))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        _copy(copy)
        print(f"with all places: {_user_message(copy, op)}")
        for place in places:
            outcome = _without(place, copy, op)
            failed |= not outcome.sound
            verdict = "" if outcome.sound else "FAIL"
            table.add(f"{place.path}:{place.line}", outcome.developer, outcome.user, verdict)
            print(
                f"{place.path}:{place.line} {verdict}\n    {outcome.developer}\n    {outcome.user}"
            )
    report("benchmarks.one_op", [table], json_file)
    sys.exit(failed)


# -- places ----------------------------------------------------------------------------------------


def _python_places(op: str) -> Iterator[Place]:
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] in (("qgraph", "cli"), ("qgraph", "transforms")):
                continue  # links
            yield from _entries(str(relative), path.read_text("utf-8"), op)


def _entries(path: str, text: str, op: str) -> Iterator[Place]:
    """Elements of tables: a definition, a pair whose key is the op, or the op's name in a list.

    A key of an import table is the op's name in a format: `LeakyRelu` for `leaky_relu`.
    """
    imports, starts = path.startswith(IMPORTS), [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()

    def place(first: ast.expr | ast.keyword, last: ast.expr) -> Place:
        begin = len(raw[: starts[first.lineno - 1] + first.col_offset].decode())
        assert last.end_lineno is not None and last.end_col_offset is not None
        end = len(raw[: starts[last.end_lineno - 1] + last.end_col_offset].decode())
        comma = re.compile(r"\s*,").match(text, end)
        return Place(path, first.lineno, begin, comma.end() if comma else end)

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and (_is(key, op) or (imports and _is_same_name(key, op))):
                    yield place(key, value)
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            for element in node.elts:
                defined = (
                    isinstance(element, ast.Call) and element.args and _is(element.args[0], op)
                )
                if _is(element, op) or defined:
                    yield place(element, element)
                if defined and isinstance(element, ast.Call):
                    for keyword in element.keywords:  # optional parts of a definition
                        yield place(keyword, keyword.value)


def _is(node: ast.expr, op: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == op


def _is_same_name(node: ast.expr, op: str) -> bool:
    name = node.value if isinstance(node, ast.Constant) else None
    return isinstance(name, str) and name.lower() == op.replace("_", "")


def _native_places(op: str) -> Iterator[Place]:
    case = re.compile(rf"^ *case \w+::{op}:\n(?:(?! *(?:case |default|\}}\n)).*\n)*", re.MULTILINE)
    for path in sorted((ROOT / "fused_ops/engine").rglob("*")):
        relative = str(path.relative_to(ROOT))
        if path.suffix not in (".cpp", ".h") or relative in GENERATED:
            continue
        text = path.read_text("utf-8")
        for found in case.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Place(relative, line, found.start(), found.end())


# -- outcomes --------------------------------------------------------------------------------------


def _copy(copy: Path) -> None:
    copy.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for name in (
        "pyproject.toml",
        "README.md",
        "CMakeLists.txt",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
    ):
        shutil.copy(ROOT / name, copy / name)
    copy_native_libraries(copy)


def _without(place: Place, copy: Path, op: str) -> Outcome:
    path = copy / place.path
    text = path.read_text("utf-8")
    path.write_text(place.removed(text), "utf-8")
    try:
        if path.suffix != ".py":
            error = _compiler_error(path, copy, op)
            return Outcome(error or "compiles", "no library is built", bool(error))
        developer, user = _failing_test_message(copy, op), _user_message(copy, op)
        sound = bool(developer) and (user.startswith("equal") or _names(user, op))
        return Outcome(developer or "no test fails", user, sound)
    finally:
        path.write_text(text, "utf-8")


def _names(message: str, op: str) -> bool:
    """Whether a message contains the op's name, in the spelling of the graph or of a format."""
    return op.replace("_", "") in message.replace("_", "").lower()


def _compiler_error(path: Path, copy: Path, op: str) -> str:
    """The first error that names the op, or an empty text."""
    unit = path
    if path.suffix == ".h":
        unit = next(u for u in path.parent.glob("*_plain.cpp") if path.name in u.read_text("utf-8"))
    command = [
        "g++",
        "-std=c++17",
        "-fsyntax-only",
        "-Wall",
        "-Werror=switch",
        "-Ifused_ops",
        str(unit),
    ]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "error" in line and op in line]
    return lines[0].replace(f"{copy}/", "") if lines else ""


def _failing_test_message(copy: Path, op: str) -> str:
    """The message of the first failing test about the op, or an empty text if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *WALKS]
    done = _run(command, copy)
    if done.returncode == 0:
        return ""
    output = done.stdout + done.stderr  # stderr has the error if conftest.py cannot be imported
    lines = [line[1:].strip() for line in output.splitlines() if line.startswith("E ")]
    naming = [line for line in lines if op in line]
    return (naming or [""])[0]


def _user_message(copy: Path, op: str) -> str:
    """The last line that `one_op_network` prints, or the error that ended it."""
    done = _run([sys.executable, "-m", "benchmarks.one_op_network", op], copy)
    if done.returncode:
        lines = done.stderr.splitlines() or ["no message"]
        named = [line for line in lines if line.startswith("qgraph.errors.") and op in line]
        if named:
            return named[0]
        # The "?" marks a crash, which always fails.
        return f"exit code {done.returncode}: {lines[-1]}".replace(op, "?")
    return (done.stdout.splitlines() or [""])[-1]


def _run(command: list[str], copy: Path) -> subprocess.CompletedProcess[str]:
    with variables_of(copy) as variables:
        environment = {**variables, "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)


if __name__ == "__main__":
    typer.run(main)
