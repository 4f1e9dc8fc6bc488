"""`qgraph inspect` on an output directory whose manifest is damaged."""

import json
import shutil
from itertools import cycle

import pytest

from tests.helpers.cli import run

LOAD = 3
ODD = (None, [], {}, "", 0, -1, True, 0.5, [None], {"x": None}, "x" * 300)


@pytest.fixture
def out(written, tmp_path):
    return shutil.copytree(written, tmp_path / "out")


def places(found, path=()):
    """Paths to every value in `found`, of lists the first member only."""
    items = found.items() if isinstance(found, dict) else enumerate(found[:1])
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def damage(out, path, value):
    found = json.loads((out / "manifest.json").read_text())
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    (out / "manifest.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("key", "value"),
    [("layers", None), ("layers", [None]), ("inputs", 0), ("outputs", []), ("profile", "x")],
)
def test_a_damaged_entry_is_an_error_that_names_the_directory(out, key, value):
    damage(out, (key,), value)
    done = run("inspect", out)
    assert done.code == LOAD, (done.out, done.err)
    assert f"{out}: its manifest was changed or damaged" in done.err.replace("\n", "")
    assert "quantize the model again" in done.err


def test_no_damaged_entry_ends_in_another_error(out):
    sound = (out / "manifest.json").read_text()
    for path, value in zip(places(json.loads(sound)), cycle(ODD), strict=False):
        damage(out, path, value)
        assert run("inspect", out).code in (0, LOAD), (path, value)
        (out / "manifest.json").write_text(sound)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 5}'])
def test_a_manifest_that_is_not_json_is_no_output_directory(out, content):
    (out / "manifest.json").write_bytes(content)
    done = run("inspect", out)
    assert done.code == LOAD and str(out) in done.err.replace("\n", ""), done.err
