"""Vectors are what the program computes, in every kind of file, and claims of extremes are true."""

import json
import shutil
import subprocess
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.vectors import files
from qgraph.backends.vectors.vectors_form import VectorsForm
from qgraph.errors import ExactnessError, UsageError
from qgraph.exports import export
from qgraph.ir.types import ROUNDINGS
from qgraph.program import Step, lower
from qgraph.program.accumulators import accumulators
from qgraph.verification.verify import verify
from tests.helpers.c_programs import images_that_are_one_batch, mixed_samples, program_of, tensor
from tests.helpers.forms import assert_codes, network_of, random_codes
from tests.helpers.generators.programs import programs, random_program

needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog (iverilog) is not installed"
)


def written(program, folder: Path, form: VectorsForm | None = None) -> dict:
    (form or VectorsForm()).write(network_of(program), folder)
    return json.loads((folder / "index.json").read_text())


def array(folder: Path, where: dict) -> np.ndarray:
    return np.load(folder / f"{where['file']}.npy").astype(np.int64)


# -- files ----------------------------------------------------------------------------------


@given(st.integers(1, 53), st.booleans(), st.integers(0, 2**32))
def test_files_hold_the_codes(bits: int, signed: bool, seed: int) -> None:
    import tempfile

    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    codes = np.random.default_rng(seed).integers(low, high + 1, (2, 3))
    codes[0, :2] = low, high
    assert files.bits_of(low, high) == bits
    held = tensor("t", codes.shape, low, high)
    facts = {"storage": held.storage, "bits": bits, "signed": signed}
    with tempfile.TemporaryDirectory() as folder:
        hashes = files.write(Path(folder, "t"), codes, held.storage, bits)
        for ending in hashes:
            found = files.read(Path(folder, "t"), facts, codes.shape, ending)
            np.testing.assert_array_equal(found, codes, ending)
        raw = Path(folder, "t.bin").read_bytes()
    assert int.from_bytes(raw[: len(raw) // 6], "little", signed=signed) == low
    assert list(hashes) == ["npy", "bin", "hex"]


def test_hexadecimal_is_what_readmemh_reads() -> None:
    assert files.hexadecimal(np.array([-1, 0, 5, -16]), 5) == b"1f\n00\n05\n10\n"


# -- programs -------------------------------------------------------------------------------


@settings(max_examples=20)
@given(program=programs(10))
def test_random_programs(program, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    index = written(program, folder)
    codes = random_codes(program)
    assert_codes(program, codes, VectorsForm().runner(network_of(program), folder)(codes))
    made = {name for layer in index["layers"] for name in layer["steps"]}
    for case in index["cases"]:
        assert made <= case["tensors"].keys()
    for place in index["places"]:
        for i, row in enumerate(place["rows"]):
            check_row(index, place, row, i, folder)


def check_row(index: dict, place: dict, row: dict, i: int, folder: Path) -> None:
    """Check in plain Python that a row reaches its goal."""
    codes = {n: array(folder, where)[i] for n, where in place["tensors"].items()}
    step = next(s for s in index["steps"] if s["output"] == row["tensor"])
    before, after = row["before"], row["after"]
    assert codes[row["tensor"]].reshape(-1)[row["channel"]] == after
    if row["exercises"].endswith("sum"):
        return
    source = codes[step["inputs"][0]].reshape(-1)
    assert source[row["channel"] if source.size > 1 else 0] == before
    attrs = step["attrs"]
    shift = attrs.get("shift", 0)
    shift = shift[row["channel"]] if isinstance(shift, list) else shift
    if row["exercises"].startswith("tie"):
        whole, rest = divmod(before, 2**shift)
        assert 2 * rest == 2**shift
        assert row["exercises"] == f"tie above an {'odd' if whole % 2 else 'even'} code"
        return
    rounding = attrs.get("rounding", "floor")
    before = 2 * ((before + 1) // 2) if rounding == "double" and shift > 0 else before
    rounded = ROUNDED[rounding](Fraction(before) / Fraction(2) ** shift)
    side = "low" if row["exercises"] == "below the range" else "high"
    end = attrs[side][row["channel"]] if isinstance(attrs[side], list) else attrs[side]
    assert rounded < end if side == "low" else rounded > end


def half_away(v: Fraction) -> int:
    return floor(abs(v) + Fraction(1, 2)) * (1 if v > 0 else -1)


ROUNDED = {
    "half_even": round,
    "half_up": lambda v: floor(v + Fraction(1, 2)),
    "half_away": half_away,
    "floor": floor,
    "double": half_away,  # of even codes
}


def requantized(shift, x_high: int = 255, rounding: str = "half_even"):
    attrs = {"shift": shift, "rounding": rounding, "overflow": "saturate", "low": -128, "high": 127}
    weights = np.array([[3, 0], [-5, 6], [2, -9]])
    up, down = (np.maximum(weights, 0).sum(0), np.minimum(weights, 0).sum(0))
    return program_of(
        tensor("x", (1, 3), 0, x_high),
        tensor("acc", (1, 2), int(down.min()) * x_high, int(up.max()) * x_high),
        tensor("y", (1, 2), -128, 127),
        steps=[Step("matmul", ("x", "w"), "acc", {}), Step("requantize", ("acc",), "y", attrs)],
        constants={"w": weights},
        exits=["y"],
    )


def test_a_layer_with_everything(tmp_path: Path) -> None:
    index = written(requantized(2), tmp_path)
    (place,) = index["places"]
    assert [row["exercises"] for row in place["rows"]] == [
        "largest sum",
        "smallest sum",
        "tie above an even code",
        "tie above an odd code",
        "below the range",
        "above the range",
    ]
    rows = place["rows"]
    assert (rows[0]["after"], rows[1]["after"]) == (6 * 255, -9 * 255)
    assert (rows[4]["after"], rows[5]["after"]) == (-128, 127)
    assert place["unreached"] == []
    assert place["shapes"] == {"x": [6, 3], "acc": [6, 2], "y": [6, 2]}
    assert index["tensors"]["acc"]["bits"] == 13 and index["tensors"]["acc"]["signed"]
    assert index["layers"][0]["constants"] == ["w"]


def test_what_cannot_be_reached_has_a_reason(tmp_path: Path) -> None:
    (place,) = written(requantized(0, x_high=7), tmp_path)["places"]
    reasons = {one["goal"]: one["why"] for one in place["unreached"]}
    assert reasons["tie above an even code"].startswith("nothing is rounded")
    assert reasons["above the range"] == "its input codes, -63..42, stay within its range"


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(random_program(5, 12), tmp_path / name)
    a, b = ({p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*.*")}
            for n in ("a", "b"))  # fmt: skip
    assert a == b and len(a) > 10


@pytest.mark.parametrize("make", [mixed_samples, images_that_are_one_batch])
def test_a_program_may_mix_its_samples(make, tmp_path: Path) -> None:
    index = written(make(), tmp_path)
    codes = random_codes(make(), 5)
    found = VectorsForm().runner(network_of(make()), tmp_path)(codes)
    assert_codes(make(), codes, found)
    assert len(found) == len(make().steps) + 1
    (place, *_) = index["places"]
    assert len(place["rows"]) > 3
    assert all(shape[0] == len(place["rows"]) for shape in place["shapes"].values())


# -- limits and choices -----------------------------------------------------------------------


def test_what_is_left_out_is_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MAX_HEX_BYTES", 5)
    index = written(requantized(2), tmp_path, VectorsForm(most=8))
    assert [case["name"] for case in index["cases"]] == ["lowest"]
    assert "case highest: 1 of 8 codes are left" in index["left_out"]
    assert any(line.startswith("constants/0003_w.hex: 6 codes") for line in index["left_out"])
    assert not [*(tmp_path / "constants").glob("*.hex")]
    assert VectorsForm().runner(network_of(requantized(2)), tmp_path)


def test_a_case_that_does_not_fit_is_cut(tmp_path: Path) -> None:
    index = written(requantized(2), tmp_path, VectorsForm(most=5))
    (case,) = index["cases"]
    assert [*case["tensors"]] == ["x", "acc"]
    assert "case lowest: 1 tensors, for 5 codes" in index["left_out"]
    assert VectorsForm().runner(network_of(requantized(2)), tmp_path)


def test_some_layers_only(tmp_path: Path) -> None:
    program = random_program(8, 12)
    wanted = program.steps[-1].output
    index = written(program, tmp_path, VectorsForm(layers=(wanted,)))
    (layer,) = index["layers"]
    assert wanted in layer["steps"]
    with pytest.raises(UsageError, match="no layer computes `nothing`"):
        VectorsForm(layers=("nothing",)).write(network_of(program), tmp_path)


# -- what is wrong is found ---------------------------------------------------------------------


@pytest.mark.parametrize("part", ["constants", "cases/random", "places/000_acc"])
@pytest.mark.parametrize("ending", ["npy", "bin", "hex"])
def test_altered_files_are_found(part: str, ending: str, tmp_path: Path) -> None:
    written(requantized(2), tmp_path)
    path = sorted((tmp_path / part).glob(f"*.{ending}"))[-1]
    path.write_bytes(path.read_bytes()[:-1] + b"@")
    with pytest.raises(ExactnessError, match="changed since it was written"):
        VectorsForm().runner(network_of(requantized(2)), tmp_path)


def test_vectors_of_another_network_are_found(tmp_path: Path) -> None:
    index = written(requantized(2), tmp_path)
    index["steps"][1]["attrs"]["rounding"] = "floor"
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(ExactnessError, match="differ"):
        VectorsForm().runner(network_of(requantized(2)), tmp_path)


def simulated(folder: Path) -> str:
    command = ["iverilog", "-g2012", "-Wall", "-o", "bench", "bench.sv"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["vvp", "bench"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@needs_icarus
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", [2, (3, -1)])
def test_the_bench_passes_and_fails(shift, rounding: str, tmp_path: Path) -> None:
    index = written(requantized(shift, rounding=rounding), tmp_path)
    assert index["bench"] == [
        {"tensor": "acc", "check": "sums"},
        {"tensor": "y", "check": "requantize"},
    ]
    rows = len(index["places"][0]["rows"])
    assert simulated(tmp_path) == f"PASS: 0 of {4 * rows} codes differ"
    path = tmp_path / f"{index['places'][0]['tensors']['y']['file']}.hex"
    lines = path.read_text().split()
    lines[0] = f"{int(lines[0], 16) ^ 1:02x}"
    path.write_text("\n".join(lines) + "\n")
    assert simulated(tmp_path) == f"FAIL: 1 of {4 * rows} codes differ"


@needs_icarus
@settings(max_examples=8)
@given(program=programs(12))
def test_the_bench_passes_on_random_programs(program, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("bench")
    index = written(program, folder)
    assert simulated(folder).startswith("PASS: 0 of ")
    assert simulated(folder) != "PASS: 0 of 0 codes differ" or not index["bench"]


# -- a network ----------------------------------------------------------------------------------


def test_digits_among_the_forms(digits: Path) -> None:
    found = verify(digits, forms=["vectors"])
    assert found.equal and found.compared.tallies["vectors"].elements > 10_000


@needs_icarus
def test_the_bench_of_digits(digits: Path, tmp_path: Path) -> None:
    from qgraph.stored import load_network

    network = load_network(digits)
    VectorsForm().write(network, tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    assert [c["name"] for c in index["cases"]][:2] == ["sample0", "sample1"]
    assert simulated(tmp_path).startswith("PASS: 0 of 1")
    checked = {check["tensor"] for check in index["bench"]}
    assert {a.layer for a in accumulators(network.program)} <= checked
    assert {s.output for s in lower(network.graph).steps if s.op == "requantize"} <= checked


def test_largest_sums_are_those_of_the_bounds(digits: Path, tmp_path: Path) -> None:
    from qgraph.stored import load_network

    network = load_network(digits)
    VectorsForm(samples=0, most=0).write(network, tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    rows = {(p["layer"], r["exercises"]): r["after"] for p in index["places"] for r in p["rows"]}
    for found in accumulators(network.program):
        if found.tensor == found.layer:  # no bias in it
            assert rows[found.layer, "largest sum"] == found.highs.max()
            assert rows[found.layer, "smallest sum"] == found.lows.min()


def test_options_belong_to_a_form(tmp_path: Path) -> None:
    network = network_of(requantized(2))
    export(network, "vectors", tmp_path / "one", options={"samples": 0, "layers": ("y",)})
    assert (tmp_path / "one" / "bench.sv").exists()
    with pytest.raises(UsageError, match="format `c` has no option `layers`"):
        export(network, "c", tmp_path / "two", options={"layers": ("y",)})
