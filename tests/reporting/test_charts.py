"""Charts are SVG that shows the numbers."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from qgraph.records import from_json
from qgraph.reporting import charts
from qgraph.reporting.facts import TensorFacts
from qgraph.static.facts import PartFacts
from qgraph.stored.manifest import TensorEntry
from tests.helpers.report import layer_cost, statistic, tensor


def parsed(svg):
    root = ElementTree.fromstring(svg)
    return root, {kind: [e for e in root if e.get("class") == kind] for kind in KINDS}


KINDS = ("bar", "clip", "limit", "dot", "ring", "line")


def bars(path):
    return len(re.findall("M", path[0].get("d"))) if path else 0


def of(exponent, signed=True, **changes):
    known = {**statistic(), **changes}
    return from_json(TensorFacts, {**tensor("t", "activation", exponent, signed=signed), **known})


def layer(name, sqnr_db):
    return SimpleNamespace(entry=SimpleNamespace(name=name, sqnr_db=sqnr_db))


@pytest.mark.parametrize(
    ("exponent", "signed", "ends"),
    [
        (6, True, [-2, 2]),
        (8, False, [1]),
        (7, True, [-1, 1]),
        ([5, 8, 6], True, [-4, -0.5, 0.5, 4]),
    ],
)
def test_thresholds(exponent, signed, ends):
    assert charts.thresholds(of(exponent, signed)) == ends
    root, parts = parsed(charts.histogram(of(exponent, signed)))
    assert len(parts["limit"]) == len(ends)
    labels = [t.text for t in root.iter("text")]
    assert all(charts.number(e) in labels for e in ends)


def test_bars_are_bins_and_those_past_the_threshold_are_drawn_otherwise():
    counts = [1, 0, 5, 9, 9, 5, 1, 1]  # from -2 to 2
    known = {"counts": counts, "first_bin": -4, "log2_width": -1}
    for exponent, clipped in ((6, 0), (7, 3), (8, 5)):
        _, parts = parsed(charts.histogram(of(exponent, **known)))
        assert (bars(parts["bar"]), bars(parts["clip"])) == (7 - clipped, clipped)
    _, parts = parsed(charts.histogram(of(8, signed=False, **known)))
    assert bars(parts["clip"]) == 3 + 2  # below zero, and past 1


def test_everything_is_inside_the_picture():
    for exponent in (2, 6, 12):
        root, parts = parsed(charts.histogram(of(exponent)))
        width = float(root.get("width"))
        for limit in parts["limit"]:
            assert 0 <= float(re.match(r"M([\d.]+)", limit.get("d"))[1]) <= width


def test_nothing_to_draw():
    assert charts.histogram(TensorFacts(from_json(TensorEntry, tensor("t", "weight")), 0)) == ""
    assert charts.histogram(of(6, counts=[])) == ""
    assert charts.noise_along([]) == "" and charts.sensitivity([]) == ""


def test_noise_along_the_network_names_the_weakest():
    layers = [layer(f"l<{i}>", v) for i, v in enumerate([40, None, -12.5, 30])]
    root, parts = parsed(charts.noise_along(layers))
    assert len(parts["dot"]) == 3 and len(parts["ring"]) == 1
    assert "l<2>, \u221212.5 dB" in [t.text for t in root.iter("text")]
    heights = [float(d.get("cy")) for d in parts["dot"]]
    assert heights[1] > heights[2] > heights[0]
    many = [layer("l", 30.0)] * 1000
    _, parts = parsed(charts.noise_along(many))
    assert not parts["dot"] and len(parts["line"]) == 1


def test_the_longest_bar_is_the_most_sensitive_layer():
    found = [from_json(PartFacts, layer_cost(f"l{i}", 20.0 + i)) for i in range(50)]
    root, parts = parsed(charts.sensitivity(found[::-1]))
    lengths = [float(r.get("width")) for r in parts["bar"]]
    assert len(lengths) == charts.BARS and lengths == sorted(lengths, reverse=True)
    assert next(root.iter("text")).text == "l0"
