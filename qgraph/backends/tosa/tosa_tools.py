"""The tools of the package `tosa-tools`: found on the machine, and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.ir.types import Array

REFERENCE_MODEL, VALIDATOR = "tosa_reference_model", "tosa-opt"
TARGET = "profiles=pro_int extensions=int16,doubleround specification_version=1.0 level=8k"
FOLDER_VARIABLE = "TOSA_TOOLS_BIN_DIR"  # also read by tosa-tools
HINT = (
    "pipx install tosa-tools, or set TOSA_TOOLS_BIN_DIR to the folder of its programs; it needs an "
    "environment of its own, because it pins older versions of numpy and flatbuffers"
)


def find_tool(name: str) -> str | None:
    """The path of a tool, in the folder that TOSA_TOOLS_BIN_DIR names or in PATH."""
    return shutil.which(name, path=os.environ.get(FOLDER_VARIABLE)) or shutil.which(name)


def required_reference_model() -> str:
    """The path of the reference model. Raises UnsupportedError if it is not installed."""
    tool = find_tool(REFERENCE_MODEL)
    if tool is None:
        raise UnsupportedError("tosa-tools was not found", hint=HINT)
    return tool


def run_tool(
    command: Sequence[str], folder: str | Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a tool, without TOSA_TOOLS_BIN_DIR.

    The scripts of tosa-tools run what that folder has. If it is the folder of the scripts
    themselves, each script would start itself again, without end.
    """
    there = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    return subprocess.run(
        command, cwd=folder, env=there, capture_output=True, text=True, check=False
    )


def reference_model_title() -> str:
    """The reference model with its version. Raises UnsupportedError if it is not installed."""
    said = run_tool([required_reference_model(), "--version"]).stdout
    return f"TOSA reference model {said.removeprefix('Model version ').strip()}".strip()


def validate(file: Path) -> None:
    """Check a file with `tosa-opt` for the profile of integers of TOSA 1.0, if it is installed.

    Raises ExactnessError with its messages.
    """
    tool = find_tool(VALIDATOR)
    if tool is None:
        return
    command = [tool, f"--tosa-deserialize=tosa-flatbuffer-filename={file.name}"]
    command += [f"--tosa-attach-target={TARGET}", "--tosa-validate=strict-op-spec-alignment"]
    command += [os.devnull, "-o", os.devnull]
    done = run_tool(command, file.parent)
    if done.returncode:
        raise ExactnessError(
            f"{VALIDATOR} refuses the file", node=str(file), hint=done.stderr.strip()[-2000:]
        )


def reference_model(
    file: Path, inputs: Mapping[str, Array], outputs: Sequence[str]
) -> dict[str, Array]:
    """Run a file in the TOSA reference model, at level 8K.

    Args:
        file: A `.tosa` file.
        inputs: Stored numbers of each of its inputs, by name.
        outputs: Names of its outputs.

    Returns:
        The stored numbers of its outputs, by name.

    Raises:
        UnsupportedError: The reference model is not installed.
        ExactnessError: It refuses the file, or fails.
    """
    tool = required_reference_model()
    with tempfile.TemporaryDirectory(prefix="qgraph-") as folder:
        given = [f"in{i}.npy" for i in range(len(inputs))]
        made = [f"out{i}.npy" for i in range(len(outputs))]
        for name, array in zip(given, inputs.values(), strict=True):
            np.save(Path(folder, name), array)
        description, linked = Path(folder, "test.json"), Path(folder, "network.tosa")
        linked.symlink_to(file.resolve())
        facts = {
            "tosa_file": linked.name,
            "ifm_name": [*inputs],
            "ifm_file": given,
            "ofm_name": [*outputs],
            "ofm_file": made,
            "expected_failure": False,
        }
        description.write_text(json.dumps(facts), "utf-8")
        command = [tool, "--test_desc", str(description), "--tosa_level", "EIGHTK"]
        done = run_tool(command, folder)
        if done.returncode or not all(Path(folder, name).is_file() for name in made):
            said = f"{done.stdout}{done.stderr}".partition("set print thread-events")[0]  # gdb's
            raise ExactnessError(
                "the TOSA reference model failed", node=str(file), hint=said.strip()[-2000:]
            )
        return {o: np.load(Path(folder, name)) for o, name in zip(outputs, made, strict=True)}
