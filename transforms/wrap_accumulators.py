"""Model accumulators that wrap around, where the profile declares them (docs/numerics.md, 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.exact.bounds import bounds, in_accumulator
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.passes import Pass, option
from qgraph.quant.topology import ValueExponents, known_exponent, value_exponent
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class WrapAccumulators(Pass):
    """Put a wrapping quantizer after every sum that can exceed `bits`, as in hardware."""

    bits: int = option("Bits of an accumulator.", low=2, high=64)
    name: ClassVar[str] = "wrap-accumulators"
    requires: ClassVar[frozenset[str]] = frozenset({"calibrated"})

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        found = bounds(graph)
        exponents: ValueExponents = {}
        wrapping: set[str] = set()
        for node in list(graph.topological()):
            exponents[node.name] = value_exponent(node, exponents)
            bound = found.get(node.name)
            if bound is None or not in_accumulator(node, bound):
                continue
            # A later term of a wrapped sum may bring it back into the range.
            if bound.width <= self.bits and not wrapping.intersection(node.inputs):
                continue
            wrapping.add(node.name)
            exponent = known_exponent(exponents, node.name)
            spec = QuantSpec(self.bits, True, Role.ACCUMULATOR, exponent, overflow=Overflow.WRAP)
            users = graph.users(node.name)
            wrapped = graph.add(
                "quantize", node.name, name=f"{node.name}/acc{self.bits}", attrs={"spec": spec}
            )
            for user in users:
                inputs = tuple(wrapped if v == node.name else v for v in user.inputs)
                graph.replace(replace(user, inputs=inputs))
            rewriter.log(node, f"{wrapped}: wraps at {self.bits} bits, sums need {bound.width}")
