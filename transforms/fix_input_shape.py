"""Set the shapes of inputs that a model leaves unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.ir.types import Shape
from qgraph.passes import Pass, option
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class FixInputShape(Pass):
    """Give inputs the shapes `(input, shape)` and infer every type again.

    An unknown dimension may become known; a known one may not change. Refusal: a dimension other
    than the batch that is still unknown. Raises UsageError for a shape that does not fit.
    """

    shapes: tuple[tuple[str, Shape], ...] = option(
        "Names of inputs with their shapes, like [[image, [1, 224, 224, 3]]].", default=()
    )
    name: ClassVar[str] = "fix-input-shape"

    def apply(self, rewriter: Rewriter) -> None:
        for name, shape in self.shapes:
            _fix(rewriter, name, shape)
        for name in rewriter.graph.inputs:
            known = rewriter.graph.types[name]
            if known.shape is None or None in known.shape[1:]:
                rewriter.refuse(
                    rewriter.graph.nodes[name],
                    f"the shape of {known} is not fully known: give it with --input-shape",
                )


def _fix(rewriter: Rewriter, name: str, shape: Shape) -> None:
    graph = rewriter.graph
    if name not in graph.inputs:
        raise UsageError(
            "the network has no input of this name", node=name, hint=f"inputs are {graph.inputs}"
        )
    declared = graph.types[name]
    wanted = declared.with_shape(shape)
    if not declared.accepts(wanted):
        raise UsageError(
            f"shape {wanted} does not fit the declared {declared}",
            node=name,
            hint="give a shape that differs only where the declared one is unknown (?)",
        )
    if wanted != declared:
        rewriter.log(graph.nodes[name], f"%{name} : {wanted}")
        graph.set_attrs(name, type=wanted)
