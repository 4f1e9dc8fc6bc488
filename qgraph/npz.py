"""Arrays in a `.npz` file, by any names."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from qgraph.names import entry_name

EPOCH = (1980, 1, 1, 0, 0, 0)  # date of every entry, so that equal arrays give equal bytes


def write_npz(
    target: Path | IO[bytes], arrays: Mapping[str, npt.ArrayLike], *, compressed: bool = False
) -> None:
    """Write arrays like `numpy.savez`, but under any names; `numpy.load` reads the file.

    `numpy.savez` refuses the name `file` and cuts names at NUL. Names that an archive cannot hold
    are spelled by `entry_name`.
    """
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(target, "w", kind, allowZip64=True) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{entry_name(name)}.npy", EPOCH)
            entry.compress_type = kind
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as stream:
                # In C order, so that equal arrays give equal bytes with any strides.
                np.lib.format.write_array(stream, np.asarray(array, order="C"), allow_pickle=False)


def hash_of(arrays: Mapping[str, npt.ArrayLike]) -> str:
    """SHA-256 of names, types, shapes and elements."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def npz_bytes(arrays: Mapping[str, npt.ArrayLike]) -> bytes:
    """The bytes that `write_npz` writes."""
    content = io.BytesIO()
    write_npz(content, arrays)
    return content.getvalue()
