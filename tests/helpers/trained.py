"""Networks whose batch norms have the statistics of known images, as after training."""

import numpy as np

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from tests.helpers.layers import WINDOW

SIZE = 12


def images(count: int = 64, seed: int = 5) -> np.ndarray:
    """Smooth images of 0 to 255, each channel with its own mean."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(count, 4, 4, 1)) + 0.3 * rng.normal(size=(count, 4, 4, 3))
    fine = np.repeat(np.repeat(coarse, SIZE // 4, axis=1), SIZE // 4, axis=2)
    fine = fine + 0.2 * rng.normal(size=fine.shape)
    return np.clip(fine * 50 + [150, 120, 90], 0, 255).astype(np.float32)


def trained(behind_relu: bool = False, activation: str = "relu6", data=None) -> Graph:
    """Three convolutions, a mean, a classifier; a batch norm before or behind each activation."""
    rng = np.random.default_rng(0)
    data = images() if data is None else data
    g = Graph("trained")
    x = g.input("image", "float32", (None, SIZE, SIZE, 3))
    for i, (inputs, outputs) in enumerate(((3, 8), (8, 8), (8, 12))):
        w = rng.normal(size=(3, 3, inputs, outputs)).astype(np.float32) / (3 * inputs**0.5)
        window = {**WINDOW, "padding": "valid"}
        x = g.add("conv2d", x, g.const(w, f"w{i}"), name=f"conv{i}", attrs=window)
        if behind_relu:
            found = evaluate(g, {"image": data}, [x])[x]
            offset = g.const((found.std() - found.mean((0, 1, 2))).astype(np.float32), f"b{i}")
            x = g.add(activation, g.add("bias_add", x, offset, name=f"bias{i}"), name=f"act{i}")
        found = evaluate(g, {"image": data}, [x])[x].astype(np.float64)
        mean, variance = found.mean(axis=(0, 1, 2)), found.var(axis=(0, 1, 2))
        gamma, beta = rng.uniform(0.5, 2, outputs), rng.normal(size=outputs)
        names = [
            g.const(v.astype(np.float32), f"{n}{i}")
            for n, v in zip(("gamma", "beta", "mean", "variance"),
                            (gamma, beta, mean, variance), strict=True)
        ]  # fmt: skip
        x = g.add("batch_norm", x, *names, name=f"bn{i}", attrs={"epsilon": 1e-3})
        if not behind_relu:
            x = g.add(activation, x, name=f"act{i}")
    x = g.add("mean", x, name="mean", attrs={"axes": (1, 2), "keepdims": False})
    w = g.const(rng.normal(size=(12, 5)).astype(np.float32), "w")
    x = g.add("bias_add", g.add("matmul", x, w, name="fc"), g.const(np.zeros(5, np.float32), "b"))
    g.outputs["scores"] = x
    return g


def without_norms() -> Graph:
    """A network of one layer without statistics."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 3))
    g.outputs["y"] = g.add("matmul", x, g.const(np.eye(3, dtype=np.float32), "w"))
    return g
