"""The page: one file that needs nothing else, whatever the names of layers are."""

import json
import re

import pytest

from qgraph.reporting.page import breakable, prose, render, scale
from qgraph.reporting.reading import read_facts
from qgraph.stored.write import FILES
from tests.helpers.cli import left_in, run
from tests.helpers.report import Page, facts_of, layer_cost, plan, rewrite, written_directory


@pytest.fixture(scope="module")
def html(written):
    return render(read_facts(written))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return render(read_facts(written_directory(tmp_path_factory.mktemp("large"), 1000)))


@pytest.fixture(params=["html", "large"])
def page(request):
    return request.getfixturevalue(request.param)


def test_nothing_is_fetched(page):
    """No address but `data:,` for an icon, and anchors of this page."""
    assert not re.search(r"https?:|//\w+\.|@import|\bsrc=|\burl\((?!#)", page)
    addresses = [v for k, v in Page(page).attributes if k in ("href", "src", "action", "data")]
    assert {a for a in addresses if not a.startswith("#")} == {"data:,"}


def test_anchors_resolve_and_tags_close(page):
    read = Page(page)
    assert read.wrong == [] and read.open == []
    assert len(read.ids) == len(set(read.ids)) and len(read.links) > 5
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)


def test_histograms_wait_inside_closed_details(page):
    bodies = re.findall(r'<details id="layer-\d+"( open)?>(.*?)</details>', page, re.DOTALL)
    assert bodies and all(body.count("<svg") == 2 for _, body in bodies)
    assert [opened for opened, _ in bodies].count(" open") == 1


def test_a_thousand_layers_stay_small(large):
    assert 1_000_000 < len(large) < 6_000_000


def test_the_page_has_the_main_facts(html):
    text = Page(html).text
    for said in ("net.pb", "graffitist-int8", "What to do next", "mean-to-avg-pool", "kl_j"):
        assert said in text
    assert "scores" in text and "stays float: softmax is a float op" in text
    assert "Not measured: the effect of each layer" in " ".join(text.split())
    assert "--sensitivity measures it" in " ".join(text.split())


