"""The types of the native extension, and a digest of them that both sides contain.

The extension contains modules. A stub file cannot express that, so modules are classes there, whose
functions are static methods: `type[_native.engine]` is then the type of a module.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import textwrap
from pathlib import Path
from types import ModuleType

from qgraph import kernels

STUBS = Path(__file__).parents[2] / "qgraph" / "_native.pyi"
HEAD = "# Made from the native extension by `make golden`. Do not edit: a test compares them.\n"


def native_stubs() -> bytes:
    """The stubs of the extension. The existing file if the extension or nanobind is missing."""
    if not kernels.backend().startswith("native") or importlib.util.find_spec("nanobind") is None:
        return STUBS.read_bytes()
    imports: set[str] = set()
    body = _module(importlib.import_module("qgraph._native"), imports)
    return "\n".join([HEAD, *sorted(imports), "", body, ""]).encode()


def _module(module: ModuleType, imports: set[str]) -> str:
    """The text of a module, with inner modules as classes; `imports` gets its imports."""
    from nanobind.stubgen import StubGen

    generator = StubGen(module, include_docstrings=False, max_expr_length=0)
    generator.put(module)
    text = generator.get()
    lines, tree = text.splitlines(), ast.parse(text)
    of_imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in of_imports:
        if not ast.unparse(node).startswith("from qgraph"):
            imports.add(ast.unparse(node))
    body = "\n".join(lines[of_imports[-1].end_lineno :] if of_imports else lines).strip()
    inner = [part for part in vars(module).values() if isinstance(part, ModuleType)]
    return "\n\n".join([body, *(_class(part, imports) for part in inner)])


def _class(module: ModuleType, imports: set[str]) -> str:
    text = _module(module, imports)
    static = re.sub("^def ", "@staticmethod\ndef ", text, flags=re.MULTILINE)
    return f"class {module.__name__.rpartition('.')[2]}:\n{textwrap.indent(static, '    ')}"


def _interface() -> str:
    return hashlib.sha256(native_stubs()).hexdigest()[:16]


def interface_header() -> bytes:
    return (
        "// Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.\n"
        f'#pragma once\n\nconstexpr char kInterface[] = "{_interface()}";\n'
    ).encode()


def interface_module() -> bytes:
    return (
        '"""The interface that the native extension has to have: a digest of its types.\n\n'
        "Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.\n"
        f'"""\n\nINTERFACE = "{_interface()}"\n'
    ).encode()
