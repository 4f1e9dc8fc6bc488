"""Time and memory of the trainable quantizer: ``python -m benchmarks.quantizer``.

Each row is measured in a separate process with that number of threads. All variants have the same
warm-up and take turns; the table has the median of the ratios of each round. Small tensors are
timed as a chain within one graph, because calling TensorFlow takes longer than their arithmetic.
The floor is one copy (the faster of TensorFlow's two) and one maximum of two tensors, which is the
smallest memory traffic of a forward and a backward pass. An addition has the same traffic, but
TensorFlow merges many additions into one op. For a forward pass alone, the floor is the copy. The
copies of a chain are kept for its maxima, as the inputs of quantizers are kept for their gradients.
"Memory left" is that of the tensors that a forward pass under a tape leaves behind, including its
result. The peak is the growth of a process's memory in a step with both passes.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import add_json_option, report
from benchmarks.tables import Table

SIZES = (1 << 16, 1 << 20, 1 << 24, 1 << 26)
THREADS = (1, 2)
LOG2_T = 1.3
BITS = 8

VARIANTS = ("fused", "native", "XLA", "plain ops", "plain XLA", "TF fake_quant")
NARROW = ("fused", "fused, casts", "native")
TYPES = ("bfloat16", "float16")
PARTS = ("both", "forward", "memory", "narrow")
Step = Callable[[Any, Any], Any]
Forward = Callable[[Any, Any], Any]


def plain_ops(x: Any, log2_t: Any) -> Any:
    """The quantizer in plain TensorFlow ops, with TensorFlow's gradients."""
    import tensorflow as tf

    whole_log2_t = log2_t + tf.stop_gradient(tf.math.ceil(log2_t) - log2_t)
    scale = tf.pow(2.0, whole_log2_t - (BITS - 1))
    steps = x / scale
    whole = steps + tf.stop_gradient(tf.round(steps) - steps)
    return tf.clip_by_value(whole, -(2.0 ** (BITS - 1)), 2.0 ** (BITS - 1) - 1) * scale


def through_casts(x: Any, log2_t: Any) -> Any:
    """The fused quantizer of a narrow type by casts to float32, which keeps only x."""
    import tensorflow as tf

    from qgraph.train.fused import fused_ops

    ops = fused_ops().ops
    assert ops is not None
    attributes = {"bits": BITS, "signed": True}

    def run(x: Any, log2_t: Any) -> Any:
        def gradient(upstream: Any) -> tuple[Any, Any]:
            wide = (tf.cast(v, tf.float32) for v in (upstream, x))
            grad_x, grad_t = ops.qgraph_quantize_grad(*wide, log2_t, **attributes)
            return tf.cast(grad_x, x.dtype), grad_t

        kept = tf.stop_gradient(x), tf.stop_gradient(log2_t)
        y = ops.qgraph_quantize(tf.cast(kept[0], tf.float32), kept[1], **attributes)
        return tf.cast(y, x.dtype), gradient

    return tf.custom_gradient(run)(x, log2_t)


def forwards() -> dict[str, tuple[Forward, bool]]:
    """Each quantizer, and whether XLA compiles it."""
    import tensorflow as tf

    from qgraph.train.quantizer import quantize

    def fake_quant(x: Any, log2_t: Any) -> Any:
        return tf.quantization.fake_quant_with_min_max_vars(x, -log2_t, log2_t)

    return {
        "fused": (lambda x, t: quantize(x, t, BITS, True, form="fused"), False),
        "fused, casts": (through_casts, False),
        "native": (lambda x, t: quantize(x, t, BITS, True, form="native"), False),
        "XLA": (lambda x, t: quantize(x, t, BITS, True), True),
        "plain ops": (plain_ops, False),
        "plain XLA": (plain_ops, True),
        "TF fake_quant": (fake_quant, False),
    }


def step_of(forward: Forward, xla: bool, chain: int, backward: bool = True) -> Step:
    """A step of `chain` quantizers in sequence, with their gradients."""
    import tensorflow as tf

    def step(x: Any, g: Any) -> Any:
        thresholds = [tf.constant(LOG2_T) for _ in range(chain)]
        with tf.GradientTape() as tape:
            tape.watch([x, thresholds])
            y = x
            for threshold in thresholds:
                y = forward(y, threshold)
        if not backward:
            return y
        grad_x, grads = tape.gradient(y, [x, thresholds], g)
        return y, grad_x, tf.add_n(grads)

    made: Step = tf.function(step, jit_compile=xla)
    return made


def floor_of(copy: Callable[[Any], Any], chain: int, backward: bool = True) -> Step:
    """A step of `chain` copies in sequence, and the maximum of each copy's input and g."""
    import tensorflow as tf

    def step(x: Any, g: Any) -> Any:
        ys = [x]
        for _ in range(chain):
            ys.append(copy(ys[-1]))
        for y in reversed(ys[:-1] if backward else []):
            g = tf.maximum(y, g)
        return ys[-1], g

    made: Step = tf.function(step)
    return made


