"""Packing a policy network as a quantized policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qgraph.choices import PackedForm, chosen
from qgraph.errors import CalibrationError, UnsupportedError, UsageError
from qgraph.ir.graph import Graph
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

STATIC_BITS = range(2, 9)
FEW_BITS = 4  # with 4 bits or fewer, first and last layers still have 8


def pack(
    network: PolicyNetwork,
    head: Head | None = None,
    bits: int = 8,
    form: str = PackedForm.DYNAMIC,
    observations: Array | None = None,
    about: Mapping[str, object] | None = None,
    first_bits: int | None = None,
    last_bits: int | None = None,
    progress: Progress = silent,
) -> Packed:
    """Quantize a policy and pack it, ready to be written or run.

    With observations, later ones outside their range are counted and clipped. For the dynamic form,
    features are scaled to one range if this is closer to float (`qgraph.rl.policy.balance`), and
    the biases of the last layers are corrected (`qgraph.rl.policy.bias`).

    Args:
        network: The policy.
        head: The head; None if only outputs are needed.
        bits: Bits of weights: 8 to 2; for the dynamic form also 16 and 32.
        form: `dynamic` packs a block for an actor, which computes ranges of activations in each
            step. `static` compiles an integer program whose scales are powers of two, exact to the
            bit.
        observations: Array `[n, *shape]` as from the environment, for calibration. Needed for
            `static`.
        about: Facts to add to the manifest of the file.
        first_bits: Bits of the first layers, for `dynamic` only; None takes those of `end_bits`.
        last_bits: Bits of the last layers, for `dynamic` only; None takes those of `end_bits`.
        progress: Called with the stage, how much is done, and how much there is.

    Returns:
        The content of a file.

    Raises:
        UsageError: An option is out of range.
        CalibrationError: Observations are missing or do not fit.
        UnsupportedError: The form does not support the policy.

    Examples:
        >>> from qgraph.rl.head import Head
        >>> from qgraph.rl.policy import pack, read_policy
        >>> packed = pack(read_policy("policy.onnx"), Head("argmax"), bits=8)
        >>> print(packed.write("policy.qpol"))
        policy.qpol
    """
    form = chosen(PackedForm, form, "form")
    manifest = _manifest(form, bits, network.program, head, observations, about)
    if form is PackedForm.DYNAMIC:
        return _dynamic(network, bits, first_bits, last_bits, observations, manifest)
    if observations is None:
        raise CalibrationError(
            "a static policy must be calibrated on observations",
            hint=SettingText("give {observations}"),
        )
    if first_bits is not None or last_bits is not None:
        raise UsageError("first and last layers of a static policy always have 8 bits")
    return _static(network, bits, observations, manifest, progress)


def pack_calibrated(
    graph: Graph,
    program: ActorProgram,
    head: Head | None,
    bits: int,
    observations: Array | None = None,
    about: Mapping[str, object] | None = None,
) -> Packed:
    """Pack the calibrated graph of a program as a static policy.

    bits: of weights, for the manifest. observations: [n, *shape], whose range later ones are
    compared with. Raises UnsupportedError for an op between integer layers that stays float.
    """
    manifest = _manifest(PackedForm.STATIC, bits, program, head, observations, about)
    return _packed_graph(graph, program.observation, manifest)


def _manifest(
    form: PackedForm,
    bits: int,
    program: ActorProgram,
    head: Head | None,
    observations: Array | None,
    about: Mapping[str, object] | None,
) -> dict[str, object]:
    return {
        "form": form,
        "bits": bits,
        "shape": list(program.shape),
        "outputs": list(program.outputs),
        "head": None if head is None else head.as_json(),
        "range": _span(program, observations),
        **(about or {}),
    }


def _dynamic(
    network: PolicyNetwork,
    bits: int,
    first_bits: int | None,
    last_bits: int | None,
    observations: Array | None,
    manifest: dict[str, object],
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
    """`policy-int8` or `policy-int4`, with weights of `bits` bits. Raises UsageError."""
    if bits not in STATIC_BITS:
        raise UsageError(f"a static policy can have weights of 2 to 8 bits, not {bits}")
    known = load_profile("policy-int4" if bits <= FEW_BITS else "policy-int8")
    if known.bits.weight == bits:
        return known
    return replace(known, name=f"policy-int{bits}", bits=replace(known.bits, weight=bits))


def _static(
    network: PolicyNetwork,
    bits: int,
    observations: Array,
    manifest: dict[str, object],
    progress: Progress,
) -> Packed:
    from qgraph.compiler import quantize

    graph = network.graph
    (name,) = (n for n in graph.inputs if graph.is_used(n))
    fixed = (graph.types[name].shape or (None,))[0]
    if fixed is not None:
        raise UnsupportedError(
            f"the policy takes batches of {fixed} observations only",
            node=name,
            hint="export it with an open batch size",
        )
    # `quantize` keeps some samples apart: they must not all be of the last episode.
    mixed = np.random.default_rng(0).permutation(observations)
    feed = np.ascontiguousarray(mixed, graph.types[name].dtype)
    quantized = quantize(graph, {name: feed}, profile=profile_for(bits), progress=progress).graph
    return _packed_graph(quantized, name, manifest)


def _packed_graph(quantized: Graph, name: str, manifest: Mapping[str, object]) -> Packed:
    """Pack a calibrated graph with the input `name`."""
    from qgraph.artifacts import constants
    from qgraph.backends.engine.file import engine_file
    from qgraph.ir.printing import print_graph
    from qgraph.ir.reading import kind_of
    from qgraph.npz import npz_bytes
    from qgraph.program import lower
    from qgraph.program.islands import islands
    from qgraph.rl.policy.static import ends

    program = lower(quantized)
    for island in islands(quantized, program):
        raise UnsupportedError(
            f"`{kind_of(island.nodes[0])}` is computed in float between integer layers",
            node=island.nodes[0].name,
            hint="pack the policy as dynamic, or leave the op out",
        )
    own = {
        **ends(quantized, program, name),
        "outputs": list(quantized.outputs),
        "input": name,
        "facts": sorted(quantized.facts),
    }
    parts = {
        "graph": print_graph(quantized).encode(),
        "constants": npz_bytes(constants("constant", quantized)),
        "engine": engine_file(program),
    }
    return Packed({**manifest, **own}, {k: np.frombuffer(v, np.uint8) for k, v in parts.items()})


def _span(program: ActorProgram, observations: Array | None) -> dict[str, list[float]] | None:
    """The range of each feature, or of each channel of images."""
    if observations is None:
        return None
    seen = np.asarray(observations)
    if seen.shape[1:] != program.shape or not len(seen):
        wanted = ", ".join(map(str, program.shape))
        raise CalibrationError(
            f"observations are [n, {wanted}], found {list(seen.shape)}",
            hint=layout_hint(seen.shape, program.shape) or "",
        )
    if not np.isfinite(seen).all():
        raise CalibrationError("observations have NaN or infinity")
    over = tuple(range(seen.ndim - 1))
    ends = {"low": seen.min(over), "high": seen.max(over)}
    return {end: [float(x) for x in values] for end, values in ends.items()}
