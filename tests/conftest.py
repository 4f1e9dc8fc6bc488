"""Settings of hypothesis for all tests: how long an example takes says nothing of it."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.helpers.extras"]

settings.register_profile(
    "qgraph", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("qgraph")
