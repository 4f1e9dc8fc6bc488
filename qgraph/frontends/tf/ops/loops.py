"""Loops of TensorFlow 2, written out, and the lists of tensors that they read and fill.

The condition is computed before each step, from values that are known when the graph is loaded.
A list exists only during import: it holds the values of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import UnsupportedError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.limits import MAX_LOOP_NODES, MAX_STEPS
from qgraph.frontends.tf.builder import Importer, Result, TensorList, TfSite
from qgraph.frontends.tf.ops.slicing import FULL, slice_attrs
from qgraph.frontends.tf.refused import layer_of

GIVE_SHAPE = "give the number of time steps, like --input-shape x=?,16,40"
OTHERWISE = "leave the loop out: --inputs and --outputs"


def _while(site: TfSite) -> Result:
    """The body for each step, as long as the condition holds."""
    builder = site.builder
    values: tuple[str | None, ...] = tuple(site.inputs)
    condition, body = (builder.function(site.node.function(key)) for key in ("cond", "body"))
    before = len(builder.graph.nodes)
    for step in range(MAX_STEPS + 1):
        (verdict,) = builder.call(condition, f"{site.name}/condition{step}", values)
        known = builder.partials.get(verdict or "")
        if known is None or not known.complete:
            raise _refusal(
                site,
                "the number of steps of this loop is unknown",
                f"{GIVE_SHAPE}; or {OTHERWISE}",
            )
        if not bool(known.values):
            return values
        values = builder.call(body, f"{site.name}/step{step}", values)
        if len(builder.graph.nodes) - before > MAX_LOOP_NODES:
            break
    raise _refusal(site, f"this loop has more than {MAX_STEPS} steps, or too many ops", OTHERWISE)


def _refusal(site: TfSite, reason: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"{reason} (`{site.node.label}` at `{site.name}`); a fixed-point network has a fixed "
        "number of steps, all of them written out",
        node=layer_of(site.name),
        hint=hint,
    )


# -- lists -----------------------------------------------------------------------------------------


def _list(site: TfSite) -> TensorList:
    found = site.builder.lists.get(site.inputs[0])
    if found is None:
        raise Inexpressible
    return found


def _index(site: TfSite, size: int) -> int:
    index = site.integers(1)
    if index is None or not 0 <= index[0] < size:
        raise Inexpressible
    return index[0]


def _reserve(site: TfSite) -> Result:
    site.without_effect(0)  # the shape of an element
    count = site.integers(1)
    if count is None or not 0 <= count[0] <= MAX_STEPS:
        return None
    return site.builder.add_list(site.name, (None,) * count[0])


def _from_tensor(site: TfSite) -> Result:
    site.without_effect(1)
    shape, x = site.shape(), site.inputs[0]
    if not shape or shape[0] is None:
        raise _refusal(site, "the number of time steps is unknown", GIVE_SHAPE)
    if shape[0] > MAX_STEPS:
        raise _refusal(site, f"{shape[0]} time steps are more than {MAX_STEPS}", OTHERWISE)
    items = []
    for k in range(shape[0]):
        attrs = slice_attrs([(k or None, k + 1, 1), *[FULL] * (len(shape) - 1)])
        part = site.helper(f"slice{k}", "slice", x, **attrs)
        items.append(site.helper(str(k), "squeeze", part, axes=(0,)))
    return site.builder.add_list(site.name, tuple(items))


def _get_item(site: TfSite) -> Result:
    site.without_effect(2)
    items = _list(site).items
    item = items[_index(site, len(items))]
    return None if item is None else site.emit("identity", item)


def _set_item(site: TfSite) -> Result:
    items = [*_list(site).items]
    items[_index(site, len(items))] = site.inputs[2]
    return site.builder.add_list(site.name, tuple(items))


def _stack(site: TfSite) -> Result:
    """The elements along a new first axis.

    Rows are joined along their last axis first: the transpose that puts samples first cancels.
    """
    site.without_effect(1)
    items = [item for item in _list(site).items if item is not None]
    if not items or len(items) < len(_list(site).items):
        return None
    if len(items) == 1:
        return site.emit("expand_dims", items[0], axis=0)
    shape = site.builder.graph.types[items[0]].shape
    if shape is None or len(shape) != 2 or shape[1] is None:
        parts = [
            site.helper(f"part{k}", "expand_dims", item, axis=0) for k, item in enumerate(items)
        ]
        return site.emit("concat", *parts, axis=0)
    joined = site.helper("joined", "concat", *items, axis=-1)
    split = site.helper("split", "reshape", joined, shape=(-1, len(items), shape[1]))
    return site.emit("transpose", split, perm=(1, 0, 2))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "While": _while,
        "StatelessWhile": _while,
        "TensorListReserve": _reserve,
        "TensorListFromTensor": _from_tensor,
        "TensorListGetItem": _get_item,
        "TensorListSetItem": _set_item,
        "TensorListStack": _stack,
    }
)
