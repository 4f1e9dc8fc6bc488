"""Names of tensors, whatever they hold, as C identifiers, comments and string literals."""

from __future__ import annotations

import re

LONGEST = 40


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Lower case only: that is what identifiers are made of.
KEYWORDS = _words(
    """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await
    co_return co_yield compl concept consteval constexpr constinit const_cast decltype delete
    dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public reinterpret_cast requires static_assert static_cast
    template this thread_local throw true try typeid typename using virtual wchar_t xor xor_eq
    """
)
# What some compilers define, and what the generated file itself uses.
USED = _words(
    """
    unix linux i386 errno main memcpy memset memcmp strcmp stdin stdout stderr
    arena at to from row sums window image weights size_t largest
    answer wanted tensors tensor sample inputs answers code count words check mode read begun put
    get compare
    """
)
HEADERS = _words(
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg
    stdbool stddef stdint stdio stdlib string tgmath time wchar wctype
    """
)
# Helpers of the generated file end like that, loop variables look like that, types end in _t.
TAKEN = re.compile(r".*_[iu](8|16|32|64)|[dr][0-9]+|u?int.*_t|[a-z]_*")


class Names:
    """Hands out identifiers for a network with the stem `net`, no two the same."""

    def __init__(self, net: str) -> None:
        self._taken = {*KEYWORDS, *USED, *(f"{net}_{word}" for word in ("run", "run_in", "trace"))}

    def fresh(self, text: str, before: str = "", after: str = "") -> str:
        """An identifier that recalls `text`, no longer than 63 characters; lower case."""
        stem = f"{before}{identifier(text)}{after}"
        stem = f"{stem}_value" if TAKEN.fullmatch(stem) or stem in KEYWORDS | USED else stem
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name


def identifier(text: str, longest: int = LONGEST) -> str:
    """Letters, digits and single underscores; of a long name the end, which says most."""
    plain = re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_")[-longest:].strip("_")
    return plain if plain[:1].isalpha() else f"t{plain}"


def file_stem(name: str) -> str:
    """What files, functions and macros of a network begin with."""
    stem = identifier(name, 24)
    return f"{stem}_net" if stem in KEYWORDS | USED | HEADERS else stem


def comment(text: str) -> str:
    """`text` within a C comment: it can neither end it, nor begin one, nor form a trigraph."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return re.sub(r"\?(?=\?)", "? ", plain.replace("*/", "* /").replace("/*", "/ *"))


def literal(text: str) -> str:
    """`text` as a C string literal, in ASCII."""
    held = ""
    for byte in text.encode("utf-8", "surrogatepass"):
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        held += chr(byte) if plain else f"\\{byte:03o}"
    return f'"{held}"'
