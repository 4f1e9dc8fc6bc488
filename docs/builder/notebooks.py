"""Run the notebooks of the documentation and store what they print.

Usage: python docs/builder/notebooks.py docs/notebooks/quantize.ipynb ...

Only results are stored: no times, no notices of libraries, no folders of this machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TIMEOUT = 1200  # seconds for a cell
NOTICES = ("INFO:tensorflow:", "WARNING:tensorflow:", "WARNING: AutoGraph")


def execute(path: Path) -> Any:
    """The notebook with new results; raises nbclient's CellExecutionError."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=TIMEOUT, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_notice(output)]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def _is_notice(output: Any) -> bool:
    return output.get("name") == "stderr" or output.get("text", "").startswith(NOTICES)


def main(paths: Sequence[str]) -> None:
    for path in map(Path, paths):
        nbformat.write(execute(path), path)
        print(f"{path}: run, results stored")


if __name__ == "__main__":
    main(sys.argv[1:])
