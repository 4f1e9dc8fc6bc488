"""Run the commands on pages, and write what they print below them.

Usage: python docs/builder/sessions.py docs/tutorial.md ...

A page is run from top to bottom in a new folder, in which `examples` is that of the repository.
A block with a title, such as ```python title="train.py"```, is written to that file. In a block
```console``` each line that begins with `$ ` is a command, and the lines below it are its output.
Four comments of HTML have a meaning:

<!-- needs: PROGRAM ... -->         the page needs these programs
<!-- needs modules: NAME ... -->    the page needs these Python modules
<!-- shows: first 8, last 3 -->     lines of output that the next block shows
<!-- runs: COMMAND -->              runs a command that readers do not see
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDS = re.compile(r"<!-- needs: (.*?) -->")
NEEDS_MODULES = re.compile(r"<!-- needs modules: (.*?) -->")
PART = re.compile(
    r"<!-- runs: (?P<hidden>.*?) -->"
    r"|(?:<!-- shows: first (?P<first>\d+), last (?P<last>\d+) -->\n+)?"
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
VARIABLES = {"COLUMNS": "96", "NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class SessionError(Exception):
    """A command on a page failed."""


@dataclass(frozen=True)
class Session:
    """The folder that a page is run in."""

    folder: Path

    def output(self, command: str) -> str:
        """Run a command and return its standard output."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, **VARIABLES, "PATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SessionError(f"$ {command}\n{done.stdout}{done.stderr}")
        if str(self.folder) in done.stdout:
            raise SessionError(f"$ {command}\nprints the folder that it runs in: {done.stdout}")
        return done.stdout

    def part(self, match: re.Match[str]) -> str:
        """A block of the page, after it was run."""
        if match["hidden"]:
            self.output(match["hidden"])
        elif match["title"]:
            (self.folder / match["title"]).write_text(match["body"])
        elif match["kind"] == "console":
            limits = (int(match["first"]), int(match["last"])) if match["first"] else None
            body = "".join(self._shown(command, limits) for command in commands(match["body"]))
            return match[0].replace(f"```console\n{match['body']}", f"```console\n{body}")
        return match[0]

    def _shown(self, command: str, limits: tuple[int, int] | None) -> str:
        lines = [line.rstrip() for line in self.output(command).strip("\n").splitlines()]
        if limits and len(lines) > sum(limits) + 1:
            first, last = limits
            lines = [*lines[:first], "...", *lines[len(lines) - last :]]
            lines = [line for i, line in enumerate(lines) if line or lines[i - 1] != "..."]
        continued = command.replace("\n", "\n> ")
        return "\n".join([f"$ {continued}", *lines]) + "\n"


def commands(body: str) -> list[str]:
    """The commands of a block; one continues in lines that begin with `> `."""
    found = re.findall(r"^\$ (.*\n(?:> .*\n)*)", body, re.MULTILINE)
    return [command.replace("\n> ", "\n").rstrip("\n") for command in found]


def run_page(text: str) -> str:
    """The text of a page with the output of its commands."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        return PART.sub(Session(Path(folder)).part, text)


def missing(text: str) -> list[str]:
    """The programs and modules that a page needs and this machine lacks."""
    programs, modules = (" ".join(kind.findall(text)).split() for kind in (NEEDS, NEEDS_MODULES))
    absent = [name for name in programs if shutil.which(name) is None]
    return absent + [name for name in modules if importlib.util.find_spec(name) is None]


def main(pages: Sequence[str]) -> None:
    for page in map(Path, pages):
        if absent := missing(page.read_text("utf-8")):
            print(f"{page}: left as it is, missing: {', '.join(absent)}")
            continue
        page.write_text(run_page(page.read_text("utf-8")), "utf-8")
        print(f"{page}: commands run, output written")


if __name__ == "__main__":
    main(sys.argv[1:])
