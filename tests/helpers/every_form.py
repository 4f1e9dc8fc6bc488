"""Every form of one network against the integer reference: no code may differ."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import event, note, reject

from qgraph.backends.network_forms import Network
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare, in_order
from tests.helpers.quantized import quantize


def network_of(graph: Graph, profile: Profile, seed: int) -> Network:
    """The network as quantized, calibrated on a few random samples."""
    data = {"x": np.random.default_rng(seed).normal(size=(4, *graph.types["x"].shape[1:]))}
    data = {name: array.astype(np.float32) for name, array in data.items()}
    note(print_graph(graph))
    note(profile)
    try:
        PassManager(FLOAT).run(graph)
        quantize(graph, profile, data)
        program = lower(graph)
    except (UnsupportedError, ExactnessError) as error:
        event(f"not quantized: {error.message.split(':')[0][:40]}")
        reject()
    return Network(graph, program, profile, data, data)


def check_every_form(graph: Graph, profile: Profile, seed: int) -> Network:
    """Every form that can carry the network; on samples, extreme and random codes."""
    network = network_of(graph, profile, seed)
    assert_forms(network, seed)
    return network


def assert_forms(network: Network, seed: int = 0) -> dict[str, int]:
    """Elements compared, by the form that carries the network."""
    note(network.program)
    cases = [
        *from_samples(network, network.samples),
        *extreme_cases(network.program),
        random_case(network.program, seed),
    ]
    compared: dict[str, int] = {}
    for name in FORMS:
        made = form(name)
        refusal = made.refusal(network)
        event(f"{name}: {'carried' if refusal is None else 'refused'}")
        if refusal is not None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                made.write(network, Path(folder))
                runner = made.runner(network, Path(folder))
            except (UnsupportedError, ImportError) as error:  # a tool that is not installed
                event(f"{name}: {error}")
                continue
            tally = compare(network, {name: runner}, cases).tallies[name]
        assert tally.wrong == 0, (name, next(in_order(network, tally.differences)))
        assert tally.elements
        compared[name] = tally.elements
    return compared
