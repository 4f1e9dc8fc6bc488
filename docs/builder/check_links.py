"""Check the built site: every link leads to a file and an anchor, and nothing is fetched.

Each page has a title, a description of its own, one first-level heading, no gap between levels of
headings, a text for each picture, a name for each dialog and each column of a table, and no row
of a table as text.

Usage: python docs/builder/check_links.py build/site
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
# Relations of <link> that name pages and fetch nothing.
NAMED = {"canonical", "prev", "next", "alternate", "edit"}
HEADING = re.compile(r"h([1-6])")
ERROR_PAGE = "404.html"


class Parsed(HTMLParser):
    """Links and anchors of a page, its title, description, headings and pictures without a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = {"", "__top"}
        self.title, self.description = "", ""
        self.headings: list[int] = []
        self.pictures: list[str] = []
        self.unnamed: list[str] = []  # parts that a screen reader has no name for
        self.column: str | None = None  # heading of a column that is being read
        self.in_title = False
        self.begins_paragraph = False
        self.rows: list[str] = []  # rows of tables that became text, for example after a blank line
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if heading := HEADING.fullmatch(tag):
            self.headings.append(int(heading[1]))
        if values.get("role") == "dialog" and not values.get("aria-label"):
            self.unnamed.append("a dialog")
        self.column = "" if tag == "th" else self.column
        if tag == "img" and not values.get("alt", "").strip():
            self.pictures.append(values.get("src", ""))
        if tag == "meta" and values.get("name") == "description":
            self.description = values.get("content", "").strip()
        self.in_title = tag == "title"
        self.begins_paragraph = tag == "p"
        for name in ("href", "src"):
            if name not in values or (tag == "link" and values.get("rel") in NAMED):
                continue
            self.links.append(values[name])
            if (tag, name) in FETCHED:
                self.fetched.append(values[name])

    def handle_endtag(self, tag: str) -> None:
        self.in_title = False
        if tag == "th":
            if not self.column:
                self.unnamed.append("a column of a table")
            self.column = None

    def handle_data(self, data: str) -> None:
        if self.begins_paragraph and data.startswith("| "):
            self.rows.append(data.strip())
        self.begins_paragraph = False
        if self.column is not None:
            self.column += data.strip()
        if self.in_title:
            self.title += data.strip()


@cache
def parsed(page: Path) -> Parsed:
    return Parsed(page.read_text("utf-8"))


def faults(site: Path) -> Iterator[str]:
    """Faults of the site, one line each."""
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).as_posix()
        for link in parsed(page).fetched:
            if urlsplit(link).scheme in ("http", "https") or link.startswith("//"):
                yield f"{name}: fetches {link}; the site must work without the internet"
        for link in parsed(page).links:
            if fault := _fault(link, page, site):
                yield f"{name}: {link}: {fault}"
        yield from (f"{name}: {fault}" for fault in _faults_of_text(parsed(page)))
    yield from _shared_descriptions(site)


def _faults_of_text(page: Parsed) -> Iterator[str]:
    if not page.title:
        yield "no title"
    if not page.description:
        yield "no description"
    if page.headings.count(1) != 1:
        yield f"{page.headings.count(1)} headings of the first level; one is the page's name"
    for above, below in zip(page.headings, page.headings[1:], strict=False):
        if below > above + 1:
            yield f"a heading of level {below} follows one of level {above}"
    for picture in page.pictures:
        yield f"no text for the picture {picture}"
    yield from (f"no name for {part}" for part in page.unnamed)
    yield from (f"a row outside of its table: {row}" for row in page.rows)


def _shared_descriptions(site: Path) -> Iterator[str]:
    """Pages that are described alike: those without a description have that of the site."""
    pages: dict[str, list[str]] = defaultdict(list)
    for page in sorted(site.rglob("*.html")):
        if page.name != ERROR_PAGE:
            pages[parsed(page).description].append(page.relative_to(site).as_posix())
    for description, names in pages.items():
        if description and len(names) > 1:
            yield f"{', '.join(names)}: one description, `{description}`"


def _fault(link: str, page: Path, site: Path) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    if path.startswith("/"):
        target = site / path.lstrip("/")
        if page.name != ERROR_PAGE:
            return "an absolute link does not work where the site has a folder of its own"
    else:
        target = (page.parent / path) if path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "no such file"
    if target.suffix == ".html" and unquote(parts.fragment) not in parsed(target).anchors:
        return "no such anchor"
    return None


def main() -> None:
    site = Path(sys.argv[1])
    found = list(faults(site))
    print(
        "\n".join(found)
        or f"{site}: every link leads somewhere, nothing is fetched, every page is described"
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
