"""Files of formats that are not read: the error names the format and what to do."""

import io
import json
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from qgraph.errors import LoadError
from qgraph.frontends import load
from qgraph.frontends.other_formats import MODELS, SUFFIXES


def archive(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as written:
        for name in names:
            written.writestr(name, b"x")
    return stream.getvalue()


def arrays(save):
    stream = io.BytesIO()
    save(stream, np.ones(3))
    return stream.getvalue()


def safetensors():
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


PAGE = b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>"
FILES = {
    "net.onnx": (PAGE, "a web page.*\n.*download"),
    "net.pb": (b"\n  <HTML><body>", "a web page"),
    "pointer.onnx": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS.*\n.*git lfs pull"),
    "new.pt": (archive("archive/data.pkl", "archive/version"), "a PyTorch.*\n.*ONNX"),
    "torch.onnx": (archive("archive/data.pkl"), "a PyTorch.*\n.*torch.onnx.export"),
    "old.pth": (b"\x80\x02\x8a\nl\xfc", "a PyTorch"),
    "random.pth": (bytes(range(255, 100, -1)), "a PyTorch"),
    "forest.pkl": (b"\x80\x04\x95", "a Python pickle"),
    "net.safetensors": (safetensors(), "a safetensors.*weights"),
    "apple.mlmodel": (bytes(range(255, 100, -1)), "a Core ML model"),
    "calib.npz": (archive("image.npy"), "a file of arrays.*\n.*--calibration"),
    "calib.npy": (arrays(np.save), "a file of arrays"),
    "packed.pb": (b"\x1f\x8b\x08\x00", "compressed by gzip.*\n.*gunzip"),
    "config.json": (b'{"class_name": "Model", "config": {}}', "Keras architecture.*\n.*model.save"),
    "web.json": (b'{"format": "graph-model", "modelTopology": {}}', "a TensorFlow.js model"),
    "any.json": (b"{}", "a JSON file"),
    "list.json": (b"[1, 2]\xff", "a JSON file"),
    "all.zip": (archive("model.onnx"), "a zip archive.*\n.*unpack"),
    "engine.trt": (bytes(range(255, 100, -1)), "a TensorRT engine"),
    "void.onnx": (b"", "empty"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_format(tmp_path, name):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadError, match=rf"{name}: .*{message}") as caught:
        load(tmp_path / name)
    assert caught.value.hint


def test_a_directory_without_a_saved_model(tmp_path):
    with pytest.raises(LoadError, match=r"without saved_model\.pb\n  it is empty"):
        load(tmp_path)
    (tmp_path / "weights.txt").write_text("")
    with pytest.raises(LoadError, match=r"without saved_model\.pb\n  give a model"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(LoadError, match=r"model\.safetensors is of PyTorch"):
        load(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/saved_model.pb").write_bytes(b"")
    (tmp_path / "net.onnx").write_bytes(b"")
    with pytest.raises(LoadError, match=r"give a model inside: \S*/1, \S*/net.onnx$"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(LoadError, match="an output of `qgraph quantize`"):
        load(tmp_path)
    core_ml = tmp_path / "net.mlpackage"
    core_ml.mkdir()
    with pytest.raises(LoadError, match=r"net\.mlpackage: a Core ML"):
        load(core_ml)


def test_suffixes_of_models_are_not_those_of_other_formats():
    assert not set(MODELS) & set(SUFFIXES)


def test_the_command_line_refuses_before_tensorflow_is_imported(tmp_path):
    page = tmp_path / "net.pb"
    page.write_bytes(PAGE)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from qgraph.cli.options import check_model\n"
        "from qgraph.errors import LoadError\n"
        "try: check_model(Path(sys.argv[1]))\n"
        "except LoadError: sys.exit('tensorflow' in sys.modules)\n"
        "sys.exit(2)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(page)]).returncode == 0
