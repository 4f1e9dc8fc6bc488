"""Break down the time of small tensors: ``python -m benchmarks.chain``.

A graph has 64 ops of one kind in sequence, on one thread. With 16 elements, the time is that of a
call of the op; the time that 65,536 elements add is that of its arithmetic. Times are processor
times, which do not include waiting on a busy machine: the lowest decile of many rounds, in which
all chains take turns. `kept` means that all results stay in memory, as for a backward pass;
otherwise an op may reuse the memory of the previous one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import typer

from benchmarks.result import JsonFile, report
from benchmarks.tables import Table

SIZES = (16, 1 << 16)
CHAIN = 64
ROUNDS = 200
Run = Callable[[Any, Any], Any]


def runs() -> dict[str, Run]:
    """One chain for each op."""
    import tensorflow as tf

    from qgraph.rl.half.precision import plain_round
    from qgraph.train.fused import fused_ops

    ops = fused_ops().ops
    if ops is None:
        raise SystemExit(fused_ops().why)
    fixed = {"bits": 8, "signed": True}
    chains: dict[str, Callable[[Any, Any], Any]] = {
        "copy": lambda x, g: tf.raw_ops.DeepCopy(x=g),
        "add": lambda x, g: x + g,
        "quantize": lambda x, g: ops.qgraph_quantize(g, 1.3, **fixed),
        "quantize, backward": lambda x, g: ops.qgraph_quantize_grad(g, x, 1.3, **fixed)[0],
        "round_significand": lambda x, g: ops.qgraph_round_significand(g, bits=5),
        "round_significand by TF": lambda x, g: plain_round(g, 5),
        "TF fake_quant": lambda x, g: tf.quantization.fake_quant_with_min_max_vars(g, -2.0, 2.0),
        "TF fake_quant, backward": lambda x, g: (
            tf.quantization.fake_quant_with_min_max_vars_gradient(g, x, -2.0, 2.0)[0]
        ),
    }
    made = {name: chain_of(op, keep=False) for name, op in chains.items()}
    kept = {f"{name}, kept": chain_of(chains[name], keep=True) for name in ("copy", "quantize")}
    return made | kept


def chain_of(op: Callable[[Any, Any], Any], keep: bool) -> Run:
    """A chain of CHAIN ops; it returns the last result, or all."""
    import tensorflow as tf

    def run(x: Any, g: Any) -> Any:
        results = [g]
        for _ in range(CHAIN):
            results.append(op(x, results[-1]))
        return results if keep else results[-1]

    made: Run = tf.function(run)
    return made


def main(json_file: JsonFile = None) -> None:
    """Print the microseconds of one op."""
    import tensorflow as tf

    from qgraph.train import fused

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # Otherwise its graph optimiser would merge many additions into one op.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    fused.set_threads(1)
    rng = np.random.default_rng(0)
    tensors = {
        size: [tf.constant(rng.normal(size=size).astype(np.float32)) for _ in range(2)]
        for size in SIZES
    }
    chains = runs()
    times: dict[tuple[str, int], list[float]] = {(n, size): [] for n in chains for size in SIZES}
    for number in range(-3, ROUNDS):
        for (name, size), taken in times.items():
            start = time.process_time()
            results = chains[name](*tensors[size])
            microseconds = (time.process_time() - start) * 1e6 / CHAIN
            del results
            if number >= 0:
                taken.append(microseconds)
    lowest = {key: statistics.quantiles(taken, n=10)[0] for key, taken in times.items()}
    table = Table(
        "Microseconds of one op",
        {"op": "", **dict.fromkeys(("a call", "64K elements", "its work"), ".2f")},
        notes=[f"processor time of one thread, of {CHAIN} ops in a graph"],
    )
    for name in chains:
        small, large = (lowest[name, size] for size in SIZES)
        table.add(name, small, large, large - small)
    report("benchmarks.chain", [table], json_file, seeds=(0,))


if __name__ == "__main__":
    typer.run(main)
