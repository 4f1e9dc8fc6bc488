"""C among the forms of a quantized network."""

import subprocess
from pathlib import Path

import pytest

from qgraph.backends.c import c_form
from qgraph.backends.c.c_form import compiler
from qgraph.errors import UnsupportedError
from qgraph.exports import export
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
def test_a_wrong_weight_is_found(digits: Path, monkeypatch) -> None:
    from qgraph.backends.c import c_form

    whole = c_form.write_program

    def altered(program, folder, between):
        unit = whole(program, folder, between)
        source = folder / f"{unit.net}.c"
        source.write_text(source.read_text().replace("sums[o] += code *", "sums[o] += 2 * code *"))
        return unit

    monkeypatch.setattr(c_form, "write_program", altered)
    assert not verify(digits, forms=["c"]).equal


def test_a_missing_compiler_names_those_that_will_do(monkeypatch) -> None:
    monkeypatch.setattr(c_form.shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedError, match="no C compiler was found") as raised:
        c_form.compiler()
    assert raised.value.hint == "install one of cc, gcc, clang"
