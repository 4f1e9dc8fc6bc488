"""The certificate: what is proved of a quantized network, and on what it was tried.

Accumulators come from the weights themselves; saturation from samples; equality from running each
form beside the integer reference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.artifacts import read_manifest, versions
from qgraph.backends.forms import Network
from qgraph.exact.sums import FLOAT32_EXACT, FLOAT64_EXACT
from qgraph.program.accumulators import Accumulator, accumulators
from qgraph.program.ops import RequantizeAttrs
from qgraph.quant.profile import Profile
from qgraph.verification.compare import Compared, Difference, Saturation, Tally, in_order

FORMAT = 1


def certificate(
    folder: Path, network: Network, compared: Compared, refused: Mapping[str, str]
) -> dict[str, Any]:
    """Everything, for JSON. refused: forms that were not compared, and why."""
    program = network.program
    return {
        "format": FORMAT,
        "versions": versions(),
        "hashes": hashes(folder, network),
        "profile": network.profile.name,
        "equal": bool(compared.tallies) and not any(t.wrong for t in compared.tallies.values()),
        "cases": dict(compared.cases),
        "forms": {
            **{name: _form(network, tally) for name, tally in compared.tallies.items()},
            **{name: {"compared": False, "reason": why} for name, why in refused.items()},
        },
        "accumulators": [_accumulator(a, network.profile) for a in accumulators(program)],
        "requantizations": [
            _requantization(step.output, step.attrs, compared.saturation.get(step.output))
            for step in program.steps
            if isinstance(step.attrs, RequantizeAttrs)
        ],
    }


def hashes(folder: Path, network: Network) -> dict[str, Any]:
    """SHA-256 of the graph as text, the profile, the weights' codes, and the samples."""
    files = read_manifest(folder)["files"]
    return {
        "graph": files.get("graph.txt"),
        "profile": files.get("profile.yaml"),
        "inference": files.get("inference.pb"),
        "weights": _of_arrays(network.program.constants),
        "inputs": _of_arrays(network.samples or network.sample),
    }


def _of_arrays(arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _form(network: Network, tally: Tally) -> dict[str, Any]:
    return {
        "compared": True,
        "tensors": len(tally.tensors),
        "elements": tally.elements,
        "differences": tally.wrong,
        "first": [_first(d) for d in in_order(network, tally.differences)][:1],
        "seconds": round(tally.seconds, 3),
    }


def _first(found: Difference) -> dict[str, Any]:
    return {**asdict(found), "index": list(found.index)}


def _accumulator(found: Accumulator, profile: Profile) -> dict[str, Any]:
    return {
        "layer": found.layer,
        "op": found.op,
        "terms": found.terms,
        "lowest": int(found.lows.min()),
        "highest": int(found.highs.max()),
        "partial_sums": found.magnitude,
        "channel": found.channel,
        "bits": found.width,
        "bits_before_bias": found.width_of_products,
        "bits_with_bias": found.width_with_bias,
        "bits_by_channel": found.widths.tolist(),
        "profile_bits": profile.accumulator_bits,
        "wraps": profile.accumulator_wraps and found.width > profile.accumulator_bits,
        "float32": _simulates(found.magnitude, FLOAT32_EXACT, "2^24"),
        "float64": _simulates(found.magnitude, FLOAT64_EXACT, "2^53"),
    }


def _simulates(magnitude: int, limit: int, name: str) -> dict[str, Any]:
    side = "at most" if magnitude <= limit else "which is more than"
    return {"exact": magnitude <= limit, "why": f"partial sums reach {magnitude}, {side} {name}"}


def _requantization(
    tensor: str, attrs: RequantizeAttrs, found: Saturation | None
) -> dict[str, Any]:
    return {
        "tensor": tensor,
        "shift": np.asarray(attrs.shift).tolist(),
        "rounding": attrs.rounding,
        "overflow": attrs.overflow,
        "range": [attrs.low, attrs.high],
        "saturated": None if found is None else asdict(found),
    }