def milliseconds(steps: dict[str, Step], x: Any, g: Any, rounds: int) -> dict[str, list[float]]:
    """The times of each step, by round; steps take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(-2, rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            results = step(x, g)
            taken = (time.perf_counter() - start) * 1e3
            del results
            if number >= 0:
                times[name].append(taken)
    return times


def measure(size: int, threads: int, dtype: str, passes: str) -> dict[str, float]:
    """The time of each variant as a multiple of the floor, and the floor in milliseconds."""
    import tensorflow as tf

    from qgraph.train import fused

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    fused.set_threads(threads)
    chain = 16 if size <= 1 << 16 else 1
    backward = passes == "both"
    x, g = (tf.cast(a, dtype) for a in tensors(size))
    copies = {"copy": lambda v: tf.raw_ops.DeepCopy(x=v), "relu": tf.nn.relu}
    steps = {name: floor_of(copy, chain, backward) for name, copy in copies.items()}
    names = VARIANTS if dtype == "float32" else NARROW
    steps |= {name: step_of(*forwards()[name], chain, backward) for name in names}
    times = milliseconds(steps, x, g, rounds=max(9, min(300, (1 << 25) // size)))
    floor = min((times.pop(name) for name in copies), key=statistics.median)
    ratios = {
        name: statistics.median(t / f for t, f in zip(taken, floor, strict=True))
        for name, taken in times.items()
    }
    return {"floor": statistics.median(floor) / chain} | ratios


def tensors(size: int) -> list[Any]:
    """Normal numbers: x, and the gradient of its result."""
    import tensorflow as tf

    rng = np.random.default_rng(size)
    return [tf.constant(rng.normal(size=size).astype(np.float32)) for _ in range(2)]


def memory_left(size: int, variant: str, dtype: str) -> float:
    """Bytes per element that a forward pass under a tape leaves behind, including its result."""
    import tensorflow as tf

    forward, xla = forwards()[variant]
    run = tf.function(forward, jit_compile=True) if xla else forward
    x, log2_t = tf.ones(size, dtype), tf.constant(LOG2_T)
    before = live_bytes()
    with tf.GradientTape() as tape:
        tape.watch([x, log2_t])
        y = run(x, log2_t)
    kept = live_bytes() - before
    del y, tape
    return kept / size


def peak(size: int, variant: str, dtype: str) -> float:
    """Bytes per element that a step, as a function, holds at most beyond x and the gradient."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    step = step_of(*forwards()[variant], chain=1)
    step(*(tf.ones(1024, dtype) for _ in range(2)))
    x, g = (tf.ones(size, dtype) for _ in range(2))
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    result = step(x, g)
    del result
    return (kilobytes("VmHWM") - before) * 1024 / size


def kilobytes(field: str) -> int:
    """The memory of this process, as Linux reports it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def live_bytes() -> int:
    """Bytes of all tensors that Python or a tape still holds; a shared buffer counts once."""
    import tensorflow as tf

    gc.collect()
    eager = type(tf.constant(0))
    tensors = [o for o in gc.get_objects() if isinstance(o, eager)]
    tensors = [t for t in tensors if t.dtype.is_floating or t.dtype.is_bool]
    views = [np.asarray(t.__array__()) for t in tensors]  # without a copy, unlike numpy()
    return sum({view.ctypes.data: view.nbytes for view in views}.values())


def in_a_process(*arguments: object) -> Any:
    """The output of one measurement in a new process."""
    command = [sys.executable, "-m", "benchmarks.quantizer", "--one", *map(str, arguments)]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def times_table(sizes: list[int], dtype: str, passes: str) -> Table:
    """Ratios to the floor."""
    names = VARIANTS if dtype == "float32" else NARROW
    table = Table(
        f"{dtype}, {passes}: time as a multiple of the floor",
        {"elements": ",d", "threads": "d", "floor, ms": ".3f", **dict.fromkeys(names, ".2f")},
    )
    for size in sizes:
        for threads in THREADS:
            found = in_a_process("time", size, threads, dtype, passes)
            table.add(size, threads, found["floor"], *(found[name] for name in names))
            print(f"{dtype}, {passes}, {size:,}, {threads} threads", file=sys.stderr)
    return table


def memory_table(size: int, dtype: str) -> Table:
    """Bytes per element."""
    names = VARIANTS if dtype == "float32" else NARROW
    table = Table(f"{dtype}: bytes an element", {"memory": "", **dict.fromkeys(names, ".1f")})
    for what, row in (("left", "left by the forward pass"), ("peak", "peak of a step")):
        table.add(row, *(in_a_process(what, size, name, dtype) for name in names))
    return table


def tables(sizes: list[int], parts: list[str]) -> Iterator[Table]:
    """The tables of the parts that were asked for."""
    for passes in ("both", "forward"):
        if passes in parts:
            yield times_table(sizes, "float32", passes)
    if "memory" in parts:
        yield memory_table(1 << 24, "float32")
    if "narrow" in parts:
        for dtype in TYPES:
            yield times_table(sizes, dtype, "both")
            yield memory_table(1 << 24, dtype)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs="+", metavar="ARGUMENT", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    add_json_option(parser)
    given = parser.parse_args()
    if given.one is None:
        made = tables(given.sizes, given.parts)
        report("benchmarks.quantizer", made, given.json, packages=("tensorflow",))
        return
    what, size, *rest = given.one
    if what == "time":
        print(json.dumps(measure(int(size), int(rest[0]), *rest[1:])))
    else:
        print(json.dumps({"left": memory_left, "peak": peak}[what](int(size), *rest)))


if __name__ == "__main__":
    main()
