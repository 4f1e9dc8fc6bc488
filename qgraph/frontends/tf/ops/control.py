"""Constants, placeholders, identities, and branches whose condition is known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import LoadError, UnsupportedError
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.node import decode_constant

IDENTITIES = (
    "Identity", "StopGradient", "PreventGradient", "CheckNumerics", "CheckNumericsV2", "Snapshot",
    "ReadVariableOp", "PlaceholderWithDefault", "EnsureShape", "RefIdentity", "Print",
)  # fmt: skip
VARIABLES = ("Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable", "TemporaryVariable")


def _const(site: TfSite) -> Result:
    if site.node.dtype("dtype").startswith(("qint", "quint")):
        return None
    return site.const(decode_constant(site.node))


def _identity(site: TfSite) -> Result:
    """The first input; other inputs are only printed."""
    site.without_effect(*range(1, len(site.inputs)))
    if site.inputs[0] in site.builder.lists:
        return site.inputs[0]
    return site.emit("identity", site.inputs[0])


def _identity_n(site: TfSite) -> Result:
    first, *rest = site.inputs
    others = [site.helper(str(i + 1), "identity", v) for i, v in enumerate(rest)]
    return (site.emit("identity", first), *others)


def _no_op(site: TfSite) -> Result:
    return ()


def _switch(site: TfSite) -> Result:
    condition = site.constant(1)
    if condition is None:
        raise UnsupportedError(
            "this branch depends on a value that is unknown when the graph is loaded",
            node=site.node.name,
            hint="freeze the graph for inference, with constants instead of `is_training`",
        )
    data = site.inputs[0]
    return (None, data) if bool(condition) else (data, None)


def _merge(site: TfSite) -> Result:
    site.without_effect(*range(len(site.inputs)))  # one is live
    for index, value in enumerate(site.live):
        if value is not None:
            return (site.emit("identity", value), site.const(index, "index"))
    return (None, None)


def _variable(site: TfSite) -> Result:
    raise LoadError(
        "the graph holds a variable, so its weights are not in this file",
        node=site.node.name,
        hint="freeze it, or load its checkpoint (the .meta file) or its SavedModel directory",
    )


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Const": _const,
        "IdentityN": _identity_n,
        "NoOp": _no_op,
        "Switch": _switch,
        "RefSwitch": _switch,
        "Merge": _merge,
        "RefMerge": _merge,
        **dict.fromkeys(IDENTITIES, _identity),
        **dict.fromkeys(VARIABLES, _variable),
    }
)
