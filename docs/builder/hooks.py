"""Hooks of mkdocs: pages that are generated, and links to files outside of docs/.

mkdocs calls `on_files` before it reads pages, and for each page `on_page_markdown`, then
`on_page_content` and `on_post_page`; and `on_post_template` for each page that has no source.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from command_line import pages_of_verbs
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[2]
PARAGRAPH = re.compile(r"<p>(?!<a [^>]*>[^<]*</a></p>)(.*?)</p>", re.DOTALL)  # not a link alone
LATER = 0.3  # weight of results and changes in the search, relative to guides and reference
MAX_LENGTH = 200  # characters of a description; search engines show fewer
MENU = re.compile(r'(<nav class="md-nav" data-md-level="\d+" )aria-labelledby="(__nav_\w+)_label"')
SECTIONS = re.compile(r'<nav class="md-nav" aria-label="([^"]*)">')
MENU_TITLE = re.compile(r'<label class="md-nav__title" for="(__nav_\w+)"')
CELL = re.compile(r"(?<=<td>).*?(?=</td>)", re.DOTALL)
TAG = re.compile(r"(<[^>]*>)")
LONG_WORD = re.compile(r"\S{21,}")  # a plan, a line of code
BREAKS = re.compile(r"(?<=[(=_])(?=[^\W_])|(?<=,)(?=[^\W\d])")  # 2,448 does not break at its comma
PAGE_NAME = re.compile(r"`?[\w/]+\.md`?")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def included() -> dict[str, str]:
    """Files outside of docs/ that are pages of the site: repository path to page."""
    pages = {
        "CHANGELOG.md": "reference/changelog.md",
        "CONTRIBUTING.md": "reference/contributing.md",
        "benchmarks/README.md": "reference/benchmarks.md",
    }
    for readme in sorted((ROOT / "qgraph/rl/agents").glob("*/README.md")):
        pages[readme.relative_to(ROOT).as_posix()] = f"reference/agents/{readme.parent.name}.md"
    return pages


INCLUDED = included()
HOMES = {page: source for source, page in INCLUDED.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated from code and those that stand elsewhere."""
    for source, page in INCLUDED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    for page, text in pages_of_verbs().items():
        files.append(File.generated(config, page, content=text))
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        page = notebook.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        files.append(File.generated(config, page, content=_notebook(notebook)))
    return files


def _notebook(path: Path) -> str:
    """A notebook as Markdown, with its results; the file itself can be downloaded."""
    text, _ = MarkdownExporter().from_filename(str(path))
    title, rest = text.strip().split("\n", 1)
    return f"{title}\n\n[Download this notebook]({path.name})\n{rest}\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that work in the repository, as links that work on the site; guides are found first."""
    place = page.file.src_uri
    if place.startswith(("results/", "reference/changelog")):
        page.meta.setdefault("search", {"boost": LATER})
    home = PurePosixPath(HOMES.get(place, f"docs/{place}"))

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = normpath((home.parent / target).as_posix())
        text = _title(path) if PAGE_NAME.fullmatch(text) else text
        if path in INCLUDED:
            return f"[{text}]({_relative(INCLUDED[path], place)}{anchor})"
        if path.startswith("docs/notebooks/") and place != path.removeprefix("docs/")[:-6] + ".md":
            page = path.removeprefix("docs/").replace(".ipynb", ".md")
            return f"[{text}]({_relative(page, place)}{anchor})"
        if path.startswith("docs/"):
            return f"[{text}]({_relative(path.removeprefix('docs/'), place)}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # mkdocs reports it
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})"
        return text

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Cells of tables that break well; a page without a `description` has its first paragraph."""
    html = CELL.sub(_breaking, html)
    if "description" not in page.meta and (found := PARAGRAPH.search(html)):
        text = " ".join(unescape(re.sub(r"<[^>]+>", "", found[1])).split())
        page.meta["description"] = _shortened(text)
    return html


def _breaking(cell: re.Match[str]) -> str:
    """A cell whose long words may break, and not a number and its error; `\\|` in code is `|`."""
    parts = TAG.split(cell[0].replace("\\|", "|").replace(" ± ", "&nbsp;±&nbsp;"))
    texts = (LONG_WORD.sub(_broken, text) for text in parts[::2])
    return "".join(part for pair in zip(texts, [*parts[1::2], ""], strict=True) for part in pair)


def _broken(word: re.Match[str]) -> str:
    return BREAKS.sub("<wbr>", word[0])


def on_post_page(html: str, page: Page, config: MkDocsConfig) -> str:
    """Names that the theme leaves out, of a page."""
    return _named(html)


def on_post_template(html: str, template_name: str, config: MkDocsConfig) -> str:
    """Names that the theme leaves out, of the page for addresses that do not exist."""
    return _named(html) if template_name.endswith(".html") else html


def _named(html: str) -> str:
    """The page with a name for the search and for each menu, for screen readers.

    The theme names a menu by a label that is empty where its title is a link.
    """
    dialog = '<div class="md-search" data-md-component="search" role="dialog"'
    html = html.replace(dialog, f'{dialog} aria-label="Search"')
    html = MENU_TITLE.sub(r'<label class="md-nav__title" for="\1" id="\1_title"', html)
    html = MENU.sub(r'\1aria-labelledby="\2_title"', html)
    return SECTIONS.sub(r'<nav class="md-nav" aria-label="\1: sections">', html)


def _shortened(text: str) -> str:
    """The first sentences of `text`, or its first words, as far as they fit."""
    if len(text) <= MAX_LENGTH:
        return text
    start = text[: MAX_LENGTH - 3]
    sentences, end, _ = start.rpartition(". ")
    return f"{sentences}." if end else f"{start.rpartition(' ')[0]} ..."


def _title(path: str) -> str:
    """The heading of a page, for a link that names its file: the site has no such names."""
    found = TITLE.search((ROOT / path).read_text("utf-8")) if (ROOT / path).exists() else None
    return found[1] if found else PurePosixPath(path).name


def _relative(target: str, place: str) -> str:
    return relpath(target, PurePosixPath(place).parent.as_posix())
