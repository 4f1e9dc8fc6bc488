"""Names for targets: always legal, never two alike, and a user's own where that is possible."""

import io
import re
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.names import (
    HEADERS,
    KEYWORDS,
    Namespace,
    ascii_text,
    c_names,
    comment,
    entry_name,
    file_stem,
    from_entry_name,
    identifier,
    literal,
    path_text,
    tensorflow_name,
)
from qgraph.npz import npz_bytes, write_npz

TENSORFLOW = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*")
C = re.compile(r"[a-z][a-z0-9_]{0,62}")
NASTY = (
    "onnx::Flatten_0", "/head/Conv_output_0", "a b", "größe", "日本", "a\\b", 'a"b', "a'b", "a\nb",
    "_x", "-x", ".x", "x:0", "x:1", "", " ", "..", "../../x", "a/../b", "/", "x\0y", "x.npy",
    "x.npy.npy", "%41", "%", "%2", "%00", "int", "main", "run", "arena", "NULL", "module", "1", "3",
    "x/q8", "*/", "/*", "??/", "Net", "nET", "file", "allow_pickle", "a" * 300,
)  # fmt: skip
NAMES = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(NASTY)


@given(st.lists(NAMES, max_size=12))
def test_names_of_tensorflow_nodes_are_legal_and_unique(texts) -> None:
    found = Namespace(tensorflow_name).fresh_all(texts)
    assert len(set(found.values())) == len(found) == len(set(texts))
    for own, name in found.items():
        assert TENSORFLOW.fullmatch(name)
        assert name == own or not TENSORFLOW.fullmatch(own)


@given(st.lists(NAMES, max_size=12), NAMES)
def test_identifiers_of_c_are_legal_and_unique(texts, network) -> None:
    net = file_stem(network)
    assert C.fullmatch(net)
    assert net not in KEYWORDS | HEADERS
    names = c_names(net)
    found = [names.fresh(text) for text in texts]
    found += [names.fresh(f"layer_{identifier(text)}") for text in texts]
    assert len(set(found)) == 2 * len(texts)
    for name in found:
        assert C.fullmatch(name)
        assert name not in {*KEYWORDS, f"{net}_run", f"{net}_run_in", f"{net}_arena"}


@given(NAMES)
def test_texts_in_sources_cannot_leave_them(text) -> None:
    inside = comment(text)
    assert inside.isascii()
    assert not any(end in inside for end in ("*/", "/*", "\n", "??"))
    assert re.fullmatch(r'"(?:[^"\\?\n]|\\[0-7]{3})*"', literal(text))
    assert not set(ascii_text(text)) & set('"\\\n') and ascii_text(text).isascii()


@given(NAMES)
def test_entries_of_archives_give_the_name_back(text) -> None:
    entry = entry_name(text)
    assert from_entry_name(entry) == text
    assert "\0" not in entry
    assert ".." not in entry.split("/")
    assert not entry.endswith(".npy")


@pytest.mark.parametrize("name", ["conv1/weights", "a b", "größe", "50% off", "..a", "x:0", ""])
def test_usual_names_are_entries_as_they_are(name) -> None:
    assert entry_name(name) == name


@given(st.lists(NAMES, unique=True, max_size=8))
def test_numpy_reads_arrays_of_any_names(names) -> None:
    arrays = {name: np.full((i,), i, np.int16) for i, name in enumerate(names)}
    found = np.load(io.BytesIO(npz_bytes(arrays)), allow_pickle=False)
    back = {from_entry_name(key): found[key] for key in found.files}
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype


def test_the_same_arrays_are_the_same_bytes(tmp_path) -> None:
    arrays = {"codes/x": np.arange(1000, dtype=np.int8), "scalar": np.float32(2)}
    for compressed in (False, True):
        write_npz(tmp_path / "a.npz", arrays, compressed=compressed)
        write_npz(tmp_path / "b.npz", arrays, compressed=compressed)
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert (tmp_path / "b.npz").stat().st_size < len(npz_bytes(arrays))


def test_objects_are_not_written() -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        npz_bytes({"x": np.array([{}], object)})


def test_a_path_is_text_that_can_be_written() -> None:
    assert path_text("r\udce9seau/é.pb") == "r\ufffdseau/é.pb"
    assert set(path_text(string.printable)) == set(string.printable)
