"""`verify --files` checks the files that `export` wrote; `next:` of export names the command."""

import json
import re
import shlex
import shutil

import numpy as np
import onnx
import pytest

from qgraph import export, quantize, verify
from qgraph.errors import ExactnessError, LoadError, UsageError
from qgraph.exports import INDEX
from tests.helpers.cli import run, small_network, typical_images
from tests.helpers.forms import ANY_PROFILE, missing_tool


def skip_without_tool(form: str) -> None:
    if missing := missing_tool(form):
        pytest.skip(f"{form}: {missing}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`out`, and an export of it in each form."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    quantize(folder / "net.pb", typical_images(), effort="plain").save(folder / "out")
    for form in ANY_PROFILE:
        export(folder / "out", form, folder / form)
    return folder


@pytest.mark.parametrize("form", ANY_PROFILE)
def test_the_next_command_of_export_verifies_its_files(folder, tmp_path, form) -> None:
    skip_without_tool(form)
    done = run("export", folder / "out", "--format", form, "-o", tmp_path / "x y")
    (line,) = (line for line in done.out.splitlines() if line.startswith("next: qgraph "))
    found = run(*shlex.split(line.removeprefix("next: qgraph ")))
    assert found.code == 0, found.err
    assert re.search(rf"^{form}[: ].*equal$", found.out, re.MULTILINE)
    assert f"files in {tmp_path / 'x y'} against the integer reference" in found.out
    certificate = json.loads((folder / "out/certificate.json").read_text())
    index = json.loads((tmp_path / "x y" / INDEX).read_text())
    assert certificate["hashes"]["exported"] == index["files"]
    assert [name.split(": ")[0] for name in certificate["forms"]] == [form]


def copied(folder, form, tmp_path):
    return shutil.copytree(folder / form, tmp_path / form)


def _wrong_c(place) -> None:
    source = place / "net.c"
    text = source.read_text()
    number = re.search(r"\{\n? *(-?\d+),", text)
    changed = str(int(number[1]) ^ 1)
    source.write_text(text[: number.start(1)] + changed + text[number.end(1) :])


def _wrong_onnx(place) -> None:
    model = onnx.load(place / "network.onnx")
    for held in model.graph.initializer:
        array = onnx.numpy_helper.to_array(held).copy()
        if array.dtype == np.int8 and array.ndim == 4:
            array.flat[0] ^= 1
            held.CopyFrom(onnx.numpy_helper.from_array(array, held.name))
    onnx.save(model, place / "network.onnx")


def _wrong_engine(place) -> None:
    file = place / "network.qgi"
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def _wrong_vectors(place) -> None:
    file = next((place / "constants").glob("*.npy"))
    array = np.load(file)
    array.flat[0] ^= 1
    np.save(file, array)


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        ("c", _wrong_c), ("onnx-integer", _wrong_onnx), ("onnx-qdq", _wrong_onnx),
        ("engine", _wrong_engine), ("vectors", _wrong_vectors),
    ],
)  # fmt: skip
def test_a_changed_file_is_found(folder, tmp_path, form, damage) -> None:
    skip_without_tool(form)
    place = copied(folder, form, tmp_path)
    damage(place)
    try:
        assert not verify(folder / "out", files=place).equal
    except (ExactnessError, LoadError) as error:
        assert form in ("vectors", "engine"), error
    assert verify(folder / "out", forms=[form]).equal


def test_what_is_not_such_an_export_is_refused(folder, tmp_path) -> None:
    out = folder / "out"
    with pytest.raises(LoadError, match="no such directory"):
        verify(out, files=tmp_path / "missing")
    with pytest.raises(LoadError, match="is not what `qgraph export` wrote"):
        verify(out, files=tmp_path)
    place = copied(folder, "onnx-qdq", tmp_path)
    (place / "network.onnx").write_bytes(b"nothing")
    with pytest.raises(LoadError, match="cannot be read"):
        verify(out, files=place)
    (place / "network.onnx").unlink()
    with pytest.raises(LoadError, match=r"`network\.onnx` is missing"):
        verify(out, files=place)
    with pytest.raises(UsageError, match="exclude each other"):
        verify(out, forms=["c"], files=folder / "c")
    assert run("verify", out, "--files", folder / "c", "--against", folder / "x.npz").code == 2


def test_an_export_of_another_network_is_refused(folder, tmp_path) -> None:
    quantize(folder / "net.pb", 3 * typical_images(), effort="plain", profile="int32-bias").save(
        tmp_path / "other"
    )
    with pytest.raises(UsageError, match="exported from another network"):
        verify(tmp_path / "other", files=folder / "c")


def test_the_index_lists_renamed_tensors(folder) -> None:
    renamed = {
        form: json.loads((folder / form / INDEX).read_text())["renamed"] for form in ANY_PROFILE
    }
    program = (folder / "c/net.h").read_text() + (folder / "c/net.c").read_text()
    assert all(re.search(rf"\b{name}\b", program) for name in renamed["c"].values())
    assert "mean/pool" in renamed["c"] and "image/q8" in renamed["c"]
    assert renamed["engine"] == {} and renamed["vectors"] == {}
    for form in ("onnx-integer", "onnx-qdq"):
        model = onnx.load(folder / form / "network.onnx")
        values = {v for node in model.graph.node for v in node.output}
        values |= {v.name for v in model.graph.input}
        assert values >= {*renamed[form].values()}
