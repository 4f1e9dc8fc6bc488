"""From a policy that was read to one that is packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from qgraph.errors import CalibrationError, UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.quant.profile import Profile, load_profile
from qgraph.rl.actor import ActorProgram, Packer, end_bits
from qgraph.rl.actor.observations import layout_hint
from qgraph.rl.head import Head
from qgraph.rl.policy.balance import balance, nearer
from qgraph.rl.policy.bias import corrected
from qgraph.rl.policy.file import Packed
from qgraph.rl.policy.read import PolicyNetwork
from qgraph.rl.setting_text import SettingText

FORMS = ("dynamic", "static")
STATIC_BITS = range(2, 9)
FEW_BITS = 4  # and fewer: first and last layers have 8 all the same


def pack(
    network: PolicyNetwork,
    head: Head | None = None,
    bits: int = 8,
    form: str = "dynamic",
    observations: Array | None = None,
    about: Mapping[str, Any] | None = None,
    first_bits: int | None = None,
    last_bits: int | None = None,
    progress: Progress = silent,
) -> Packed:
    """A policy with kernels in so many bits, ready to be written and run.

    form: `dynamic` is an actor's block, whose activations have a range in each step; `static` is an
    integer program with powers of two as scales, calibrated on `observations` ([n, *shape], as the
    environment gives them), exact to the bit. With observations, those outside of what they span
    are counted later, and held to powers of two; a dynamic form has features on one range where
    that brings it nearer to float (`qgraph.rl.policy.balance`), and the biases of its last layers
    are corrected (`qgraph.rl.policy.bias`). head: None where outputs are all that is wanted.
    about: goes into the file's manifest. first_bits and last_bits: bits of those layers, dynamic
    only; by default `end_bits`. Raises UsageError, CalibrationError, UnsupportedError.
    """
    if form not in FORMS:
        raise UsageError(f"unknown form `{form}`", hint=f"choose {' or '.join(FORMS)}")
    manifest: dict[str, Any] = {
        "form": form,
        "bits": bits,
        "shape": list(network.program.shape),
        "outputs": list(network.program.outputs),
        "head": None if head is None else head.as_json(),
        "range": _span(network, observations),
        **(about or {}),
    }
    if form == "dynamic":
        return _dynamic(network, bits, first_bits, last_bits, observations, manifest)
    if observations is None:
        raise CalibrationError(
            "a static policy is calibrated on observations", hint=SettingText("give {observations}")
        )
    if first_bits is not None or last_bits is not None:
        raise UsageError("first and last layers of a static policy have 8 bits by its profile")
    return _static(network, bits, observations, manifest, progress)


def _dynamic(
    network: PolicyNetwork,
    bits: int,
    first_bits: int | None,
    last_bits: int | None,
    observations: Array | None,
    manifest: dict[str, Any],
) -> Packed:
    def packer(program: ActorProgram) -> Packer:
        return Packer(program, bits, *end_bits(program, bits, first_bits, last_bits))

    if observations is not None:
        other = balance(network, observations)
        if other is not None:
            network = nearer(network, other, observations, packer)
        network = corrected(network, observations, packer)
    return Packed(manifest, {"block": packer(network.program).pack(network.weights)})


def profile_for(bits: int) -> Profile:
    """`policy-int8` or `policy-int4`, with weights of so many bits. Raises UsageError."""
    if bits not in STATIC_BITS:
        raise UsageError(f"a static policy has weights of 2 to 8 bits, not {bits}")
    known = load_profile("policy-int4" if bits <= FEW_BITS else "policy-int8")
    if known.bits.weight == bits:
        return known
    return replace(known, name=f"policy-int{bits}", bits=replace(known.bits, weight=bits))


def _static(
    network: PolicyNetwork,
    bits: int,
    observations: Array,
    manifest: dict[str, Any],
    progress: Progress,
) -> Packed:
    from qgraph.artifacts import constants
    from qgraph.backends.engine.file import engine_file
    from qgraph.compiler import quantize
    from qgraph.ir.printing import print_graph
    from qgraph.npz import npz_bytes
    from qgraph.program import lower
    from qgraph.rl.policy.static import ends

    graph = network.graph
    (name,) = (n for n in graph.inputs if graph.use_count(n))
    fixed = (graph.types[name].shape or (None,))[0]
    if fixed is not None:
        raise UnsupportedError(
            f"the policy takes exactly {fixed} observations at once",
            node=name,
            hint="export it with an open batch",
        )
    # Some are kept apart from others below: not the last episode from those before it.
    mixed = np.random.default_rng(0).permutation(observations)
    feed = np.ascontiguousarray(mixed, graph.types[name].dtype)
    made = quantize(graph, {name: feed}, profile=profile_for(bits), progress=progress).graph
    program = lower(made)
    manifest.update(
        **ends(made, program, name),
        outputs=list(made.outputs),
        input=name,
        facts=sorted(made.facts),
    )
    parts = {
        "graph": print_graph(made).encode(),
        "constants": npz_bytes(constants("constant", made)),
        "engine": engine_file(program),
    }
    return Packed(manifest, {k: np.frombuffer(v, np.uint8) for k, v in parts.items()})


def _span(network: PolicyNetwork, observations: Array | None) -> dict[str, list[float]] | None:
    """The least and the largest of each feature (of each channel of images)."""
    if observations is None:
        return None
    found = np.asarray(observations)
    if found.shape[1:] != network.program.shape or not len(found):
        wanted = ", ".join(map(str, network.program.shape))
        raise CalibrationError(
            f"observations are [n, {wanted}], found {list(found.shape)}",
            hint=layout_hint(found.shape, network.program.shape) or "",
        )
    if not np.isfinite(found).all():
        raise CalibrationError("observations hold NaN or infinity")
    over = tuple(range(found.ndim - 1))
    ends = {"low": found.min(over), "high": found.max(over)}
    return {end: [float(x) for x in values] for end, values in ends.items()}
