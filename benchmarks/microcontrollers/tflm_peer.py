"""TFLM's interpreter on a board, with its reference kernels or with those of CMSIS-NN.

Nothing of them is part of qgraph. A folder must have the sources of `tflite-micro`, `cmsis-nn`,
`flatbuffers`, `gemmlowp` and `ruy` (https://github.com/tensorflow/tflite-micro,
https://github.com/ARM-software/CMSIS-NN, and the three that TFLM downloads), in folders of these
names. They are compiled as TFLM's Makefile does: -Os, and -O2 for kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.microcontrollers.board_measurements import BoardProgram, Built
from benchmarks.microcontrollers.boards import Board, call

SOURCES = "tflite-micro", "cmsis-nn", "flatbuffers", "gemmlowp", "ruy"
CMSIS_PARTS = "ConvolutionFunctions", "NNSupportFunctions", "BasicMathFunctions"
UNUSED = (
    "f16",
    "f32",
    "flt",
    "lstm",
    "svdf",
    "transpose",
    "vec_mat",
    "max",
    "minimum",
    "mul_s",
    "batch",
)  # in names of files of CMSIS-NN that no kernel here calls
CORE = (
    "micro/flatbuffer_utils", "micro/memory_helpers", "micro/micro_allocation_info",
    "micro/micro_allocator", "micro/micro_context", "micro/micro_interpreter",
    "micro/micro_interpreter_context", "micro/micro_interpreter_graph", "micro/micro_op_resolver",
    "micro/micro_resource_variable", "micro/micro_utils",
    "micro/arena_allocator/non_persistent_arena_buffer_allocator",
    "micro/arena_allocator/persistent_arena_buffer_allocator",
    "micro/arena_allocator/single_arena_buffer_allocator",
    "micro/memory_planner/greedy_memory_planner", "micro/memory_planner/linear_memory_planner",
    "micro/tflite_bridge/flatbuffer_conversions_bridge", "micro/tflite_bridge/micro_error_reporter",
    "core/api/flatbuffer_conversions", "core/c/common", "kernels/kernel_util",
    "kernels/internal/common", "kernels/internal/portable_tensor_utils",
    "kernels/internal/quantization_util", "kernels/internal/tensor_ctypes",
)  # fmt: skip
KERNELS = "add", "conv", "depthwise_conv", "quantize", "reshape"
DEFINES = ("-DTF_LITE_STATIC_MEMORY", "-DTF_LITE_STRIP_ERROR_STRINGS", "-DCMSIS_NN")
SECTIONS = ("-ffunction-sections", "-fdata-sections")
CPP = (
    "-std=c++17", "-fno-rtti", "-fno-exceptions", "-fno-threadsafe-statics", "-fno-unwind-tables",
    "-w",
)  # fmt: skip
ARENA = 1 << 18
ADAPTER = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"

extern "C" {{
extern const unsigned char model[];
extern unsigned char arena[];
extern const unsigned arena_bytes;
}}

namespace {{
tflite::MicroInterpreter *interpreter;
}}

extern "C" void prepare(void)
{{
    static tflite::MicroMutableOpResolver<{count}> ops;

{adds}
    static tflite::MicroInterpreter made(tflite::GetModel(model), ops, arena, arena_bytes);

    interpreter = &made;
    if (made.AllocateTensors() != kTfLiteOk)
        std::exit(4);
    std::printf("arena %u\\n", (unsigned)made.arena_used_bytes());
}}

extern "C" void infer(const void *input, void *output)
{{
    std::memcpy(interpreter->input(0)->data.raw, input, interpreter->input(0)->bytes);
    interpreter->Invoke();
    std::memcpy(output, interpreter->output(0)->data.raw, interpreter->output(0)->bytes);
}}
"""
ADDS = {
    "add": "AddAdd", "conv": "AddConv2D", "depthwise_conv": "AddDepthwiseConv2D",
    "quantize": "AddQuantize", "reshape": "AddReshape",
}  # fmt: skip


