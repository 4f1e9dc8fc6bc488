"""Check and time everything that runs on a GPU: ``make test-gpu``.

Each part runs if the machine has what it needs; the last table names the parts that did not run.
The CUDA kernels need a GPU, its driver and `_cuda.so`; TensorFlow's ops and training steps need a
TensorFlow that can use the GPU; the fusion by XLA needs JAX. The program fails if there is no GPU,
or if a bit differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cuda_quantizer
from benchmarks.gpu import gpu
from benchmarks.result import ROOT, add_json_option, report
from benchmarks.tables import Table
from qgraph.train import cuda

# The share of a copy's bandwidth, and the number of elements from which it is required.
AIM, AIMED_FROM = 0.92, 1 << 24
SIZES = (1 << 20, 1 << 24, 1 << 26)
ROUNDS = 15
PACKAGES = ("tensorflow", "tf-keras", "jax", "torch", "cupy")


@dataclass(frozen=True)
class Part:
    """A part of the check.

    missing    why it cannot run here, or None
    run        its table, and what is wrong; an empty text if nothing is
    """

    name: str
    missing: Callable[[], str | None]
    run: Callable[[], tuple[Table, str]]


# -- bits -------------------------------------------------------------------------------------


def bits() -> tuple[Table, str]:
    """Run the tests of the kernels and, if TensorFlow can use the GPU, of its ops."""
    table = Table("Bits of the CPU", {"tests": "", "passed": "d", "failed": "d", "skipped": "d"})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-m", "not slow", f"--junitxml={file}", "tests/cuda"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if not file.exists():
            return table, f"the tests did not run: {done.stderr or done.stdout}"
        add_counts(table, ET.parse(file).getroot())
    failed = sum(row["failed"] for row in table.rows)
    return table, f"{failed} tests of tests/cuda failed:\n{done.stdout}" if failed else ""


def add_counts(table: Table, found: ET.Element) -> None:
    """The counts of each file of tests, and the reasons of skipped tests."""
    counts: dict[str, dict[str, int]] = {}
    reasons: dict[str, None] = {}
    for case in found.iter("testcase"):
        file = case.get("classname", "").rpartition(".")[2]
        row = counts.setdefault(file, {"passed": 0, "failed": 0, "skipped": 0})
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        row["skipped" if skipped is not None else "failed" if failed else "passed"] += 1
        if skipped is not None:
            reasons[f"skipped: {skipped.get('message')}"] = None
    for file, row in counts.items():
        table.add(file, row["passed"], row["failed"], row["skipped"])
    table.notes.extend(reasons)


# -- bandwidth --------------------------------------------------------------------------------


def bandwidth() -> tuple[Table, str]:
    """The kernels' bandwidth beside a copy; the note counts the rows that reach the aim."""
    table = cuda_quantizer.measured(gpu(), list(SIZES), [1, 64])
    large = [row for row in table.rows if row["elements"] >= AIMED_FROM]
    reached = sum(min(row["forward"], row["backward"]) >= AIM for row in large)
    table.notes.append(
        f"{reached} of {len(large)} rows of {AIMED_FROM:,d} elements and more reach {AIM:.0%} of a "
        "copy in both passes"
    )
    return table, ""


def fusion_by_xla() -> tuple[Table, str]:
    """The quantizer in JAX, fused by XLA, beside the CUDA kernels, with the same count of bytes."""
    import jax

    device = jax.devices()[0].device_kind
    table = Table(
        f"The quantizer in JAX, fused by XLA, on {device}",
        {"elements": ",d", "forward, GB/s": ".0f", "backward, GB/s": ".0f"},
        notes=["float32, one threshold; the sum of its gradient is in float32, in any order"],
    )
    for size in SIZES:
        forward, backward = jax_seconds(size)
        table.add(size, 2 * 4 * size / forward / 1e9, 3 * 4 * size / backward / 1e9)
    return table, ""