def test_names_are_text_and_never_markup(tmp_path):
    nasty = "</title><script>alert('x')</script>`&"
    folder = written_directory(
        tmp_path,
        model=nasty,
        float_ops=[{"name": nasty, "op": nasty}],
        sensitivity=[layer_cost(nasty, 20.0)],
        outputs={nasty: "float32[?]"},
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["layers"][1].update(name=nasty, sqnr_db=3.0)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    read = Page(render(read_facts(folder)))
    assert read.tags.count("script") == 1 and read.wrong == []
    assert read.text.count("<script>alert('x')</script>") >= 5


def test_sensitivity_agreement_and_trials_are_shown_where_known(tmp_path):
    near = {"sqnr": 31.0, "top1": 0.981, "samples": 1000}
    known = {"agreement": {**near, "held_out": True}}
    known["trials"] = [{"plan": plan(method="mse"), "agreement": near}]
    reasons = ["12 % of its output is clipped", "a <tail>"]
    known["sensitivity"] = [
        layer_cost("block/2/conv", 20.0, all_but_sqnr_db=33.5, reasons=reasons),
        layer_cost("block/1/conv", None),
    ]
    text = Page(render(read_facts(written_directory(tmp_path, **known)))).text
    assert "10 %, 20.0 dB" in text and "all others 2.1 %, 33.5 dB" in text
    assert "12\u00a0% of its output is clipped; a <tail>" in text
    assert "98.1 %" in text and "Not measured" not in text
    shown = " ".join(text.split())
    assert re.search(r"SQNR of the outputs ?31.0 dB", shown) and "below from 16 others" in shown
    assert "Plans tried" in text and "thresholds by mse" in text


def test_outputs_so_far_are_a_column_where_they_are_known(tmp_path, html):
    assert "outputs so far" not in html
    far = layer_cost("block/1/conv", 20.0, so_far_sqnr_db=18.54, so_far_top1=0.9)
    page = render(read_facts(written_directory(tmp_path, sensitivity=[far])))
    cells = re.findall(r'<span class="r" data-v="([\d.]*)">([^<]*)</span></summary>', page)
    assert cells == [("", "\u2013"), ("18.54", "90 %"), ("", "\u2013"), ("", "\u2013")]
    assert "90 % as float, 18.5 dB" in page
    assert 'from <a href="#layer-2">layer 2</a>' in page


def test_a_page_twice_is_the_same_page(html, written):
    assert render(read_facts(written)) == html


def test_scale_prose_and_names():
    assert scale(6) == "2⁻⁶" and scale(-3) == "2³" and scale((5, 8, 5)) == "2⁻⁸…2⁻⁵"
    assert scale((4, 4)) == "2⁻⁴" and scale(None) == "?"
    assert prose("a `b<c` & d") == "a <code>b&lt;c</code> &amp; d"
    assert prose("3 % (-2.0 dB), `x-1`") == "3\u00a0% (\u22122.0 dB), <code>x-1</code>"
    assert breakable("a/<b>/c") == "a/<wbr>&lt;b&gt;/<wbr>c"


# -- the verb ----------------------------------------------------------------------------------


def test_report_prints_the_path_of_the_page(tmp_path):
    folder = written_directory(tmp_path / "out")
    before = left_in(folder)
    done = run("report", folder)
    assert done.code == 0 and done.err == ""
    assert left_in(folder) == before | {"report.html"}
    assert (folder / "report.html").resolve().as_uri() in done.out
    assert done.out.startswith("Very close to float: ")
    other = tmp_path / "other"
    other.touch()
    assert (folder / "report.html").stat().st_mode == other.stat().st_mode
    assert run("report", folder).code == 0 and left_in(folder) == before | {"report.html"}


def test_json_has_the_same_facts_and_writes_nothing(written):
    done = run("report", written, "--json")
    assert json.loads(done.out) == facts_of(written)
    assert left_in(written) == set(FILES)


def test_a_new_quantization_takes_the_old_report_away(written, tmp_path):
    source = written.parent
    arguments = ("quantize", source / "net.pb", "-c", source / "samples.npz", "-o", tmp_path / "o")
    assert run(*arguments).code == 0 and run("report", tmp_path / "o").code == 0
    assert run(*arguments, "--force").code == 0
    assert left_in(tmp_path / "o") == set(FILES)


def test_report_of_something_else(tmp_path, written):
    done = run("report", tmp_path / "gone")
    assert done.code == 3 and "gone: no such directory" in done.err
    done = run("report", written / "manifest.json")
    assert done.code == 3 and "Traceback" not in done.err


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    folder = written_directory(tmp_path)
    before = left_in(folder)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
    done = run("report", folder)
    assert done.code == 8 and "report.html: cannot be written: disk full" in done.err
    assert left_in(folder) == before


def test_without_jinja2_there_is_still_json(tmp_path, monkeypatch):
    folder = written_directory(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    done = run("report", folder)
    assert done.code == 2 and "pip install jinja2, or use --json" in done.err
    assert run("report", folder, "--json").code == 0


@pytest.mark.parametrize("verb", ["report", "inspect"])
def test_a_directory_of_another_version(tmp_path, verb):
    """Whatever is missing in it, the message is about the version."""
    folder = written_directory(tmp_path / "out", format=1)
    manifest = json.loads((folder / "manifest.json").read_text())
    for key in ("plan", "layers"):
        del manifest[key]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done = run(verb, folder)
    assert done.code == 3 and "its manifest has format 1, this version reads" in done.err
    assert "quantize the model again" in done.err


def test_the_manifest_of_something_else(tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": 3, "name": "a page"}')
    done = run("report", folder)
    assert done.code == 3 and "not what `qgraph quantize` wrote" in done.err


CERTIFICATE = {
    "format": 1,
    "versions": {},
    "profile": "graffitist-int8",
    "equal": False,
    "cases": {"samples": 3},
    "forms": {
        "c": {"compared": True, "tensors": 5, "elements": 1234, "differences": 2,
              "first": [{"tensor": "a/<b>", "count": 2, "index": [0, 1], "actual": 7, "expected": 8,
                         "label": "samples"}], "seconds": 0.1},
        "qonnx": {"compared": False, "reason": "`layer` rounds down"},
    },
    "accumulators": [],
    "requantizations": [],
}  # fmt: skip


def test_a_certificate_is_shown_if_it_belongs_to_the_network(tmp_path) -> None:
    folder = written_directory(tmp_path / "o")
    assert "Not tried yet" in render(read_facts(folder))
    rewrite(folder, **{"graph.txt": "a graph"})
    graph = json.loads((folder / "manifest.json").read_text())["files"]["graph.txt"]
    unread = dict.fromkeys(("profile", "inference", "weights", "inputs"), "")
    made = {**CERTIFICATE, "hashes": {**unread, "graph": graph}}
    (folder / "certificate.json").write_text(json.dumps(made))
    html = render(read_facts(folder))
    assert "1,234" in html and "a/<wbr>&lt;b&gt;" in html and "7, not 8" in html
    assert "Not every form" in html and "not compared: `layer` rounds down" in html
    made["hashes"] = {**unread, "graph": "of another"}
    (folder / "certificate.json").write_text(json.dumps(made))
    assert "Not tried yet" in render(read_facts(folder))
