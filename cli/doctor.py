"""`qgraph doctor`: show versions, and which native code is in use."""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

from qgraph.cli.options import Json

BuildCuda = Annotated[
    bool, typer.Option("--build-cuda", help="First build the TensorFlow ops for GPUs (seconds).")
]

FAST = {"kernels": "native", "training quantizer": "fused"}


def doctor(as_json: Json = False, build_cuda: BuildCuda = False) -> None:
    """Show versions, the native code in use, and the reason if it is not in use."""
    from qgraph.cli.console import console, print_table

    if build_cuda:
        _build_cuda()
    found = _found()
    if as_json:
        print(json.dumps(found))
        return
    rows = [(part, facts["use"], facts["why"]) for part, facts in found.items()]
    print_table("what qgraph runs on", ("=part", "=in use", "where, or why"), rows)
    slow = [part for part, fast in FAST.items() if found[part]["use"] != fast]
    if slow:
        console().print(f"slower than it could be: {', '.join(slow)}; results are the same")


def _build_cuda() -> None:
    from qgraph.cli.console import console
    from qgraph.train import gpu

    with console().status(f"compiling {gpu.SOURCE.name} against TensorFlow"):
        path = gpu.build()
    console().print(f"built {path}")


def _level() -> dict[str, str]:
    from qgraph import kernels
    from qgraph.runtime import levels

    native = kernels.native_engine()
    if native is None:
        return {"use": "none", "why": "the engine needs native code"}
    best = kernels.NATIVE_LEVELS[native.best_level()]
    return {"use": best, "why": f"the best of {', '.join(levels())}; actors too"}


def _found() -> dict[str, dict[str, str]]:
    import numpy as np
    import tensorflow as tf

    from qgraph import __version__, kernels
    from qgraph.train.cuda import cuda_kernels
    from qgraph.train.gpu import gpu_ops
    from qgraph.train.quantizer import form_in_use

    use, _, why = kernels.backend().partition(": ")
    form, reason = form_in_use()
    cuda, cuda_why = cuda_kernels().status()
    on_gpus = gpu_ops()
    gpus = tf.config.list_physical_devices("GPU")
    return {
        "qgraph": {"use": __version__, "why": ""},
        "python": {"use": platform.python_version(), "why": platform.platform()},
        "numpy": {"use": np.__version__, "why": ""},
        "tensorflow": {"use": tf.__version__, "why": ""},
        "kernels": {"use": use, "why": why},
        "instruction set": {
            "use": kernels.instruction_set(),
            "why": "the best this CPU has, of those built",
        },
        "engine level": _level(),
        "training quantizer": {"use": form, "why": reason},
        "training quantizer, jit_compile": {
            "use": "native",
            "why": "XLA compiles TensorFlow's own ops only",
        },
        "cuda kernels": {"use": cuda, "why": cuda_why},
        "training quantizer, GPUs": {
            "use": "native" if on_gpus.ops is None else "fused",
            "why": on_gpus.why,
        },
        "gpu": {"use": str(len(gpus)), "why": ", ".join(gpu.name for gpu in gpus)},
    }
