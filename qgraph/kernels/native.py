"""The native extension: which code runs, on how many threads, with which instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qgraph.choices import Level
from qgraph.errors import UnsupportedError
from qgraph.kernels.extension import load

# The enumeration in fused_ops/engine/kernels/kernels.h has them in this order.
NATIVE_LEVELS = tuple(Level)[1:]
# The enumerations in fused_ops/core/quantize.h have the order of these and of ROUNDINGS.
INSTRUCTION_SETS = ("plain", "avx2", "avx512")

if TYPE_CHECKING:
    from qgraph import _native

    extension = _native

    loaded_from: str
else:
    extension, loaded_from = load()


def backend() -> str:
    """Say which implementation is in use, and why.

    Returns:
        A text that begins with `native: ` or `numpy: `.

    Examples:
        >>> backend().partition(": ")[0] in ("native", "numpy")
        True
    """
    return loaded_from


def not_available(part: str) -> UnsupportedError:
    """The error of a part that exists in native code only.

    Args:
        part: Name of the part, the start of the message.

    Returns:
        The error, with the reason from `backend`. The caller raises it.

    Examples:
        >>> not_available("the engine").hint
        'build it: make venv, or pip install .'
    """
    reason = loaded_from.partition(": ")[2]
    return UnsupportedError(
        f"{part} needs native code: {reason}", hint="build it: make venv, or pip install ."
    )


def native_engine() -> type[extension.engine] | None:
    """The native part of the integer engine (`qgraph.backends.engine`).

    Returns:
        The submodule of the extension; None if it is not built.

    Examples:
        >>> (native_engine() is None) == backend().startswith("numpy")
        True
    """
    return None if extension is None else extension.engine


def native_broadcast() -> type[extension.broadcast] | None:
    """The native part of shared memory between processes (`qgraph.rl.broadcast`).

    Returns:
        The submodule of the extension; None if it is not built.

    Examples:
        >>> (native_broadcast() is None) == backend().startswith("numpy")
        True
    """
    return None if extension is None else extension.broadcast


def native_actor() -> type[extension.actor] | None:
    """The native part of actors (`qgraph.rl.actor`).

    Returns:
        The submodule of the extension; None if it is not built.

    Examples:
        >>> (native_actor() is None) == backend().startswith("numpy")
        True
    """
    return None if extension is None else extension.actor


def set_threads(count: int) -> None:
    """Limit the threads of native kernels. The numpy versions use one thread.

    Args:
        count: The largest number of threads, at least 1.

    Raises:
        ValueError: `count` is less than 1.

    Examples:
        >>> set_threads(4)
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    if extension is not None:
        extension.set_threads(count)


def stay_on_calling_thread() -> None:
    """Make native kernels that this thread calls from now on use no other thread.

    It is for threads that share the CPUs already.

    Examples:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from qgraph.kernels import minmax
        >>> with ThreadPoolExecutor(2, initializer=stay_on_calling_thread) as pool:
        ...     pool.submit(minmax, np.ones(3, np.float32)).result()
        (1.0, 1.0)
    """
    if extension is not None:
        extension.stay_on_calling_thread()


def instruction_set() -> str:
    """The instruction set of `quantize` and `quantize_gradients`.

    Returns:
        One of `INSTRUCTION_SETS`, or `numpy` without native code.

    Examples:
        >>> instruction_set() in (*INSTRUCTION_SETS, "numpy")
        True
    """
    return "numpy" if extension is None else INSTRUCTION_SETS[extension.chosen()]


def use_instruction_set(name: str) -> bool:
    """Choose the instruction set of `quantize` and `quantize_gradients`. No result changes.

    Args:
        name: One of `INSTRUCTION_SETS`.

    Returns:
        Whether it is available.

    Raises:
        ValueError: The name is unknown.

    Examples:
        >>> use_instruction_set("plain") == (instruction_set() == "plain")
        True
    """
    return extension is not None and bool(extension.choose(INSTRUCTION_SETS.index(name)))
