"""Standard streams that fail, and the exit codes that say so."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from qgraph.errors import OutputError, PipeError, StreamError, UsageError, exit_codes
from tests.helpers.cli import run

DOCS = Path(__file__).parents[2] / "docs" / "exit_codes.md"
QGRAPH = shlex.join([sys.executable, "-m", "qgraph"])


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command of a shell that fails as its first part does."""
    script = f"set -o pipefail; {command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("verb", "redirection", "said"),
    [
        ("passes", ">&-", "error: standard output is closed"),
        ("--version", ">/dev/full", "error: stdout: cannot be written: No space left on device"),
        ("passes --json", ">/dev/full 2>/dev/full", ""),
        ("passes", ">&- 2>&- <&-", ""),
    ],
)
def test_standard_output_that_cannot_be_written(verb, redirection, said) -> None:
    done = shell(f"{QGRAPH} {verb} {redirection}")
    assert done.returncode == StreamError.exit_code
    assert done.stderr.startswith(said) if said else not done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_reader_that_has_gone_is_no_error_to_speak_of() -> None:
    done = shell(f"{QGRAPH} passes --json | true")
    assert (done.returncode, done.stderr) == (PipeError.exit_code, "")
    assert shell(f"{QGRAPH} passes | cat > /dev/null").returncode == 0


def test_errors_that_cannot_be_printed_have_their_exit_codes() -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        assert shell(f"{QGRAPH} nonsense {redirection}").returncode == UsageError.exit_code


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path, model, samples) -> None:
    out = tmp_path / "out"
    command = f"{QGRAPH} quantize {model} -c {samples} -o {out} --effort plain"
    assert shell(f"{command} >&-").returncode == StreamError.exit_code
    assert not out.exists()
    assert shell(f"{command} >/dev/full 2>&-").returncode == StreamError.exit_code
    assert run("verify", out, "-f", "engine").code == 0


def test_a_full_disk_is_not_an_internal_error(monkeypatch, model) -> None:
    def full(*_):
        raise OSError(28, "No space left on device", "/tmp/work")

    monkeypatch.setattr("qgraph.passes.PassManager.run", full)
    done = run("inspect", model)
    assert done.code == OutputError.exit_code
    assert done.err == "error: /tmp/work: cannot be written: No space left on device\n"


def test_the_documentation_lists_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    assert {int(code): text for code, text in rows} == exit_codes()


def test_the_help_names_every_exit_code() -> None:
    text = " ".join(run("--help").out.split())
    listed = re.search(r"Exit codes: (.*) \(docs/exit_codes.md\)", text)
    assert listed is not None
    found = [int(entry.split()[0]) for entry in listed[1].split(", ")]
    assert found == list(exit_codes())


# -- paths ----------------------------------------------------------------------------------


def test_paths_that_are_not_utf_8(model, samples, tmp_path) -> None:
    folder = tmp_path / "r\udce9seau"
    try:
        folder.mkdir()
    except (OSError, UnicodeEncodeError):
        pytest.skip("the file system takes UTF-8 names only")
    net, data, out = folder / "n\udce9t.pb", folder / "\udce9.npz", folder / "\udce9"
    net.write_bytes(model.read_bytes())
    data.write_bytes(samples.read_bytes())
    verbs = [
        ("inspect", net, "--json"),
        ("quantize", net, "-c", data, "-o", out, "--effort", "plain"),
        ("quantize", net, "-c", data, "-o", out, "--effort", "plain", "--force", "--json"),
        ("export", out, "-f", "tensorflow", "-o", folder / "t\udce9"),
        (
            "quantize",
            folder / "t\udce9" / "saved_model",
            "-c",
            data,
            "-o",
            folder / "b",
            "--effort",
            "plain",
        ),
        ("report", out),
        ("verify", out, "-f", "tensorflow", "-f", "engine", "-f", "c"),
        ("verify", out, "--against", out / "tensors.npz"),
        ("run", out, "-i", data, "-o", folder / "out\udce9.npz"),
        ("export", out, "-f", "c", "-o", folder / "c\udce9"),
    ]
    for verb in verbs:
        done = run(*verb)
        assert done.code == 0, (verb, done.err)
    for missing in ("inspect", "verify", "report"):
        done = run(missing, folder / "no\udce9")
        assert done.code == 3 and "Traceback" not in done.err
    command = [os.fsencode(part) for part in (sys.executable, "-m", "qgraph", "inspect", net)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"n\xef\xbf\xbdt" in done.stdout or b"\\udce9" in done.stdout
