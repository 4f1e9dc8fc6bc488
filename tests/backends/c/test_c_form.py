"""C among the forms of a quantized network."""

import ctypes
import re
import subprocess
import textwrap
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.c import c_form
from qgraph.backends.c.c_form import STRICT, compiler
from qgraph.errors import UnsupportedError
from qgraph.exports import export
from qgraph.program import run
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler


@needs_compiler
def test_every_tensor_of_digits(digits: Path) -> None:
    found = verify(digits, forms=["c"])
    tally = found.compared.tallies["c"]
    steps = {step.output for step in load_network(digits).program.steps}
    assert found.equal and tally.wrong == 0 and not found.refused
    assert tally.tensors >= steps
    assert tally.elements > 10_000


@needs_compiler
def test_an_export_tests_itself(digits: Path, tmp_path: Path) -> None:
    """The commands of the documentation compile an export and check it on the sample beside it."""
    export(load_network(digits), "c", tmp_path / "c")
    net = next((tmp_path / "c").glob("*.h")).stem
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"]
    files = [f"{net}.c", f"{net}_test.c"]
    subprocess.run([compiler(), *flags, *files, "-o", "test"], cwd=tmp_path / "c", check=True)
    command = ["./test", f"{net}_inputs.bin", "--check", f"{net}_outputs.bin"]
    done = subprocess.run(command, cwd=tmp_path / "c", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "PASS: 1 samples\n")


@needs_compiler
def test_the_lines_for_firmware_in_the_documentation_give_the_class(digits, tmp_path) -> None:
    page = (Path(__file__).parents[3] / "docs/exports.md").read_text("utf-8")
    start = page.index('    #include "NET.h"')
    lines = textwrap.dedent(page[start : page.index("\nThe [tutorial]", start)])
    network = load_network(digits)
    export(network, "c", tmp_path / "c")
    (header,) = (tmp_path / "c").glob("*.h")
    entry, scores = re.findall(r"#define (\w+)_SIZE", header.read_text())
    for name, held in {"NET_IMAGE": entry, "NET_SCORES": scores, "NET": header.stem}.items():
        lines = lines.replace(name, held)
    (tmp_path / "c" / "firmware.c").write_text(lines)
    command = [compiler(), *STRICT, "-O2", "-fPIC", "-shared", "firmware.c", f"{header.stem}.c"]
    subprocess.run([*command, "-o", "firmware.so"], cwd=tmp_path / "c", check=True)
    class_of = ctypes.CDLL(str(tmp_path / "c" / "firmware.so")).class_of
    codes = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 1), np.uint8)
    program = network.program
    (wanted,) = run(program, {program.entries[0].tensor: codes}, program.exits).values()
    assert [class_of(image.tobytes()) for image in codes] == wanted.argmax(-1).tolist()
    assert len({*wanted.argmax(-1).tolist()}) > 1


@needs_compiler
def test_a_wrong_weight_is_found(digits: Path, monkeypatch) -> None:
    from qgraph.backends.c import c_form

    whole = c_form.write_program

    def altered(program, folder, between):
        unit = whole(program, folder, between)
        source = folder / f"{unit.net}.c"
        source.write_text(source.read_text().replace("a += code *", "a += 2 * code *"))
        return unit

    monkeypatch.setattr(c_form, "write_program", altered)
    assert not verify(digits, forms=["c"]).equal


def test_a_missing_compiler_names_those_that_will_do(monkeypatch) -> None:
    monkeypatch.setattr(c_form.shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedError, match="no C compiler was found") as raised:
        c_form.compiler()
    assert raised.value.hint == "install one of cc, gcc, clang"
