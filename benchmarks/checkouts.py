"""Run the code of a checkout that is not the installed one: another commit, or a copy.

An editable install finds `qgraph` by an import hook, which has precedence over `PYTHONPATH` and the
current directory. A process that runs the code of another checkout must remove such hooks.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOOKS = ("_editable", "__editable__")  # modules of the hooks of scikit-build-core and of setuptools


def remove_editable_hooks() -> None:
    """Remove the import hooks of editable installs from this process."""
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not str(getattr(finder, "__module__", "")).startswith(HOOKS)
    ]


# Python runs `sitecustomize` at its start, after the files that install the hooks.
SITE = f"""import sys
HOOKS = {HOOKS!r}
{inspect.getsource(remove_editable_hooks)}
remove_editable_hooks()
"""


@contextmanager
def variables_of(checkout: Path) -> Iterator[dict[str, str]]:
    """Environment variables for processes that import `qgraph` from `checkout`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(SITE, "utf-8")
        paths = os.pathsep.join([str(checkout), folder])
        yield {"PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}


def copy_native_libraries(checkout: Path) -> None:
    """Give a copy of this checkout the compiled libraries that this process uses, if any."""
    try:
        from qgraph import _native
    except ImportError:
        return
    for library in Path(_native.__file__).parent.glob("*.so"):
        if not (checkout / "qgraph" / library.name).exists():
            shutil.copy(library, checkout / "qgraph")
