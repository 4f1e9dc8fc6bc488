"""Archives, arrays and JSON of others: bounded, never unpickled, and errors are LoadErrors."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from qgraph.archives import Archive, most_unpacked, read_arrays, read_json, read_npy
from qgraph.errors import LoadError
from qgraph.npz import npz_bytes

ARRAYS = arrays_of.arrays(
    st.sampled_from(["f4", ">i2", "u1", "?"]), arrays_of.array_shapes(min_dims=0, min_side=0)
)


@given(st.dictionaries(st.sampled_from(["a", "b/c", "x", "../y"]), ARRAYS), st.booleans())
def test_arrays_are_read_as_numpy_reads_them(arrays, compressed):
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(content, **arrays)
    found = read_arrays(content.getvalue(), "it")
    with np.load(io.BytesIO(content.getvalue())) as wanted:
        assert found.keys() == {*wanted.files}
        for name, array in found.items():
            assert array.dtype == wanted[name].dtype
            np.testing.assert_array_equal(array, wanted[name])


@given(ARRAYS)
def test_array_in_the_other_order(array):
    content = io.BytesIO()
    np.savez(content, a=np.asfortranarray(array))
    np.testing.assert_array_equal(read_arrays(content.getvalue(), "it")["a"], array)


def test_the_directory_is_read_once_for_all_arrays(monkeypatch):
    """Archives of many arrays are otherwise read in quadratic time."""
    opened, inner = [], Archive._opened
    monkeypatch.setattr(Archive, "_opened", lambda self: opened.append(self) or inner(self))
    data = npz_bytes({f"a{i}": np.array(i) for i in range(50)})
    assert len(read_arrays(data, "it")) == 50
    assert len(opened) == 2  # to check it, and to read it
    assert read_arrays(data, "it", wanted=lambda name: name in ("a1", "x")) == {"a1": 1}


def archive_of(method=zipfile.ZIP_STORED, **members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return content.getvalue()


def npy(array=None, header=None, data=b""):
    """An array in .npy form, or a header with any content in front of some data."""
    content = io.BytesIO()
    if array is not None:
        np.save(content, array)
        return content.getvalue()
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue() + data


def header(shape, descr="<f4"):
    return {"shape": shape, "fortran_order": False, "descr": descr}


def doubled_directory(content):
    """Two entries of the directory that mean the same bytes, as zip bombs have them."""
    end = content.rindex(b"PK\5\6")
    count, _, size, start = struct.unpack("<HHII", content[end + 8 : end + 20])
    entry = content[start : start + size].replace(b"a.npy", b"b.npy")
    whole = content[: start + size] + entry
    tail = struct.pack("<HHII", 2 * count, 2 * count, 2 * size, start)
    return whole + content[end : end + 8] + tail + content[end + 20 :]


GIANT = npy(header=header((2**40,)), data=b"\0" * 64)
BAD = {
    "not an archive": (b"hello", "not a zip file"),
    "cut": (npz_bytes({"a": np.zeros(9)})[:-30], "not a zip file"),
    "shape that the data does not fill": (archive_of(a=GIANT), "does not fill"),
    "shape with a negative size": (archive_of(a=npy(header=header((-1, -4)))), "impossible"),
    "elements without size": (archive_of(a=npy(header=header((2**60,), "|V0"))), "impossible"),
    "objects": (
        archive_of(a=npy(np.array([{}], object))),
        "arrays of Python objects are not supported",
    ),
    "pickle": (archive_of(a=pickle.dumps([1])), "cannot be read"),
    "unusual compression": (archive_of(zipfile.ZIP_BZIP2, a=b"x"), "compressed unusually"),
    "members over each other": (doubled_directory(archive_of(a=npy(np.zeros(9)))), "overlap"),
}


@pytest.mark.parametrize("case", BAD)
def test_archive_that_is_refused(case):
    content, message = BAD[case]
    with pytest.raises(LoadError, match=f"it: cannot be read.*{message}|it: {message}"):
        read_arrays(content, "it")


def test_bomb_is_refused():
    bomb = archive_of(zipfile.ZIP_DEFLATED, a=bytes(most_unpacked(0) + 1))
    with pytest.raises(LoadError, match="it: cannot be read: it unpacks to more than"):
        read_arrays(bomb, "it")


def test_two_members_of_one_name():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive, pytest.warns(UserWarning):
        archive.writestr("a.npy", npy(np.zeros(2)))
        archive.writestr("a.npy", npy(np.ones(2)))
    with pytest.raises(LoadError, match="same name"):
        Archive(content.getvalue(), "it")


def test_sizes_that_lie():
    """A directory with less than a member holds: nothing beyond its size is unpacked."""
    content = archive_of(zipfile.ZIP_DEFLATED, a=npy(np.zeros(100_000)))
    size = struct.pack("<I", len(npy(np.zeros(100_000))))
    for lie in (10, 2**31):
        with pytest.raises(LoadError, match="it: cannot be read"):
            read_arrays(content.replace(size, struct.pack("<I", lie)), "it")


def test_array_of_its_own(tmp_path):
    array = np.arange(6, dtype="i2").reshape(2, 3)
    (tmp_path / "a.npy").write_bytes(npy(array))
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), array)
    (tmp_path / "a.npy").write_bytes(npy(array) + b"\0")
    with pytest.raises(LoadError, match=r"a\.npy: cannot be read: .*does not fill"):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a":', '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"]
)
def test_json_that_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode())
    with pytest.raises(LoadError, match=r"a\.json: cannot be read: "):
        read_json(tmp_path / "a.json")


def test_json_object(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"a": [1]}))
    assert read_json(tmp_path / "a.json") == {"a": [1]}
    with pytest.raises(LoadError, match="No such file"):
        read_json(tmp_path / "b.json")
