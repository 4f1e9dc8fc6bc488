"""`--exponents`: calibration that is kept, edited and used again."""

import json

from tests.helpers.cli import run


def test_the_written_file_gives_the_same_network(model, samples, written, tmp_path):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--exponents",
               written / "exponents.json")  # fmt: skip
    assert done.code == 0, done.err
    for name in ("inference.pb", "exponents.json", "network.npz"):
        assert (tmp_path / "out" / name).read_bytes() == (written / name).read_bytes()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["exponents"] == "exponents.json" and "exponents.json" in manifest["files"]


def test_an_edit_is_seen_in_the_manifest(model, samples, written, tmp_path):
    data = json.loads((written / "exponents.json").read_text())
    tensors = json.loads((written / "manifest.json").read_text())["tensors"]
    name = next(t["name"] for t in tensors if t["role"] == "weight")
    data["tensors"][name]["exponent"] -= 1
    (tmp_path / "mine.json").write_text(json.dumps(data, indent=2))
    done = run("quantize", model, "-o", tmp_path / "out", "--exponents", tmp_path / "mine.json",
               "-c", samples, "--json")  # fmt: skip
    assert done.code == 0, done.err
    found = {t["name"]: t["exponent"] for t in json.loads(done.out)["tensors"]}
    before = {t["name"]: t["exponent"] for t in tensors}
    assert found[name] == before[name] - 1


def test_mistakes_are_reported_before_anything_is_written(model, samples, written, tmp_path):
    data = json.loads((written / "exponents.json").read_text())
    name, entry = data["tensors"].popitem()
    (tmp_path / "mine.json").write_text(json.dumps(data))
    arguments = ("-c", samples, "-o", tmp_path / "out", "--exponents")
    done = run("quantize", model, *arguments, tmp_path / "mine.json")
    assert done.code == 6 and f"{name}: its exponent is not given" in done.err
    data["tensors"] = {**data["tensors"], name: {**entry, "exponent": 999}}
    (tmp_path / "mine.json").write_text(json.dumps(data))
    done = run("quantize", model, *arguments, tmp_path / "mine.json")
    assert done.code == 9 and name in done.err and "999" in done.err
    done = run("quantize", model, *arguments, tmp_path / "gone.json")
    assert done.code == 6 and "no exponents can be read" in done.err
    done = run("quantize", model, *arguments, written / "exponents.json", "--effort", "fast")
    assert done.code == 2 and "effort `fast`, which searches for others" in done.err
    assert not (tmp_path / "out").exists()
