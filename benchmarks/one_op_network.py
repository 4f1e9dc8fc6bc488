"""A small network with one op, quantized and compared in every form: the user's side of `one_op`.

The last line is `equal` with forms, steps and a digest of the codes, or the error that a user sees.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qgraph.backends.network_forms import Network
from qgraph.errors import QGraphError, UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.exports import FORMS, form
from qgraph.ir.types import Fixed
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare

SHAPE = (1, 3, 8, 8)  # NCHW


def model(op: str) -> onnx.ModelProto:
    """The network: convolution, the op, convolution, the op."""
    rng = np.random.default_rng(0)
    shapes = {"w0": (4, 3, 3, 3), "w1": (4, 4, 3, 3)}
    weights = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in shapes.items()}
    kind = op.capitalize()
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="a"),
        helper.make_node(kind, ["a"], ["b"], name="b"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="c"),
        helper.make_node(kind, ["c"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def main(op: str) -> None:
    import qgraph

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model(op), path)
        samples = np.random.default_rng(1).standard_normal((8, *SHAPE[1:])).astype(np.float32)
        result = qgraph.quantize(path, {"x": samples})
        feeds = {"x": samples}
        codes = Reference(result.graph).run(feeds)
        program = lower(result.graph)
        network = Network(result.graph, program, load_profile("graffitist-int8"), feeds, feeds)
        cases = [*from_samples(network, feeds), *extreme_cases(program), random_case(program, 2)]
        carried = []
        for name in FORMS:
            made, place = form(name), Path(folder) / name
            if made.refusal(network) is not None:
                continue
            place.mkdir()
            try:
                made.write(network, place)
                runner = made.runner(network, place)
            except (ImportError, UnsupportedError) as error:
                if op in str(error):
                    raise
                continue  # a tool that is not installed
            tally = compare(network, {name: runner}, cases).tallies[name]
            if tally.wrong:
                sys.exit(f"{name}: {tally.wrong} of {tally.elements} codes differ")
            carried.append(name)
    digest = hashlib.sha256()
    for tensor in sorted(codes):
        value = codes[tensor]
        array = value.codes if isinstance(value, Fixed) else value
        digest.update(array.tobytes())
    steps = ", ".join(step.op for step in program.steps)
    print(f"equal in {', '.join(carried)}; steps {steps}; {digest.hexdigest()[:8]}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except QGraphError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", "; "))
