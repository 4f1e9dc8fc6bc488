"""Docstrings of public names: their sections, and their examples, which run in a directory."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Examples")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "files.py"


def digits_files(folders: pytest.TempPathFactory) -> Path:
    """A directory with the files of the digits network, in which examples run."""
    pytest.importorskip("sklearn")
    folder = folders.mktemp("digits")
    subprocess.run([sys.executable, DIGITS, folder], check=True)
    return folder


def sections(text: str | None) -> set[str]:
    """The sections of a docstring."""
    lines = {line.rstrip() for line in (text or "").splitlines()}
    return {name for name in SECTIONS if f"{name}:" in lines}


def described(text: str, section: str) -> list[str]:
    """The names that a section of a docstring describes, one for each entry.

    The reference of the site has a row for each entry, with the type and default of its name.
    """
    names = []
    _, _, rest = text.partition(f"{section}:\n")
    for line in rest.partition("\n\n")[0].splitlines():
        if line.startswith("    ") and line[4] != " ":
            names.append(line.partition(":")[0].strip())
    return sorted(names)


def function_faults(function) -> list[str]:
    """Faults of the docstring of a function: parameters, results or an example that it lacks.

    Methods may do without an example, since their class has one.
    """
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    parameters = sorted(n for n in signature.parameters if n not in ("self", "cls"))
    given = described(text, "Args")
    found = [] if text and (text[0].isupper() or text[0] == "`") else ["no sentence at the start"]
    if given != parameters:
        found.append(f"Args describes {given}, the parameters are {parameters}")
    if ("Returns" in sections(text)) != (signature.return_annotation not in (None, "None")):
        found.append("Returns is missing, or nothing is returned")
    method = "." in function.__qualname__
    return found if method or has_example(function) else [*found, "no Examples"]


def class_faults(kind: type) -> list[str]:
    """The faults of a class's docstring: missing fields, parameters or example.

    An exception without parameters of its own needs no example.
    """
    text = inspect.getdoc(kind) or ""
    found = [] if text and text[0].isupper() else ["no sentence at the start"]
    if dataclasses.is_dataclass(kind):
        # The declaration of a setting describes it, which help of the command line shows too.
        fields = {
            f.name
            for f in dataclasses.fields(kind)
            if "setting" not in f.metadata and not f.name.startswith("_")
        }
        annotated = [vars(base).get("__annotations__", {}) for base in kind.__mro__]
        classes = {n for each in annotated for n, v in each.items() if "ClassVar" in str(v)}
        given = set(described(text, "Attributes"))
        if not fields <= given <= fields | classes:
            found.append(f"Attributes describes {sorted(given)}, fields: {sorted(fields)}")
    elif "__init__" in vars(kind) and not getattr(kind, "_is_protocol", False):
        parameters = sorted(inspect.signature(kind).parameters)
        if described(text, "Args") != parameters:
            found.append(f"Args describes {described(text, 'Args')}, parameters: {parameters}")
    for name, value in vars(kind).items():
        if isinstance(value, property) and not inspect.getdoc(value):
            found.append(f"{name} has no docstring")
    raised = issubclass(kind, Exception) and "__init__" not in vars(kind)
    return found if raised or has_example(kind) else [*found, "no Examples"]


def has_example(value: object) -> bool:
    """Whether a docstring has an example."""
    return "Examples" in sections(inspect.getdoc(value))


def public_names(module: ModuleType) -> list[str]:
    """Names of the functions and classes of a module, and of their methods: `Name.method`."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
    found = []
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value):
            found += [name, *(f"{name}.{method}" for method in methods(value))]
        elif inspect.isfunction(value):
            found.append(name)
    return found


def methods(kind: type) -> list[str]:
    """The public methods that a class defines; a function that is the default of a field is not
    one.
    """
    fields = getattr(kind, "__dataclass_fields__", {})
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_")
        and name not in fields
        and callable(getattr(value, "__func__", value))
    ]


def value_of(module: ModuleType, name: str) -> object:
    """The value of a dotted name; the module for an empty one."""
    value: object = module
    for part in name.split(".") if name else ():
        value = getattr(value, part)
    return value


def failed_examples(value: object, names: Mapping[str, object]) -> str:
    """Run the examples of a docstring, and return the differences from what they show."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = parser.get_doctest(inspect.getdoc(value) or "", dict(names), "example", None, None)
    said: list[str] = []
    runner.run(found, out=said.append)
    return "".join(said) if found.examples else "the docstring has no example"
