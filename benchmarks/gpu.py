"""A GPU's memory and clock through its driver only, to test and time the CUDA kernels."""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Gpu:
    """The first GPU. Raises OSError if there is no GPU, and RuntimeError if CUDA reports an
    error.
    """

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._device, context = c_int(), c_void_p()
        try:
            self._call("cuInit", c_int(0))
            self._call("cuDeviceGet", byref(self._device), c_int(0))
        except RuntimeError as error:
            raise OSError(f"no GPU: {error}") from error
        # Use the context that kernels launched by the CUDA runtime use.
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    @property
    def name(self) -> str:
        """The name of the GPU."""
        text = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", text, c_int(len(text)), self._device)
        return text.value.decode()

    def empty(self, size: int) -> int:
        """Allocate memory of `size` bytes, all 0xff, and return its pointer."""
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(max(size, 1)))
        self._call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0xFF), c_size_t(max(size, 1)))
        return pointer.value

    def put(self, array: Array) -> int:
        """Copy an array to the GPU, and return its pointer."""
        array = np.ascontiguousarray(array)
        pointer = self.empty(array.nbytes)
        size = c_size_t(array.nbytes)
        self._call("cuMemcpyHtoD_v2", c_uint64(pointer), c_void_p(array.ctypes.data), size)
        return pointer

    def get(self, pointer: int, like: Array) -> Array:
        """The content of the memory, as an array with the shape and type of `like`."""
        array = np.empty(like.shape, like.dtype)
        size = c_size_t(array.nbytes)
        self._call("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), c_uint64(pointer), size)
        return array

    def free(self, pointer: int) -> None:
        """Free memory."""
        self._call("cuMemFree_v2", c_uint64(pointer))

    def copy(self, to: int, source: int, size: int) -> None:
        """Queue a copy within the GPU, on the default stream."""
        self._call(
            "cuMemcpyDtoDAsync_v2", c_uint64(to), c_uint64(source), c_size_t(size), c_void_p()
        )

    def event(self) -> Event:
        """Queue an event on the default stream."""
        event = Event()
        self._call("cuEventCreate", byref(event), c_int(0))
        self._call("cuEventRecord", event, c_void_p())
        return event

    def milliseconds(self, start: Event, end: Event) -> float:
        """The time between two events, after waiting for the second."""
        taken = c_float()
        self._call("cuEventSynchronize", end)
        self._call("cuEventElapsedTime", byref(taken), start, end)
        for event in (start, end):
            self._call("cuEventDestroy_v2", event)
        return taken.value

    def _call(self, function: str, *arguments: Any) -> None:
        error = getattr(self._driver, function)(*arguments)
        if error:
            text = c_char_p()
            self._driver.cuGetErrorString(c_int(error), byref(text))
            raise RuntimeError(f"{function}: {(text.value or b'unknown error').decode()}")


class Event(c_void_p):
    """An event on a GPU's stream."""


@functools.cache
def gpu() -> Gpu:
    """The GPU of this process. Raises OSError if there is none."""
    return Gpu()
