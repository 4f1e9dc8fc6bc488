"""Random networks for random targets through every form: no code may differ."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.forms import check_every_form
from tests.helpers.generators.graphs import WITH_ISLANDS, graphs
from tests.helpers.generators.profiles import profiles

NETWORKS = (graphs(kinds=WITH_ISLANDS), profiles(), st.integers(0, 1000))
QUIET = {"suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=20, **QUIET)
@given(*NETWORKS)
def test_every_form(graph, profile, seed) -> None:
    check_every_form(graph, profile, seed)


@pytest.mark.fuzz
@settings(max_examples=2000, **QUIET)
@given(*NETWORKS)
def test_every_form_at_length(graph, profile, seed) -> None:
    check_every_form(graph, profile, seed)
