"""All that a report says, read from an output directory: a page shows it, `--json` prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qgraph.archives import read_json, reading
from qgraph.artifacts import CERTIFICATE, read_manifest
from qgraph.errors import LoadError
from qgraph.files import sha256_of
from qgraph.quant.plan import Plan
from qgraph.report.advice import next_steps, verdict
from qgraph.rewrite.trace import without_numbers

Facts = dict[str, Any]
_FORCES = "forces one scale on "


def read_facts(folder: Path) -> Facts:
    """The facts of a network that `qgraph quantize` wrote. Raises LoadError."""
    with reading(folder, "is not as it was written", "quantize the model again"):
        return _facts(folder, read_manifest(folder))


def _facts(folder: Path, manifest: Mapping[str, Any]) -> Facts:
    statistics = _read(folder, "statistics.json", manifest)
    log = _read(folder, "rewrites.json", manifest)
    tensors = {
        t["name"]: {**t, "elements": 0, **statistics["tensors"].get(t["name"], {})}
        for t in manifest["tensors"]
    }
    for tensor in tensors.values():
        tensor["clipped"] = _clipped(tensor)
    known = {s["layer"]: s for s in manifest.get("sensitivity") or ()}
    makers = {y["output"]: i for i, y in enumerate(manifest["layers"])}
    facts = {
        "summary": _summary(manifest, statistics),
        "layers": [
            _layer(i, {**layer, **_outputs_feel(known.get(layer["name"], {}))}, tensors, makers)
            for i, layer in enumerate(manifest["layers"])
        ],
        "scale_groups": _groups(manifest["scale_groups"], tensors, log["rewrites"]),
        "float_ops": manifest["float_ops"],
        "sensitivity": manifest.get("sensitivity"),
        "mixed": manifest.get("mixed"),
        "trials": [_trial(t) for t in manifest["trials"]],
        "rewrites": _by_pass(log["rewrites"]),
        "refusals": _alike(log["refusals"]),
        "certificate": _certificate(folder, manifest),
    }
    return {**facts, "verdict": verdict(facts), "next": next_steps(facts)}


def _read(folder: Path, name: str, manifest: Mapping[str, Any]) -> Any:
    path = folder / name
    if not path.is_file() or sha256_of(path) != manifest["files"].get(name):
        raise LoadError(
            "is missing, or not as it was written", node=str(path), hint="quantize the model again"
        )
    return read_json(path)


def _summary(manifest: Mapping[str, Any], statistics: Mapping[str, Any]) -> Facts:
    same = ("model", "model_sha256", "calibration_samples", "calibration_method", "versions")
    profile = manifest["profile"]
    return {
        **{key: manifest[key] for key in same},
        "profile": profile["name"],
        "profile_description": profile["description"],
        "inputs": manifest["inputs"],
        "outputs": manifest["outputs"],
        "measured_samples": statistics["samples"],
        "outputs_sqnr_db": statistics["outputs_sqnr_db"],
        "agreement": manifest["agreement"],
        "effort": manifest["effort"],
        "warnings": manifest["warnings"],
        "notes": manifest["notes"],
        "data_free": manifest["data_free"],
        "domain": manifest["domain"],
        "inputs_seen": manifest["inputs_seen"],
        "input_doubts": manifest["input_doubts"],
        "training": manifest["training"],
        "plan": str(Plan(**manifest["plan"])),
        "biases_corrected": bool(manifest["plan"].get("correct_bias")),
        "plan_spec": Plan(**manifest["plan"]).spec(),
    }


def _certificate(folder: Path, manifest: Mapping[str, Any]) -> Facts | None:
    """What `qgraph verify` compared, if it was this network; None where it was not run."""
    try:
        with reading(folder / CERTIFICATE):
            found: Facts = read_json(folder / CERTIFICATE)
            if found["hashes"]["graph"] != manifest["files"].get("graph.txt"):
                return None
            return {key: found[key] for key in ("equal", "cases", "forms")}
    except LoadError:
        return None


def _clipped(tensor: Mapping[str, Any]) -> float | None:
    """The share of elements that lie past the ends of the range; None if not counted."""
    if not tensor.get("elements"):
        return None
    past: int = tensor["clipped_below"] + tensor["clipped_above"]
    return past / int(tensor["elements"])


def _outputs_feel(found: Mapping[str, Any]) -> Facts:
    """What sensitivity says of a layer: reasons, and the outputs if all up to it is quantized."""
    keys = ("reasons", "so_far_sqnr_db", "so_far_top1")
    return {key: found.get(key) for key in keys}


def _layer(
    index: int,
    layer: Mapping[str, Any],
    tensors: Mapping[str, Facts],
    makers: Mapping[str | None, int],
) -> Facts:
    output = tensors.get(layer["output"] or "")
    inputs = [
        {**tensors[name], "layer": f"layer-{makers[name] + 1}" if name in makers else None}
        for name in layer["input_scales"]
    ]
    before = [t["sqnr_db"] for t in inputs if t["sqnr_db"] is not None]
    return {
        **layer,
        "id": f"layer-{index + 1}",
        "clipped": output["clipped"] if output else None,
        "input_sqnr_db": min(before, default=None),
        "input_tensors": inputs,
        "weight_tensor": tensors.get(layer["weight"]),
        "output_tensor": output,
    }


def _trial(trial: Mapping[str, Any]) -> Facts:
    """One plan that was tried, and what it gave."""
    plan = Plan(**trial["plan"])
    return {**trial["agreement"], "plan": str(plan), "plan_spec": plan.spec()}


# -- scale groups ---------------------------------------------------------------------------


def _groups(
    groups: Mapping[str, Any], tensors: Mapping[str, Facts], rewrites: list[Mapping[str, str]]
) -> list[Facts]:
    forcing = [
        (set(r["after"].removeprefix(_FORCES).split(", ")), r)
        for r in rewrites
        if r["pass_name"] == "mark-scale-groups" and r["after"].startswith(_FORCES)
    ]
    forced_by: dict[str, list[Facts]] = {}
    for names, rewrite in forcing:
        group = next((tensors[n]["group"] for n in names if n in tensors), None)
        forced_by.setdefault(group or "", []).append(
            {"node": rewrite["node"], "op": _op(rewrite["before"]), "members": sorted(names)}
        )
    return [
        _group(name, group["exponent"], [tensors[m] for m in group["members"]], forced_by)
        for name, group in groups.items()
    ]


def _op(text: str) -> str:
    found = re.search(r" = (\w+)\(", text)
    return found[1] if found else "?"


def _group(
    name: str, exponent: Any, tensors: list[Facts], forced_by: Mapping[str, list[Facts]]
) -> Facts:
    members = [_member(t) for t in tensors]
    known = [m for m in members if m["max_exponent"] is not None]
    widest = min(known, key=lambda m: int(m["max_exponent"]), default=None)
    return {
        "name": name,
        "id": f"group-{name}",
        "exponent": exponent,
        "inside_layer": all(m["role"] not in ("input", "activation") for m in members),
        "widest": widest["name"] if widest else None,
        "forced_by": forced_by.get(name, []),
        "members": members,
        "lost_bits": max((m["lost_bits"] for m in known), default=0),
    }


def _member(tensor: Mapping[str, Any]) -> Facts:
    """What a tensor's own scale, which clips nothing, would be; what sharing one costs it."""
    own, shared = tensor.get("max_exponent"), tensor["exponent"]
    lost = max(own - shared, 0) if own is not None and isinstance(shared, int) else 0
    alone, free = tensor.get("sqnr_alone_db"), tensor.get("sqnr_max_db")
    cost = None
    if lost and alone is not None and free is not None:
        cost = round(max(free - alone, 0.0), 2)
    return {
        **{key: tensor[key] for key in ("name", "role", "bits", "exponent", "sqnr_db")},
        "max_exponent": own,
        "lost_bits": lost,
        "cost_db": cost,
    }


# -- the log --------------------------------------------------------------------------------


def _by_pass(rewrites: list[Mapping[str, str]]) -> list[Facts]:
    found: dict[str, list[Facts]] = {}
    for rewrite in rewrites:
        kept = {key: without_numbers(rewrite[key]) for key in ("rule", "node", "before", "after")}
        found.setdefault(rewrite["pass_name"], []).append(kept)
    return [{"pass": name, "count": len(all_), "rewrites": all_} for name, all_ in found.items()]


def _alike(refusals: list[Mapping[str, str]]) -> list[Facts]:
    found: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        found.setdefault((refusal["pass_name"], refusal["reason"]), []).append(refusal["node"])
    return [{"pass": p, "reason": reason, "nodes": n} for (p, reason), n in found.items()]
