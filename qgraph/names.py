"""Spell names of tensors as each target allows them, so that they are legal and unique.

A model's own names may contain anything: slashes, spaces, quotes, newlines, any script. They are
kept in everything that people read or type (manifest, report, `--inputs`, dumps, inputs and outputs
of ONNX models). If a target allows less, its spelling comes from here:

| target | spelling | kept unique by |
|---|---|---|
| TensorFlow nodes | `tensorflow_name` | `Namespace` |
| C identifiers | `identifier` | `c_names` |
| stems of C files and of their macros | `file_stem` | one for each export |
| files of vectors | `identifier` | a number in front |
| SystemVerilog and C texts | `ascii_text`, `literal`, `comment` | not needed |
| entries of `.npz` files | `entry_name`, read by `from_entry_name` | reversible |
| ONNX values | `onnx_name` | `Namespace` |
| the engine | as they are | `Namespace` |

HTML ids and SystemVerilog identifiers are numbers, not made from names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

Spelling = Callable[[str], str]
LONGEST = 40  # characters of a name that are kept in C identifiers and file names


class Namespace:
    """Creates unique names, each spelled as the target allows."""

    def __init__(self, spelling: Spelling = str, taken: Iterable[str] = ()) -> None:
        self._spelling = spelling
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, text: str) -> str:
        """An unused name similar to `text`: its spelling, or the spelling with a number."""
        stem = name = self._spelling(text)
        count = self._counts.get(stem, 0)
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._counts[stem] = count
        self._taken.add(name)
        return name

    def fresh_all(self, texts: Iterable[str]) -> dict[str, str]:
        """A name for each text; legal names do not change."""
        wanted = list(dict.fromkeys(texts))
        legal = [t for t in wanted if self._spelling(t) == t]
        made = {text: self.fresh(text) for text in dict.fromkeys([*legal, *wanted])}
        return {text: made[text] for text in wanted}


# -- TensorFlow -----------------------------------------------------------------------------

_NOT_TENSORFLOW = re.compile(r"[^A-Za-z0-9_./-]")


def tensorflow_name(text: str) -> str:
    """`text` as the name of a node in a GraphDef."""
    name = _NOT_TENSORFLOW.sub("_", text)
    return name if re.match(r"[A-Za-z0-9.]", name) else f"n{name}"


# -- ONNX -----------------------------------------------------------------------------------


def onnx_name(text: str) -> str:
    """`text` as the name of a value: UTF-8, and not empty, because an empty name means no value."""
    return text.encode("utf-8", "replace").decode() or "n"


# -- C --------------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Lower case only, like the identifiers.
KEYWORDS = _words(
    """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await
    co_return co_yield compl concept consteval constexpr constinit const_cast decltype delete
    dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public reinterpret_cast requires static_assert static_cast
    template this thread_local throw true try typeid typename typeof typeof_unqual using virtual
    wchar_t xor xor_eq
    """
)
# Names that some compilers define, or that the generated file itself uses.
USED = _words(
    """
    unix linux i386 errno main memcpy memset memcmp strcmp stdin stdout stderr
    arena at to from row sums window image weights size_t largest
    produced expected tensors tensor sample inputs outputs_file code count words check mode read
    work patch first pixels word_at low_halves high_halves
    multiply_pair multiply_low multiply_high multiply_pairs
    multiply_bytes multiply_two_by_two multiply_one_by_four
    begun put get compare fopen fclose fread fwrite fprintf printf getc eof null
    """
)
HEADERS = _words(
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg
    stdbool stddef stdint stdio stdlib string tgmath time wchar wctype
    """
)
# Suffixes of helpers, patterns of loop variables, the suffix _t of types in the generated file, and
# Arm's intrinsics for vectors.
_TAKEN = re.compile(r".*_([isu](8|16|32|64)|x4)|[dr][0-9]+|u?int.*_t|[a-z]_*|v[a-z0-9]+q(_.*)?")


def identifier(text: str, longest: int = LONGEST) -> str:
    """Lower-case letters, digits and single underscores; the last words of a long name."""
    plain = re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_")
    if len(plain) > longest:
        _, _, words = plain[-longest - 1 :].partition("_")
        plain = words or plain[-longest:]
    return plain if plain[:1].isalpha() else f"t{plain}"


def c_names(net: str) -> Namespace:
    """Identifiers for the C of a network whose files and functions begin with `net`."""
    own = (f"{net}_{word}" for word in ("run", "run_in", "trace", "arena"))
    return Namespace(_c_name, {*KEYWORDS, *USED, *own})


def _c_name(text: str) -> str:
    name = identifier(text, LONGEST + 12)
    return f"{name}_value" if _TAKEN.fullmatch(name) or name in KEYWORDS | USED else name


def file_stem(name: str) -> str:
    """Prefix of a network's files, functions and macros."""
    stem = identifier(name, 24)
    return f"{stem}_net" if stem in KEYWORDS | USED | HEADERS else stem


# -- texts in sources -----------------------------------------------------------------------


def ascii_text(text: str) -> str:
    """`text` in printable ASCII, without quotes and backslashes."""
    return "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in text)


def comment(text: str) -> str:
    """`text` in a C comment: it cannot end it, begin another one, or form a trigraph."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return re.sub(r"\?(?=\?)", "? ", plain.replace("*/", "* /").replace("/*", "/ *"))


def literal(text: str) -> str:
    """`text` as a C string literal, in ASCII."""
    held = ""
    for byte in text.encode("utf-8", "surrogatepass"):
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        held += chr(byte) if plain else f"\\{byte:03o}"
    return f'"{held}"'


# -- files ----------------------------------------------------------------------------------

# Parts that an entry of an archive cannot have: NUL ends a name, `..` leaves the folder that it is
# unpacked to, numpy removes `.npy` at the end; and text that looks like an escape.
_NO_ENTRY = re.compile(r"\0|%(?=[0-9A-F]{2})|\.(?=npy$)|(?<![^/])\.\.(?![^/])")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def entry_name(text: str) -> str:
    """`text` as the name of an array in a `.npz`; only names that an archive cannot have change."""
    return _NO_ENTRY.sub(lambda m: "".join(f"%{ord(c):02X}" for c in m[0]), text)


def from_entry_name(entry: str) -> str:
    """The name that `entry_name` was given."""
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)), entry)


def path_text(path: str | Path) -> str:
    """A path as text that can be written anywhere; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")