def jax_seconds(size: int, rounds: int = ROUNDS) -> tuple[float, float]:
    """Median times of the forward and the backward pass on tensors that are larger than the
    caches.
    """
    import jax
    import jax.numpy as jnp

    def scaled(x: Any, log2_t: Any) -> tuple[Any, Any, Any]:
        step = jnp.exp2(jnp.ceil(log2_t) - 7.0)
        return x / step, jnp.round(x / step), step

    @jax.jit  # type: ignore[untyped-decorator]
    def forward(x: Any, log2_t: Any) -> Any:
        _, whole, step = scaled(x, log2_t)
        return jnp.clip(whole, -128, 127) * step

    @jax.jit  # type: ignore[untyped-decorator]
    def backward(x: Any, g: Any, log2_t: Any) -> Any:
        exact, whole, step = scaled(x, log2_t)
        below, above = whole < -128, whole > 127
        slope = jnp.where(below, -128.0, jnp.where(above, 127.0, whole - exact))
        return jnp.where(below | above, 0.0, g), step * jnp.log(2.0) * jnp.sum(g * slope)

    count = max(2, cuda_quantizer.CACHES // (4 * size))
    numbers = np.random.default_rng(0).normal(size=size).astype(np.float32)
    sets = [(jnp.array(numbers), jnp.array(numbers)) for _ in range(count)]
    t = jnp.float32(2)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(-3, rounds):
        begin = time.perf_counter()
        jax.block_until_ready([forward(x, t) for x, _ in sets])
        middle = time.perf_counter()
        jax.block_until_ready([backward(x, g, t) for x, g in sets])
        if number >= 0:
            times[0].append((middle - begin) / count)
            times[1].append((time.perf_counter() - middle) / count)
    return statistics.median(times[0]), statistics.median(times[1])


# -- training steps -----------------------------------------------------------------------------


def training_steps() -> tuple[Table, str]:
    """Times of a training step beside float, with and without XLA."""
    from benchmarks import training_step as steps

    cases = {
        name: replace(case, batch=steps.BATCHES_FOR_MEMORY * case.batch)
        for name, case in steps.CASES.items()
    }
    return step_table(cases, ROUNDS), ""


def step_table(cases: dict[str, Any], rounds: int) -> Table:
    """Times of the steps of some networks. Ratios are to float with the same treatment of batch
    norms.
    """
    from benchmarks import training_step as steps
    from qgraph.train.quantizer import form_in_use

    form, why = form_in_use()
    table = Table(
        "Training step",
        {"network": "", "batch": "d", "step": "", "ms": ".2f", "of float": ".2f"},
        notes=[f"the quantizer without XLA: {form}, {why}; medians of {rounds} steps in turns"],
    )
    for name, case in cases.items():
        times = steps.milliseconds(case, steps.ON_GPUS, rounds)
        for variant, (wall, _) in times.items():
            table.add(name, case.batch, variant, wall, wall / times[steps.FLOAT_FROZEN][0])
    return table


# -- properties of the machine ----------------------------------------------------------------


def no_jax() -> str | None:
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed"
    import jax

    found = jax.default_backend()
    return None if found == "gpu" else f"JAX runs on the {found}"


def no_tensorflow() -> str | None:
    if importlib.util.find_spec("tensorflow") is None:
        return "TensorFlow is not installed"
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return f"TensorFlow {tf.__version__} sees no GPU"
    return None


PARTS = (
    Part("bits", lambda: None, bits),
    Part("bandwidth", lambda: None, bandwidth),
    Part("fusion by XLA", no_jax, fusion_by_xla),
    Part("training steps", no_tensorflow, training_steps),
)


def checked(parts: tuple[Part, ...], device: str, faults: list[str]) -> Iterator[Table]:
    """The tables of all parts, then which parts ran. Errors are added to `faults`."""
    summary = Table(f"What ran on {device}", {"part": "", "result": ""})
    for part in parts:
        reason = part.missing()
        if reason is not None:
            summary.add(part.name, f"not run: {reason}")
            continue
        table, fault = part.run()
        summary.add(part.name, "failed" if fault else "ran")
        if fault:
            faults.append(f"{part.name}: {fault}")
        yield table
    yield summary


def main() -> None:
    """Print the tables. The exit status is 1 without a GPU, and if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    given = parser.parse_args()
    use, why = cuda.cuda_kernels().status()
    if use != "ready":
        parser.exit(1, f"nothing was checked, {use}: {why}\n")
    if no_tensorflow() is None:
        from qgraph.train import gpu as ops

        ops.build()
    faults: list[str] = []
    report("benchmarks.gpu_check", checked(PARTS, gpu().name, faults), given.json, (), PACKAGES)
    if faults:
        parser.exit(1, "\n".join(faults) + "\n")


if __name__ == "__main__":
    main()
