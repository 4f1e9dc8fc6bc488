"""Generated output directories of any size and quality, and a reader of report pages."""

import hashlib
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from qgraph.quant.plan import PLAIN
from qgraph.quant.profile import load_profile
from qgraph.records import to_json
from qgraph.reporting.reading import read_facts
from qgraph.stored.manifest import FORMAT

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}


def tensor(name, role, exponent=6, bits=8, signed=True, group=None, sqnr=35.0):
    return {
        "name": name,
        "of": name,
        "role": role,
        "bits": bits,
        "signed": signed,
        "exponent": exponent,
        "group": group,
        "sqnr_db": sqnr,
    }


def statistic(seed=0, own=6, clipped=0, vanished=0, spread=0.5, count=64):
    counts = np.histogram(np.random.default_rng(seed).normal(0, spread, 5000), count, (-2, 2))[0]
    return {
        "least": -1.9,
        "greatest": 1.9,
        "elements": 8000,
        "zeros": 3000,
        "clipped_below": 0,
        "clipped_above": clipped,
        "vanished": vanished,
        "max_exponent": own,
        "first_bin": -count // 2,
        "log2_width": 2 - int(np.log2(count)),
        "counts": counts.tolist(),
        "sqnr_alone_db": 40.0,
        "sqnr_max_db": 41.5,
    }


def facts_of(folder: Path) -> dict:
    """Output of `qgraph report --json`."""
    return to_json(read_facts(folder))


def plan(**steps) -> dict:
    """A plan in the form of a manifest."""
    return to_json(replace(PLAIN, **steps))


def layer_cost(layer: str, sqnr_db: float | None, **changes) -> dict:
    """The cost of quantizing a layer, at the outputs."""
    unknown = ("all_but_sqnr_db", "all_but_top1", "so_far_sqnr_db", "so_far_top1")
    known = {"layer": layer, "op": "conv2d", "sqnr_db": sqnr_db, "top1": None, "samples": 32}
    return {**known, **dict.fromkeys(unknown), **changes}


def written_directory(folder: Path, layers=4, **changes) -> Path:
    """The files of `qgraph quantize`, as far as a report reads them.

    `changes` go into the manifest. Layers are called `block/<i>/conv`; the first two outputs share
    a scale, by an add.
    """
    names = [f"block/{i}/conv" for i in range(layers)]
    group = [f"{name}/q8" for name in names[:2]]
    tensors, statistics, found = [], {}, []
    for i, name in enumerate(names):
        shared = "g0" if i < 2 else None
        sqnr = round(40 - 15 * i / layers + 3 * np.sin(i), 2)
        tensors += [
            tensor(f"{name}/weights", "weight"),
            tensor(f"{name}/q8", "activation", 6, group=shared, sqnr=sqnr),
        ]
        statistics[f"{name}/weights"] = statistic(i)
        statistics[f"{name}/q8"] = statistic(i + 1)
        found.append(
            {
                "name": name,
                "op": "conv2d" if i % 2 else "depthwise_conv2d",
                "input": f"{names[i - 1]}/q8" if i else "image/q8",
                "input_scales": [f"{names[i - 1]}/q8" if i else "image/q8"],
                "weight": f"{name}/weights",
                "weight_bits": 8,
                "weight_exponent": 6,
                "output": f"{name}/q8",
                "output_bits": 8,
                "output_exponent": 6,
                "sqnr_db": sqnr,
                "accumulator_bound": 70125,
                "accumulator_bits": 18,
                "exact_in": "float32",
            }
        )
    tensors.append(tensor("image/q8", "input", 8, signed=False))
    rewrites = {
        "rewrites": [
            {
                "pass_name": "mark-scale-groups",
                "rule": "share-scale",
                "node": "block/add",
                "before": "%block/add = add(%a, %b)",
                "after": f"forces one scale on {', '.join(group)}",
                "shared_scale": {"op": "add", "members": group},
            }
        ],
        "refusals": [
            {"pass_name": "p", "rule": "r", "node": f"n{i}", "reason": "is a float op"}
            for i in range(3)
        ],
    }
    manifest = {
        "format": FORMAT,
        "versions": {"qgraph": "0.1.0"},
        "model": "made-up.pb",
        "model_sha256": None,
        "calibration_samples": 64,
        "calibration_method": "kl_j",
        "effort": "plain",
        "plan": plan(),
        "plan_spec": PLAIN.spec(),
        "exponents": None,
        "passes": "",
        "established": [],
        "tensorflow_names": {},
        "trials": [],
        "agreement": None,
        "warnings": [],
        "notes": [],
        "inputs_seen": {"image": [0.0, 1.0]},
        "input_doubts": [],
        "data_free": None,
        "domain": None,
        "training": None,
        "profile": to_json(load_profile("graffitist-int8")),
        "inputs": {"image": "float32[?,8,8,3]"},
        "outputs": {"classes": "float32[?,4]"},
        "layers": found,
        "tensors": tensors,
        "scale_groups": {"g0": {"exponent": 6, "members": group}},
        "float_ops": [],
        **changes,
    }
    numbers = {"samples": 16, "outputs_sqnr_db": {"classes": 42.0}, "tensors": statistics}
    folder.mkdir(parents=True, exist_ok=True)
    rewrite(folder, manifest, **{"statistics.json": numbers, "rewrites.json": rewrites})
    return folder


def rewrite(folder: Path, manifest=None, **files) -> None:
    """Replace JSON files of a directory, and their hashes in its manifest."""
    manifest = manifest or json.loads((folder / "manifest.json").read_text())
    (folder / "inference.pb").touch()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    paths = [p for p in folder.iterdir() if p.name != "manifest.json"]
    hashes = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file()}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "files": hashes}))


class Page(HTMLParser):
    """Ids, links and text of a page; `open` holds the tags that were not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids, self.links, self.attributes, self.open = [], [], [], []
        self.tags: list[str] = []
        self.wrong: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data
