"""TOSA's own conformance vectors, computed by the ops of the integer program.

`tosa-tools` generates the files and their inputs, and its reference model computes the results.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qgraph.backends.tosa.tosa_tools import find_tool, reference_model
from qgraph.program import Step

GENERATOR, FLATC, SCHEMA = "tosa_verif_build_tests", "flatc", "tosa.fbs"
OPTIONS = (
    "--profile", "tosa-pro-int", "--extension", "none", "--test-type", "positive",
    "--num-rand-permutations", "1", "--tosa-version", "1.0.2",
    "--conv-kernel", "2,3", "--max-conv-stride", "2", "--max-conv-padding", "1",
    "--max-conv-dilation", "2", "--max-pooling-kernel", "2", "--no-special-tests",
)  # fmt: skip
TYPES = {"INT8": np.int8, "INT16": np.int16, "INT32": np.int32}
SHAPES = {"matmul": "2,6,7"}
MOST = 8  # files of each op

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(
        not (find_tool(GENERATOR) and find_tool(FLATC)),
        reason=f"{GENERATOR} of tosa-tools is not installed",
    ),
]


def schema() -> Path:
    """The schema of TOSA files, beside the programs of tosa-tools."""
    for name in (FLATC, "tosa_reference_model"):
        tool = Path(str(find_tool(name))).resolve()
        for place in (tool.parent, *tool.parents[1].glob("lib/python*/site-packages/bin")):
            if (place / SCHEMA).is_file():
                return place / SCHEMA
    pytest.skip(f"{SCHEMA} is not beside {FLATC}")


def generated(op: str, dtype: str, folder: Path) -> list[Path]:
    """Folders of generated files, evenly chosen from all of them."""
    command = [str(find_tool(GENERATOR)), "-o", str(folder), "--filter", f"^{op}$", *OPTIONS]
    command += ["--target-dtype", dtype, "--target-shape", SHAPES.get(op, "1,6,7,4")]
    subprocess.run(command, check=True, capture_output=True)
    found = sorted(path.parent for path in folder.rglob("desc.json"))
    if op == "rescale":  # those of 32-bit multipliers and signed numbers
        found = [path for path in found if "_sc1_" in path.name and "_iu0_ou0" in path.name]
    assert found
    return found[:: -(-len(found) // MOST)]


def as_json(file: Path, folder: Path) -> dict[str, Any]:
    command = [str(find_tool(FLATC)), "--json", "--strict-json", "--raw-binary", "-o", str(folder)]
    subprocess.run([*command, str(schema()), "--", str(file)], check=True)
    return json.loads((folder / file.with_suffix(".json").name).read_text())


def as_file(content: dict[str, Any], path: Path) -> Path:
    source = path.with_suffix(".json")
    source.write_text(json.dumps(content))
    command = [str(find_tool(FLATC)), "-b", "-o", str(path.parent), str(schema()), str(source)]
    subprocess.run(command, check=True)
    return path


def compute(op: str, attrs: dict[str, Any], *inputs: np.ndarray) -> np.ndarray:
    names = tuple(f"v{i}" for i in range(len(inputs)))
    step = Step(op, names, "y", attrs)
    return np.asarray(
        step.definition.compute(step.attrs, [np.asarray(x, np.int64) for x in inputs])
    )


def window(attrs: dict[str, Any]) -> dict[str, Any]:
    top, bottom, left, right = attrs["pad"]
    return {"strides": tuple(attrs["stride"]), "pads": ((top, bottom), (left, right))}


def number(data: list[int], dtype: str) -> int:
    return int(np.frombuffer(bytes(data), TYPES[dtype])[0])


def expected(op: str, attrs: dict[str, Any], types: list[str], v: list[np.ndarray]) -> np.ndarray:
    """The result by ops of the integer program. types: of the inputs and of the result."""
    match op:
        case "CONV2D" | "DEPTHWISE_CONV2D":
            w = v[1].transpose(1, 2, 3, 0) if op == "CONV2D" else v[1]
            dilated = {**window(attrs), "dilations": tuple(attrs["dilation"])}
            sums = compute(op.lower(), dilated, v[0] - v[3], w - v[4])
            return compute("add", {}, sums, v[2])
        case "MATMUL":
            return compute("batch_matmul", {}, v[0] - v[2], v[1] - v[3])
        case "MAX_POOL2D":
            return compute("max_pool", {**window(attrs), "ksize": tuple(attrs["kernel"])}, v[0])
        case "TABLE":
            return compute("lookup", {"offset": -128}, v[0], v[1])
        case "CLAMP":
            ends = {"low": attrs["min_val"], "high": attrs["max_val"]}
            return compute("clip", {k: number(end, types[0]) for k, end in ends.items()}, v[0])
        case _:
            shift = (v[2] - 30).tolist()
            rounding = {"rounding": "half_up", "overflow": "saturate"}
            span = {"low": -(2**31), "high": 2**31 - 1}
            shift = tuple(shift) if len(shift) > 1 else shift[0]
            codes = compute("requantize", {"shift": shift, **rounding, **span}, v[0] - v[3])
            ends = np.iinfo(TYPES[types[-1]])
            return np.clip(codes + v[4], ends.min, ends.max)


def give_powers_of_two(block: dict[str, Any]) -> None:
    """Give a RESCALE multipliers of 2^30 and shifts from 32 on, which suit every input."""
    (op,) = [o for o in block["operators"] if o["op"] == "RESCALE"]
    tensors = {t["name"]: t for t in block["tensors"]}
    count = tensors[op["inputs"][2]]["shape"][0]
    tensors[op["inputs"][1]]["data"] = [0, 0, 0, 64] * count
    tensors[op["inputs"][2]]["data"] = [32 + i % 20 for i in range(count)]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("conv2d", "int8"), ("depthwise_conv2d", "int8"), ("matmul", "int8"), ("table", "int8"),
        ("clamp", "int8"), ("max_pool2d", "int8"), ("rescale", "int32"), ("rescale", "int8"),
    ],
)  # fmt: skip
def test_vectors(op: str, dtype: str, tmp_path: Path) -> None:
    compared = 0
    for folder in generated(op, dtype, tmp_path / "generated"):
        content = as_json(folder / "test.tosa", tmp_path)
        (block,) = content["regions"][0]["blocks"]
        file = folder / "test.tosa"
        if op == "rescale":
            give_powers_of_two(block)
            file = as_file(content, tmp_path / "powers.tosa")
        described = json.loads((folder / "desc.json").read_text())
        names = zip(described["ifm_name"], described["ifm_file"], strict=True)
        inputs = {name: np.load(folder / held) for name, held in names}
        tensors = {t["name"]: t for t in block["tensors"]}
        values = {
            name: np.frombuffer(bytes(t["data"]), TYPES[t["type"]]).reshape(t["shape"])
            for name, t in tensors.items()
            if t["data"]
        }
        values = {n: x.astype(np.int64) for n, x in {**values, **inputs}.items()}
        (one,) = [o for o in block["operators"] if o["op"] != "CONST"]
        (output,) = one["outputs"]
        types = [tensors[name]["type"] for name in (*one["inputs"], output)]
        found = reference_model(file, inputs, [output])[output]
        wanted = expected(one["op"], one["attribute"], types, [values[n] for n in one["inputs"]])
        np.testing.assert_array_equal(found, wanted, folder.name)
        compared += found.size
    assert compared
