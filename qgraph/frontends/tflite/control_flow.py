"""Nodes with bodies in other subgraphs: the branch of an `IF` that is taken."""

from __future__ import annotations

from qgraph.errors import UnsupportedError
from qgraph.frontends.tf.builder import Result, TfSite

BRANCHES = ("else", "then")


def taken_branch(site: TfSite) -> Result:
    """The results of the branch that a known condition selects."""
    builder, condition = site.builder, site.inputs[0]
    partial = builder.partials.get(condition)
    known = builder.constant(condition)
    if partial is not None and partial.complete:
        known = partial.values
    if known is None or known.size != 1:
        raise UnsupportedError(
            f"the condition of this `{site.node.label}` depends on the input",
            node=site.node.name,
            hint="convert the model with one of the branches; both would have to be computed",
        )
    key = BRANCHES[bool(known.reshape(()))]
    site.without_effect(*BRANCHES)
    body = builder.function(site.node.function(key))
    return builder.call(body, f"{site.name}/{key}", site.inputs[1:])
