"""Scaled dot-product attention, written out as products of matrices and a softmax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.ir.types import Array, Shape

FLOAT = 1  # of `softmax_precision`
KEY, VALUE, MASK, PAST_KEY, PAST_VALUE, LENGTHS = 1, 2, 3, 4, 5, 6  # inputs; the queries are 0
TURNED = (0, 2, 1, 3)  # [n, tokens, heads, depth] from and to [n, heads, tokens, depth]


@dataclass(frozen=True)
class HeadSizes:
    """Sizes of attention: heads of queries and of keys, tokens, the depth of keys and values."""

    batch: int | None
    heads: int
    key_heads: int
    queries: int
    keys: int
    depth: int
    value_depth: int


def _attention(site: OnnxSite) -> Result:
    """Attention of any number of heads, of which several may share keys and values."""
    node = site.node
    precision = node.integer("softmax_precision", FLOAT)
    if not _is_plain(site) or precision != FLOAT or any(node.outputs[3:]):
        return None
    site.without_effect("qk_matmul_output_mode")  # the output is not used
    query = _heads(site, 0, node.integer("q_num_heads"))
    key, value = (_heads(site, i, node.integer("kv_num_heads")) for i in (KEY, VALUE))
    if site.has(PAST_KEY) != site.has(PAST_VALUE):
        return None
    if site.has(PAST_KEY):
        key = site.helper("keys", "concat", site.inputs[PAST_KEY], key, axis=2)
        value = site.helper("values", "concat", site.inputs[PAST_VALUE], value, axis=2)
    sizes = _sizes(site, query, key, value)
    scale = node.real("scale", sizes.depth**-0.5)
    query = site.helper("scaled", "mul", query, site.scalar(scale, "scale"))
    turned = site.helper("turned_keys", "transpose", key, perm=(0, 1, 3, 2))
    rows = site.helper("scores", "batch_matmul", _shared(site, query, sizes), turned)
    scores = _masked(site, _capped(site, _split(site, rows, sizes, sizes.keys)), sizes)
    shares = site.helper("shares", "softmax", scores, axis=-1)
    mixed = site.helper("mixed", "batch_matmul", _shared(site, shares, sizes), value)
    result = _joined(site, mixed, sizes)
    presents = (
        site.builder.make(site.named(i), "identity", (v,), {}) for i, v in ((1, key), (2, value))
    )
    return (result, *presents) if any(node.outputs[1:]) else result


def _is_plain(site: OnnxSite) -> bool:
    present = [i for i in (0, KEY, VALUE, PAST_KEY, PAST_VALUE) if site.has(i)]
    return site.type().is_float and len({site.type(i).dtype for i in present}) == 1


def _heads(site: OnnxSite, i: int, heads: int) -> str:
    """Input `i` as [n, heads, tokens, depth]; of three axes, it is [n, tokens, heads * depth]."""
    if site.rank(i) == 4:
        return site.inputs[i]
    batch, tokens, width = site.known_shape(i)
    if heads < 1 or width is None or width % heads:
        raise ValueError(f"{heads} heads do not fit {site.type(i)}")
    shape = _target((batch, tokens, heads, width // heads))
    split = site.helper(f"split{i}", "reshape", site.inputs[i], shape=shape)
    return site.helper(f"heads{i}", "transpose", split, perm=TURNED)


def _target(shape: Shape) -> tuple[int, ...]:
    if shape.count(None) > 1:
        raise Inexpressible
    return tuple(-1 if d is None else d for d in shape)


def _sizes(site: OnnxSite, query: str, key: str, value: str) -> HeadSizes:
    types = site.builder.graph.types
    batch, *of_query = types[query].shape or ()
    known = [*of_query, *(types[key].shape or ())[1:3], *(types[value].shape or ())[3:]]
    numbers = [size for size in known if size is not None]
    if len(numbers) != 6:
        raise Inexpressible
    heads, queries, depth, key_heads, keys, value_depth = numbers
    if heads % key_heads:
        raise ValueError(f"{heads} heads of queries do not fit {key_heads} heads of keys")
    return HeadSizes(batch, heads, key_heads, queries, keys, depth, value_depth)


def _shared(site: OnnxSite, value: str, sizes: HeadSizes) -> str:
    """[n, heads, tokens, x] with the tokens of all heads that share keys in one axis."""
    if sizes.heads == sizes.key_heads:
        return value
    last = (site.builder.graph.types[value].shape or (None,))[-1]
    rows = sizes.heads // sizes.key_heads * sizes.queries
    shape = _target((sizes.batch, sizes.key_heads, rows, last))
    return site.helper("shared", "reshape", value, shape=shape)


def _split(site: OnnxSite, value: str, sizes: HeadSizes, last: int) -> str:
    """The inverse of `_shared`."""
    if sizes.heads == sizes.key_heads:
        return value
    shape = _target((sizes.batch, sizes.heads, sizes.queries, last))
    return site.helper("apart", "reshape", value, shape=shape)


def _joined(site: OnnxSite, mixed: str, sizes: HeadSizes) -> str:
    """The result, in the form of the queries."""
    if site.rank() == 4:
        if sizes.heads == sizes.key_heads:
            return site.emit("identity", mixed)
        shape = _target((sizes.batch, sizes.heads, sizes.queries, sizes.value_depth))
        return site.emit("reshape", mixed, shape=shape)
    apart = _split(site, mixed, sizes, sizes.value_depth)
    back = site.helper("back", "transpose", apart, perm=TURNED)
    width = sizes.heads * sizes.value_depth
    return site.emit("reshape", back, shape=_target((sizes.batch, sizes.queries, width)))


def _capped(site: OnnxSite, scores: str) -> str:
    """softcap * tanh(scores / softcap)"""
    cap = site.node.real("softcap", 0.0)
    if not cap:
        return scores
    small = site.helper("small", "mul", scores, site.scalar(1 / cap, "inverse_cap"))
    bent = site.helper("tanh", "tanh", small)
    return site.helper("capped", "mul", bent, site.scalar(cap, "cap"))


def _masked(site: OnnxSite, scores: str, sizes: HeadSizes) -> str:
    """The scores with masks added; those that are constant are one finite constant."""
    dtype = np.dtype(site.type().dtype)
    bias: Array = np.zeros((1, 1), dtype)
    if site.has(LENGTHS) or site.node.flag("is_causal"):
        bias = _of_positions(site, sizes).astype(dtype)
    mask = site.constant(MASK)
    if mask is not None:
        bias = bias + _bias_of(mask, sizes.keys).astype(dtype)
    elif site.has(MASK):
        if not site.type(MASK).is_float or site.known_shape(MASK)[-1] != sizes.keys:
            raise Inexpressible
        scores = site.helper("masked", "add", scores, site.inputs[MASK])
    if np.isneginf(bias).all(axis=-1).any():  # the result of a row without keys is 0
        raise Inexpressible
    if not bias.any():
        return scores
    finite = np.maximum(bias, np.finfo(dtype).min)
    return site.helper("biased", "add", scores, site.const(finite, "bias"))


def _of_positions(site: OnnxSite, sizes: HeadSizes) -> Array:
    """0 where a query may see a key: one of the sample's own and, if causal, one before it."""
    past = site.known_shape(PAST_KEY)[2] if site.has(PAST_KEY) else 0
    lengths = site.integers(LENGTHS) if site.has(LENGTHS) else None
    if past is None or (site.has(LENGTHS) and lengths is None):
        raise Inexpressible
    count = np.reshape(sizes.keys if lengths is None else lengths, (-1, 1, 1, 1))
    keys, queries = np.arange(sizes.keys), np.arange(sizes.queries)[:, None]
    allowed = keys < count
    if site.node.flag("is_causal"):
        allowed = allowed & (keys <= queries + (past if lengths is None else count - sizes.queries))
    return np.where(allowed, np.float32(0), np.float32(-np.inf))


def _bias_of(mask: Array, keys: int) -> Array:
    """A constant mask as an addend of scores; keys that it does not have are left out."""
    bias = np.where(mask, np.float32(0), np.float32(-np.inf)) if mask.dtype == bool else mask
    missing = keys - bias.shape[-1]
    around = [(0, 0)] * (bias.ndim - 1) + [(0, max(missing, 0))]
    return np.pad(bias, around, constant_values=-np.inf)


IMPORTERS: Mapping[str, Importer] = MappingProxyType({"Attention": _attention})
