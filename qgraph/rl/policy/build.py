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
from qgraph.records import to_json
from qgraph.rl.actor import ActorProgram, Packer, end_bits
from qgraph.rl.actor.observations import layout_hint
from qgraph.rl.head import Head
from qgraph.rl.policy import floats
from qgraph.rl.policy.balance import balance, nearer
from qgraph.rl.policy.bias import corrected
from qgraph.rl.policy.file import Packed
from qgraph.rl.policy.observation_columns import ObservationColumns
from qgraph.rl.policy.read import PolicyNetwork
from qgraph.rl.policy.recurrent_outputs import RecurrentOutputs, rows_of
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
    effort: str | None = None,
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
        observations: Array `[n, *shape]` as from the environment, for calibration; for a recurrent
            policy, sequences `[n, steps, *shape]`, which begin with states of zeros. Needed for
            `static`.
        about: Facts to add to the manifest of the file.
        first_bits: Bits of the first layers, for `dynamic` only; None takes those of `end_bits`.
        last_bits: Bits of the last layers, for `dynamic` only; None takes those of `end_bits`.
        progress: Called with the stage, how much is done, and how much there is.
        effort: How long `static` searches for a plan, as in `qgraph.quantize`.

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
    _check_head(network.program, head)
    _check_sequences(network, observations)
    manifest = _manifest(form, bits, network.program, head, observations, about, network.columns)
    if form is PackedForm.DYNAMIC:
        if observations is not None:
            observations = rows_with_states(network, observations)
        return _dynamic(network, bits, first_bits, last_bits, observations, manifest)
    if observations is None:
        raise CalibrationError(
            "a static policy must be calibrated on observations",
            hint=SettingText("give {observations}"),
        )
    if first_bits is not None or last_bits is not None:
        raise UsageError("first and last layers of a static policy always have 8 bits")
    return _static(network, bits, observations, manifest, progress, effort)


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
    columns: ObservationColumns | None = None,
) -> dict[str, object]:
    shape = program.shape if columns is None else columns.shape
    after = {state.output for state in program.states}
    if observations is not None and program.states:
        observations = observations.reshape(-1, *shape)
    return {
        "form": form,
        "bits": bits,
        "shape": list(shape),
        "outputs": [name for name in program.outputs if name not in after],
        "head": None if head is None else head.as_json(),
        "range": _span(shape, observations),
        **({} if columns is None else {"columns": to_json(columns)}),
        **(about or {}),
    }


def _check_head(program: ActorProgram, head: Head | None) -> None:
    """Raise UnsupportedError for a head on an output that is not one row of numbers."""
    output = program.outputs[0]
    shape = program.shapes()[output]
    if head is not None and len(shape) > 1:
        raise UnsupportedError(
            f"the output has shape {list(shape)} for each observation, but heads take one row",
            node=output,
            hint="end the policy at one number for each action, or pack it without a head",
        )


def _check_sequences(network: PolicyNetwork, observations: Array | None) -> None:
    """Raise CalibrationError for a recurrent policy whose observations are not sequences."""
    columns = network.columns
    if observations is None or columns is None or not columns.states:
        return
    if observations.ndim != 2 + len(columns.shape) or observations.shape[2:] != columns.shape:
        wanted = ", ".join(map(str, columns.shape))
        raise CalibrationError(
            f"a recurrent policy is calibrated on sequences [n, steps, {wanted}], found "
            f"{list(observations.shape)}",
            hint="sequences begin where episodes begin",
        )


def rows_with_states(network: PolicyNetwork, observations: Array) -> Array:
    """Observations as the program takes them.

    For a recurrent policy, sequences [n, steps, *shape] become rows with the states of the float
    policy, [n * steps, columns].
    """
    return rows_of(float_outputs(network), observations) if network.states else observations


def float_outputs(network: PolicyNetwork) -> RecurrentOutputs:
    """A recurrent network in float, on rows."""
    program, weights = network.program, network.weights
    return RecurrentOutputs(
        lambda rows: floats.run(program, weights, rows), program.states, program.outputs[0]
    )


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
    effort: str | None,
) -> Packed:
    from qgraph.compiler import quantize

    graph = network.graph
    if network.columns is not None:
        return _static_of_several(network, bits, observations, manifest, progress, effort)
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
    made = quantize(
        graph, {name: feed}, profile=profile_for(bits), progress=progress, effort=effort
    )
    return _packed_graph(made.graph, name, manifest)


def _static_of_several(
    network: PolicyNetwork,
    bits: int,
    observations: Array,
    manifest: dict[str, object],
    progress: Progress,
    effort: str | None,
) -> Packed:
    """A static policy with several inputs, such as states, which are carried as codes."""
    from qgraph.compiler import quantize

    graph, columns = network.graph, network.columns
    assert columns is not None
    steps = 1 if columns.states else 0
    mixed = np.random.default_rng(0).permutation(np.asarray(observations, np.float32))
    front = mixed.shape[: 1 + steps]
    flat = mixed.reshape(-1, columns.observed)
    feeds = {
        part.name: np.ascontiguousarray(
            columns.feeds(flat)[part.name].reshape(*front, *part.shape),
            graph.types[part.name].dtype,
        )
        for part in columns.parts
    }
    made = quantize(graph, feeds, profile=profile_for(bits), progress=progress, effort=effort)
    return _packed_graph(made.graph, None, manifest)


def _packed_graph(quantized: Graph, name: str | None, manifest: Mapping[str, object]) -> Packed:
    """Pack a calibrated graph with the input `name`, or None for several."""
    from qgraph.backends.engine.file import engine_file
    from qgraph.ir.printing import print_graph
    from qgraph.ir.reading import kind_of
    from qgraph.npz import npz_bytes
    from qgraph.program import lower
    from qgraph.program.islands import islands
    from qgraph.rl.policy.static import ends
    from qgraph.stored.write import constants

    program = lower(quantized)
    for island in islands(quantized, program):
        raise UnsupportedError(
            f"`{kind_of(island.nodes[0])}` is computed in float between integer layers",
            node=island.nodes[0].name,
            hint="pack the policy as dynamic, or leave the op out",
        )
    own = {
        **({} if name is None else ends(quantized, program, name)),
        **({} if name is None else {"outputs": list(quantized.outputs)}),
        "input": name,
        "facts": sorted(quantized.facts),
    }
    parts = {
        "graph": print_graph(quantized).encode(),
        "constants": npz_bytes(constants("constant", quantized)),
        "engine": engine_file(program),
    }
    return Packed({**manifest, **own}, {k: np.frombuffer(v, np.uint8) for k, v in parts.items()})


def _span(shape: tuple[int, ...], observations: Array | None) -> dict[str, list[float]] | None:
    """The range of each feature, or of each channel of images."""
    if observations is None:
        return None
    seen = np.asarray(observations)
    if seen.shape[1:] != shape or not len(seen):
        wanted = ", ".join(map(str, shape))
        raise CalibrationError(
            f"observations are [n, {wanted}], found {list(seen.shape)}",
            hint=layout_hint(seen.shape, shape) or "",
        )
    if not np.isfinite(seen).all():
        raise CalibrationError("observations have NaN or infinity")
    over = tuple(range(seen.ndim - 1))
    ends = {"low": seen.min(over), "high": seen.max(over)}
    return {end: [float(x) for x in values] for end, values in ends.items()}
