"""Time the trainable quantizer, forward and backward: ``python -m benchmarks.quantizer``.

Each row is a process of its own with so many threads. In it all variants are warmed alike and take
turns; a time is a median, and ratios are of one run. Small tensors are timed as a chain within one
graph, because calling TensorFlow costs more than they do. The floor is one copy (the fastest of
TensorFlow's two) and one add: the least memory traffic that a forward and a backward pass have.
Memory is that of the tensors which a forward pass under a tape leaves behind, its result included.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZES = (1 << 16, 1 << 20, 1 << 24, 1 << 26)
THREADS = (1, 2)
LOG2_T = 1.3
BITS = 8

VARIANTS = ("fused", "native", "XLA", "plain ops", "plain XLA", "TF fake_quant")
Step = Callable[[Any, Any], Any]
Forward = Callable[[Any, Any], Any]


def plain_ops(x: Any, log2_t: Any) -> Any:
    """The quantizer as one would write it, gradients left to TensorFlow."""
    import tensorflow as tf

    whole_log2_t = log2_t + tf.stop_gradient(tf.math.ceil(log2_t) - log2_t)
    scale = tf.pow(2.0, whole_log2_t - (BITS - 1))
    steps = x / scale
    whole = steps + tf.stop_gradient(tf.round(steps) - steps)
    return tf.clip_by_value(whole, -(2.0 ** (BITS - 1)), 2.0 ** (BITS - 1) - 1) * scale


def forwards() -> dict[str, tuple[Forward, bool]]:
    """Each quantizer, and whether XLA compiles it."""
    import tensorflow as tf

    from qgraph.train.quantizer import quantize

    def fake_quant(x: Any, log2_t: Any) -> Any:
        return tf.quantization.fake_quant_with_min_max_vars(x, -log2_t, log2_t)

    return {
        "fused": (lambda x, t: quantize(x, t, BITS, True, form="fused"), False),
        "native": (lambda x, t: quantize(x, t, BITS, True, form="native"), False),
        "XLA": (lambda x, t: quantize(x, t, BITS, True), True),
        "plain ops": (plain_ops, False),
        "plain XLA": (plain_ops, True),
        "TF fake_quant": (fake_quant, False),
    }


def step_of(forward: Forward, xla: bool, chain: int) -> Step:
    """`chain` quantizers, one behind the other, and their gradients."""
    import tensorflow as tf

    def step(x: Any, g: Any) -> Any:
        thresholds = [tf.constant(LOG2_T) for _ in range(chain)]
        with tf.GradientTape() as tape:
            tape.watch([x, thresholds])
            y = x
            for threshold in thresholds:
                y = forward(y, threshold)
        return y, tape.gradient(y, [x, thresholds], g)

    made: Step = tf.function(step, jit_compile=xla)
    return made


def floor_of(copy: Callable[[Any], Any], chain: int) -> Step:
    """`chain` copies of x, and as many additions to g."""
    import tensorflow as tf

    def step(x: Any, g: Any) -> Any:
        y = x
        for _ in range(chain):
            y = copy(y)
        for _ in range(chain):
            g = x + g
        return y, g

    made: Step = tf.function(step)
    return made


def milliseconds(steps: dict[str, Step], x: Any, g: Any, rounds: int) -> dict[str, float]:
    """Median time of each; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(-2, rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            results = step(x, g)
            taken = (time.perf_counter() - start) * 1e3
            del results
            if number >= 0:
                times[name].append(taken)
    return {name: statistics.median(taken) for name, taken in times.items()}


def measure(size: int, threads: int) -> dict[str, float]:
    """Milliseconds of one forward and backward pass of each variant, and of the floor."""
    import tensorflow as tf

    from qgraph.train import fused

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    fused.set_threads(threads)
    chain = 16 if size <= 1 << 16 else 1
    rng = np.random.default_rng(size)
    x, g = (tf.constant(rng.normal(size=size).astype(np.float32)) for _ in range(2))
    copies = {"copy": lambda v: tf.raw_ops.DeepCopy(x=v), "relu": tf.nn.relu}
    steps = {name: floor_of(copy, chain) for name, copy in copies.items()}
    steps |= {name: step_of(*how, chain) for name, how in forwards().items()}
    times = milliseconds(steps, x, g, rounds=max(7, min(100, (1 << 25) // size)))
    floor = min(times.pop(name) for name in copies)
    return {"floor": floor / chain} | {name: taken / chain for name, taken in times.items()}


def memory(size: int, variant: str) -> float:
    """Bytes an element that a forward pass under a tape leaves behind, with its result."""
    import tensorflow as tf

    forward, xla = forwards()[variant]
    run = tf.function(forward, jit_compile=True) if xla else forward
    x, log2_t = tf.constant(np.ones(size, np.float32)), tf.constant(LOG2_T)
    before = alive()
    with tf.GradientTape() as tape:
        tape.watch([x, log2_t])
        y = run(x, log2_t)
    kept = alive() - before
    del y, tape
    return kept / size


def alive() -> int:
    """Bytes of all tensors that Python or a tape still holds; those in one buffer count once."""
    import tensorflow as tf

    gc.collect()
    eager = type(tf.constant(0))
    tensors = [o for o in gc.get_objects() if isinstance(o, eager)]
    views = [np.asarray(memoryview(t)) for t in tensors if t.dtype in (tf.float32, tf.bool)]
    return sum({view.ctypes.data: view.nbytes for view in views}.values())


def in_a_process(*arguments: object) -> Any:
    """What one measurement of a fresh process prints."""
    command = [sys.executable, "-m", "benchmarks.quantizer", "--one", *map(str, arguments)]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def table(sizes: list[int]) -> str:
    """Both tables, in Markdown."""
    lines = [
        "| elements | threads | floor, ms | " + " | ".join(VARIANTS) + " |",
        "|---:|---:|---:" + "|---:" * len(VARIANTS) + "|",
    ]
    for size in sizes:
        for threads in THREADS:
            times = in_a_process("time", size, threads)
            ratios = " | ".join(f"{times[name] / times['floor']:.2f}x" for name in VARIANTS)
            lines.append(f"| {size:,} | {threads} | {times['floor']:.3f} | {ratios} |")
            print(lines[-1], file=sys.stderr)
    lines += ["", "| bytes an element at 16M | " + " | ".join(VARIANTS) + " |"]
    lines += ["|---" + "|---:" * len(VARIANTS) + "|"]
    kept = [in_a_process("memory", 1 << 24, name) for name in VARIANTS]
    lines += ["| left by the forward pass | " + " | ".join(f"{b:.1f}" for b in kept) + " |"]
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "SIZE", "THREADS"))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    if given.one is None:
        print(table(given.sizes))
        return
    what, size, last = given.one
    print(json.dumps(measure(int(size), int(last)) if what == "time" else memory(int(size), last)))


if __name__ == "__main__":
    main()
