"""The page in a real browser, where one is installed: it renders, sorts, opens, and is quick."""

import dataclasses
import re
import shutil
import subprocess
import time

import pytest

from qgraph.reporting.page import render
from qgraph.reporting.reading import read_facts
from qgraph.static.facts import PartFacts
from tests.helpers.report import Page, written_directory

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for found in map(shutil.which, NAMES) if found), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--window-size=1280,900",
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {NAMES}")


@pytest.fixture
def browse(tmp_path):
    """Load HTML, run a script in it, return (text that the script made, console lines)."""

    def load(html, script="", anchor=""):
        page = tmp_path / "page.html"
        report = f"document.body.innerHTML = '<pre id=result>' + ({script or '0'}) + '</pre>'"
        page.write_text(html.replace("</body>", f"<script>{report}</script></body>"))
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]
        done = subprocess.run(
            [*command, "--dump-dom", page.as_uri() + anchor],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return result[1] if result else None, console

    return load


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return render(read_facts(written_directory(tmp_path_factory.mktemp("small"), 12)))


def test_the_console_would_be_heard(browse):
    _, console = browse("<body><script>missing()</script></body>")
    assert len(console) == 1 and "missing is not defined" in console[0]


def test_it_renders_and_nothing_overflows(browse, small):
    script = """[document.querySelector('h1').getBoundingClientRect().height > 20,
        document.documentElement.scrollWidth, document.querySelectorAll('.dot').length,
        getComputedStyle(document.querySelector('.clip')).fill.includes('#hatch')].join()"""
    assert browse(small, script) == ("true,1280,12,true", [])


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """The same page with one more column, the outputs so far."""
    part = PartFacts("block/3/conv", "conv2d", 20, 1.0, 19, 1.0, 8.5, 0.9, samples=12)
    known = [dataclasses.asdict(part)]
    folder = written_directory(tmp_path_factory.mktemp("far"), 12, sensitivity=known)
    return render(read_facts(folder))


@pytest.mark.parametrize("page", ["small", "far"])
def test_columns_stand_below_their_titles(browse, page, request):
    script = """[...document.querySelectorAll('.row')].map(row => [...row.children].map(
        cell => Math.round(cell.getBoundingClientRect().left)).join()).join('|')"""
    found, console = browse(request.getfixturevalue(page), script)
    rows = found.split("|")
    assert len(rows) == 13 and len(set(rows)) == 1 and console == []


ORDER = "[...document.querySelectorAll('.rows > details')].map(row => row.id.slice(6)).join()"


def test_sorting(browse, small):
    found = []
    for clicks in (0, 1, 2):
        click = "document.querySelectorAll('.head button')[8].click(), "
        order, console = browse(small, f"({click * clicks} {ORDER})")
        found.append(order.split(","))
        assert console == []
    natural, up, down = found
    assert natural == [str(i) for i in range(1, 13)] and up != natural and down == up[::-1]
    shown = re.findall(r'data-v="([\d.]+)">[\d.]+</span></summary>', small)
    assert [float(shown[int(i) - 1]) for i in up] == sorted(map(float, shown))


def test_anchors_open_what_they_point_to(browse, small):
    script = "document.getElementById('layer-3').open + ',' + (scrollY > 300)"
    assert browse(small, script) == ("false,false", [])
    assert browse(small, script, "#layer-3") == ("true,true", [])


def test_it_works_without_scripts(small):
    bare = re.sub(r"<script>.*?</script>", "", small, flags=re.DOTALL)
    read = Page(bare)
    assert "block/11/conv" in read.text and read.tags.count("details") >= 12
    assert small.count("disabled>") == 9 and 'id="all" hidden' in small


def test_a_thousand_layers_load_fast(browse, tmp_path):
    html = render(read_facts(written_directory(tmp_path / "large", 1000)))
    script = """Math.round(performance.now()) + ',' + document.querySelectorAll('svg').length"""
    start = time.monotonic()
    found, console = browse(html, script)
    elapsed, charts = map(int, found.split(","))
    assert charts > 2000 and console == []
    assert elapsed < 20000 and time.monotonic() - start < 60  # 0.3 s and 1.5 s on two busy cores