def tflm_program(
    board: Board, model: Path, peers: Path, library: Path, *, cmsis: bool, arena: int
) -> Built:
    """The interpreter with a model. library: a folder that keeps the compiled sources."""

    def build(folder: Path) -> BoardProgram:
        archive = tflm_library(board, peers, library, cmsis=cmsis)
        data, made = folder / "model.c", folder / "model.o"
        data.write_text(_as_arrays(model.read_bytes(), arena))
        flags = [*board.flags, "-O2", *SECTIONS]
        call([board.tool("gcc"), *flags, "-c", str(data), "-o", str(made)])
        return BoardProgram((_adapter(board, peers, library), made, archive), cpp=True)

    return build


def tflm_library(board: Board, peers: Path, library: Path, *, cmsis: bool) -> Path:
    """The sources as an archive, compiled once."""
    target = library / ("cmsis.a" if cmsis else "reference.a")
    if target.exists():
        return target
    folder = library / "objects"
    folder.mkdir(parents=True, exist_ok=True)
    objects = []
    for file, kernel in _sources(peers, cmsis):
        made = folder / f"{'-'.join(file.parts[-3:])}.o"
        cpp = file.suffix == ".cc"
        flags = [*board.flags, "-O2" if kernel else "-Os", *SECTIONS, "-w", *(CPP if cpp else ())]
        if not made.exists():
            call(
                [board.tool("g++" if cpp else "gcc"), *flags, *DEFINES, *_includes(peers), "-c",
                 str(file), "-o", str(made)]
            )  # fmt: skip
        objects.append(str(made))
    call([board.tool("ar"), "rcs", str(target), *objects])
    return target


def _sources(peers: Path, cmsis: bool) -> Iterator[tuple[Path, bool]]:
    """Files, and whether each has kernels."""
    lite = peers / "tflite-micro/tensorflow/lite"
    for name in CORE:
        yield lite / f"{name}.cc", False
    yield peers / "tflite-micro/tensorflow/compiler/mlir/lite/schema/schema_utils.cc", False
    kernels = lite / "micro/kernels"
    yield kernels / "kernel_util.cc", True
    for name in KERNELS:
        common, own = kernels / f"{name}_common.cc", kernels / "cmsis_nn" / f"{name}.cc"
        yield own if cmsis and own.exists() else kernels / f"{name}.cc", True
        if common.exists():
            yield common, True
    if cmsis:
        for part in CMSIS_PARTS:
            for file in sorted((peers / "cmsis-nn/Source" / part).glob("*.c")):
                if not any(word in file.stem for word in UNUSED):
                    yield file, True


def _includes(peers: Path) -> Sequence[str]:
    folders = (
        peers / "tflite-micro", peers / "cmsis-nn", peers / "cmsis-nn/Include",
        peers / "flatbuffers/include", peers / "gemmlowp", peers / "ruy",
    )  # fmt: skip
    return [f"-I{folder}" for folder in folders]


def _adapter(board: Board, peers: Path, library: Path) -> Path:
    """The functions that the harness calls, compiled once."""
    source, made = library / "adapter.cc", library / "adapter.o"
    if not made.exists():
        adds = "\n".join(f"    ops.{ADDS[kernel]}();" for kernel in KERNELS)
        source.write_text(ADAPTER.format(adds=adds, count=len(KERNELS)))
        flags = [*board.flags, "-O2", *SECTIONS, *CPP, *DEFINES, *_includes(peers)]
        call([board.tool("g++"), *flags, "-c", str(source), "-o", str(made)])
    return made


def _as_arrays(data: bytes, arena: int) -> str:
    numbers = ",".join(map(str, data))
    return (
        f"const unsigned char model[] __attribute__((aligned(16))) = {{{numbers}}};\n"
        f"unsigned char arena[{arena}] __attribute__((aligned(16)));\n"
        f"const unsigned arena_bytes = {arena};\n"
    )
