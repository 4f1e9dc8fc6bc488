"""Check the built site: every link leads to a file and an anchor, and nothing is fetched.

Usage: python docs/builder/check_links.py build/site
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
# Relations of <link> that name pages and fetch nothing.
NAMED = {"canonical", "prev", "next", "alternate", "edit"}


class Parsed(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        for name in ("href", "src"):
            if name not in values or (tag == "link" and values.get("rel") in NAMED):
                continue
            self.links.append(values[name])
            if (tag, name) in FETCHED:
                self.fetched.append(values[name])


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


def _fault(link: str, page: Path, site: Path) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    if path.startswith("/"):
        target = site / path.lstrip("/")
        if page.name != "404.html":
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
    print("\n".join(found) or f"{site}: every link leads somewhere, nothing is fetched")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
