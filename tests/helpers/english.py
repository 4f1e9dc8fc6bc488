"""Find phrases that read badly: `python -m tests.helpers.english [PATH ...]`.

`make lint` runs it too. It checks docstrings, comments and texts of Python, comments and texts of
C++, and Markdown outside of code. A phrase in backquotes is quoted, so it is not checked.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("qgraph", "transforms", "cli", "fused_ops", "tests", "benchmarks", "examples", "docs")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
QUOTED = (Path(__file__), ROOT / "tests/test_english.py")  # they hold the phrases


@dataclass(frozen=True)
class Phrase:
    """A phrase to avoid.

    name     name in the report
    pattern  regular expression; `^` is the start of a docstring where `docstring` is set
    better   advice on what to write
    """

    name: str
    pattern: str
    better: str
    docstring: bool = False


COMPARED = "longer|more|less|larger|smaller|greater|farther|better|worse|slower|faster|different"
PHRASES = (
    Phrase(
        "docstring begins with a question word or preposition",
        r"^(Of|For|What|Who|Whose|Whom|Where)\b",
        "begin with the verb or with the thing itself",
        docstring=True,
    ),
    Phrase("sentence begins with Of", r"[.!?:;] Of (?!course)", "begin with the subject"),
    Phrase(
        "is no X",
        rf"(?<![Tt]here )\b(is|are|was|were) no\b(?! ({COMPARED})\b)",
        "is not a X, or: has no X",
    ),
    Phrase(
        "is not there", r"\b(is|are|was|were) not there\b", "does not exist, is missing, unknown"
    ),
    Phrase("is none", r"(?<![Tt]here )\b(is|are|was|were) none\b", "name the fault: is not finite"),
    Phrase("as X has it", r"\b[Aa]s [\w'`]+( \w+)? (has|have|had) it\b", "as in X"),
    Phrase("by itself", r"\bby (itself|themselves)\b", "automatically, alone, separately"),
    Phrase("code says", r"\b(says|tells)\b", "states, shows, reports, describes"),
    Phrase("of one's own", r"\bone's own\b", "custom, your own"),
    Phrase("nobody", r"\b(nobody|somebody|no one)\b", "name the caller, the code or the user"),
    Phrase("but for", r"\bbut for\b", "except"),
    Phrase("anew", r"\banew\b", "again"),
    Phrase("not known", r"\b(is|are) not known\b|\bknows no\b", "unknown, does not support"),
    Phrase("old word", r"\b(mourned|hence|thus|lest|thereof|whereof|whence)\b", "a usual word"),
    Phrase("file that lies", r"\b[Ff]iles? (that|may) lies?\b", "is damaged, wrong, inconsistent"),
    Phrase("what there is", r"\bWhat there is\b", "name the thing"),
    Phrase(
        "process of its own", r"\bprocess(es)? of (its|their) own\b", "its own process, separate"
    ),
    Phrase("one a tensor", r"\bscales? an? (tensor|channel|layer)\b", "one scale per tensor"),
    Phrase("without a word", r"\bwithout a word\b", "silently"),
    Phrase("at hand", r"\bat hand\b", "available"),
    Phrase("likewise", r"\b[Ll]ikewise\b", "repeat the noun, or: in the same way"),
    Phrase("there twice", r"\b(is|are) there twice\b", "occurs twice"),
    Phrase("fed", r"\b(is|are) (not )?fed\b", "has no data, the data is"),
    Phrase("has no word for", r"\bno word for\b", "does not support"),
    Phrase("not understood", r"\bnot understood\b", "not supported"),
    Phrase("cut it off", r"\b[Cc]ut (it|them) off\b", "exclude it"),
    Phrase("so many at once", r"\b[Ss]o (many|much|long) [\w ]*(at once|\.$)", "the number of"),
    Phrase("goes on", r"\b(goes|go|going) on\b", "continues"),
    Phrase("a wrong one", r"\b[Aa] wrong one\b", "name the thing"),
    Phrase("decides as", r"\bdecides? as\b", "gives the same class as"),
    Phrase("whoever", r"\b[Ww]hoever\b", "the program, the user"),
    Phrase("layers hurt", r"\blayers? hurts?\b", "costs accuracy"),
    Phrase("will do", r"\bwill do\b|\bdoes not do\b(?! (a|the|what)\b)", "is enough"),
)


@dataclass(frozen=True)
class Finding:
    """One phrase at one place."""

    path: Path
    line: int
    phrase: Phrase
    found: str

    def __str__(self) -> str:
        where = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{where}:{self.line}: {self.phrase.name}: {self.found!r}; {self.phrase.better}"


@dataclass(frozen=True)
class Piece:
    """Text that people read, beginning at a line of a file."""

    line: int
    text: str
    docstring: bool = False


def python_pieces(source: str) -> Iterator[Piece]:
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            value = node.body[0].value  # type: ignore[attr-defined]
            docstrings.add(id(value))
            yield Piece(value.lineno, value.value, docstring=True)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings and " " in text:
                yield Piece(node.lineno, text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Piece(token.start[0], token.string)


def native_pieces(source: str) -> Iterator[Piece]:
    for found in re.finditer(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', source, re.S):
        yield Piece(source.count("\n", 0, found.start()) + 1, found.group())


def page_pieces(source: str) -> Iterator[Piece]:
    fenced = False
    for line, text in enumerate(source.splitlines(), 1):
        fenced ^= text.lstrip().startswith("```")
        if not fenced and not text.startswith("    "):
            yield Piece(line, text)


PIECES = {".py": python_pieces, ".md": page_pieces}
PIECES |= dict.fromkeys((".cpp", ".cu", ".h"), native_pieces)


def findings(path: Path) -> Iterator[Finding]:
    """Phrases to avoid in one file, in the order of its text."""
    for piece in PIECES[path.suffix](path.read_text()):
        text = re.sub(r"`[^`\n]*`", lambda quoted: "_" * len(quoted.group()), piece.text)
        for phrase in PHRASES:
            if phrase.docstring and not piece.docstring:
                continue
            for found in re.finditer(phrase.pattern, text):
                line = piece.line + text.count("\n", 0, found.start())
                around = text[max(0, found.start() - 20) : found.end() + 25].replace("\n", " ")
                yield Finding(path, line, phrase, around.strip())


def sources() -> Iterator[Path]:
    """All checked files of the repository; links are not followed."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            inside = [path, *path.parents][: len(path.relative_to(ROOT).parts)]
            linked = any(part.is_symlink() for part in inside)
            if path.suffix in PIECES and path.is_file() and not linked and path not in QUOTED:
                yield path
    yield from (ROOT / page for page in PAGES)


def main(arguments: list[str]) -> int:
    paths = [Path(argument).resolve() for argument in arguments] or list(sources())
    found = [finding for path in paths for finding in findings(path)]
    for finding in found:
        print(finding)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
