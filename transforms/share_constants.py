"""Merge constants with equal numbers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

from qgraph.ir.graph import Node
from qgraph.ir.reading import value_of
from qgraph.ir.types import Array
from qgraph.passes import Pass
from qgraph.rewrite.rewriter import Rewriter

# Numbers to compare first: most constants differ in these, and a digest is slower.
COMPARED_FIRST = 64


@dataclass(frozen=True)
class ShareConstants(Pass):
    """Redirect all users of equal constants to the first of them.

    Exporters copy weights that layers share, and rewrites give each layer its own copy: batch
    norms folded into a convolution that is called twice make the same weights twice. Constants of
    one repeated number stay separate, because equal zeros may belong to layers that learn
    separately. Constants with control edges do not change.
    """

    name: ClassVar[str] = "share-constants"

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "share"
        first: dict[bytes, str] = {}
        for node in _repeated_kinds(rewriter):
            kept = first.setdefault(_key(value_of(node)), node.name)
            if kept != node.name:
                rewriter.added = []
                rewriter.replace_value(node.name, kept)


def _repeated_kinds(rewriter: Rewriter) -> list[Node]:
    """Constants that may be equal to another: of equal dtype and shape, with equal first numbers,
    and not of one repeated number.
    """
    graph = rewriter.graph
    kinds: dict[tuple[str, tuple[int, ...], bytes], list[Node]] = defaultdict(list)
    for node in graph.topological():
        if node.op == "const" and not node.control and not graph.control_users(node.name):
            array: Array = value_of(node)
            if array.dtype != object:
                some = array.flat[:: max(array.size // COMPARED_FIRST, 1)]
                kinds[array.dtype.str, array.shape, some.tobytes()].append(node)
    several = (nodes for nodes in kinds.values() if len(nodes) > 1)
    return [node for nodes in several for node in nodes if not _is_uniform(value_of(node))]


def _is_uniform(array: Array) -> bool:
    return array.size < 2 or bool((array == array.flat[0]).all())


def _key(array: Array) -> bytes:
    """A digest of dtype, shape and bytes: -0.0 and 0.0 differ, as do the kinds of NaN."""
    digest = blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    digest.update(array.tobytes())
    return digest.digest()
