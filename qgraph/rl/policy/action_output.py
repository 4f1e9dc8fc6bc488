"""The output of a model that has the actions."""

from __future__ import annotations

from qgraph.errors import UnsupportedError, UsageError
from qgraph.frontends.lost_state import layers_without_state
from qgraph.frontends.tf.importing import sweep
from qgraph.interpret import needed_for
from qgraph.ir.graph import Graph
from qgraph.ir.states import states_of
from qgraph.rl.setting_text import SettingText


def keep_action_output(graph: Graph) -> None:
    """Leave out outputs that are constant, such as version numbers, and refuse several others.

    The first output of a policy becomes the action, and exporters do not agree on their order.
    Outputs that are the next values of states stay.

    Raises:
        UsageError: Several outputs depend on inputs, and one of them may have the actions.
    """
    follows = set(states_of(graph).values())
    inputs = {public: _inputs_of(graph, value) for public, value in graph.outputs.items()}
    after = {public: value for public, value in graph.outputs.items() if public in follows}
    computed = {
        public: value
        for public, value in graph.outputs.items()
        if inputs[public] and public not in follows
    }
    if not computed:
        return
    alone = after or any(len(inputs[public]) == 1 for public in computed)
    if len(computed) > 1 and alone:
        listed = ", ".join(f"`{public}`" for public in computed)
        raise UsageError(
            f"the model has several outputs, and any of them may be the action: {listed}",
            hint=SettingText("name the one with the actions in {outputs}"),
        )
    graph.outputs = {**computed, **after}
    sweep(graph, keep=())


def with_states_last(graph: Graph) -> dict[str, str]:
    """The outputs of the graph, those that are the next values of states last, in their order."""
    follows = states_of(graph).values()
    own = {public: value for public, value in graph.outputs.items() if public not in follows}
    return own | {public: graph.outputs[public] for public in follows}


def check_state_is_kept(graph: Graph) -> None:
    """Raise UnsupportedError for a recurrent layer whose state does not leave the policy."""
    for name in layers_without_state(graph):
        raise UnsupportedError(
            "this recurrent layer has one step and starts each time with the same state, so the "
            "policy remembers nothing",
            node=name,
            hint=SettingText("export its states as inputs and outputs, and name them in {states}"),
        )


def _inputs_of(graph: Graph, value: str) -> list[str]:
    return [node.name for node in needed_for(graph, [value]) if node.op == "input"]
