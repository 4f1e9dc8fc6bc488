"""Random networks for random targets through every form: no code may differ."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, note, reject, settings
from hypothesis import strategies as st

from qgraph.backends.forms import Network
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.ir.text import print_graph
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.recipes import FLOAT
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare, in_order
from tests.helpers.drawn_graphs import graphs, profiles
from tests.helpers.quantized import quantize

NETWORKS = (graphs(), profiles(), st.integers(0, 1000))
QUIET = {"suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def network_of(graph, profile, seed) -> Network:
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


def check(graph, profile, seed) -> None:
    network = network_of(graph, profile, seed)
    note(network.program)
    cases = [
        *from_samples(network, network.samples),
        *extreme_cases(network.program),
        random_case(network.program, seed),
    ]
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


@settings(max_examples=20, **QUIET)
@given(*NETWORKS)
def test_every_form(graph, profile, seed) -> None:
    check(graph, profile, seed)


@pytest.mark.fuzz
@settings(max_examples=2000, **QUIET)
@given(*NETWORKS)
def test_every_form_at_length(graph, profile, seed) -> None:
    check(graph, profile, seed)
