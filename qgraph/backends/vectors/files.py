"""A tensor in files: `.npy`, raw little-endian `.bin`, and `.hex` for `$readmemh`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from qgraph.archives import JsonObject, read_npy, reading
from qgraph.ir.types import Array, Codes

# Largest number of elements of a tensor with a .hex file.
MAX_HEX_BYTES = 1 << 18


def bits_of(low: int, high: int) -> int:
    """Bits of the narrowest number for `low..high`; two's complement if `low` is below 0."""
    if low >= 0:
        return max(1, int(high).bit_length())
    return max((-int(low) - 1).bit_length(), int(high).bit_length()) + 1


def write(place: Path, codes: Array, storage: str, bits: int) -> dict[str, str]:
    """Write `place` with each suffix; return SHA-256 by suffix. Large tensors have no `.hex`."""
    held = np.ascontiguousarray(codes).astype(storage)
    np.save(place.with_name(f"{place.name}.npy"), held)
    little = held.astype(held.dtype.newbyteorder("<"))
    place.with_name(f"{place.name}.bin").write_bytes(little.tobytes())
    endings = ["npy", "bin"]
    if codes.size <= MAX_HEX_BYTES:
        place.with_name(f"{place.name}.hex").write_bytes(hexadecimal(codes, bits))
        endings.append("hex")
    return {e: sha256(place.with_name(f"{place.name}.{e}")) for e in endings}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hexadecimal(codes: Array, bits: int) -> bytes:
    """A line for each code: two's complement with `bits` bits, in hexadecimal digits."""
    digits = -(-bits // 4)
    held = np.asarray(codes, np.int64).reshape(-1).astype(np.uint64) & np.uint64((1 << bits) - 1)
    whole = np.frombuffer(held.astype(">u8").tobytes().hex().encode(), "S1").reshape(-1, 16)
    ends = np.full((len(whole), 1), b"\n", "S1")
    return np.hstack([whole[:, 16 - digits :], ends]).tobytes()


def read(place: Path, facts: JsonObject, shape: tuple[int, ...], ending: str) -> Codes:
    """Codes from one of a tensor's files; `facts` is its entry in the index. Raises LoadError."""
    path = place.with_name(f"{place.name}.{ending}")
    with reading(path):
        if ending == "npy":
            codes: Array = read_npy(path)
        elif ending == "bin":
            codes = np.frombuffer(path.read_bytes(), np.dtype(facts["storage"]).newbyteorder("<"))
        else:
            held = np.array([int(word, 16) for word in path.read_text().split()], np.int64)
            sign = facts["signed"] << (facts["bits"] - 1)
            codes = (held ^ sign) - sign
        return np.asarray(codes, np.int64).reshape(shape)
