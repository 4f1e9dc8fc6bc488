"""Script that reads everything in an HDF5 file once, in a process that can be ended.

    python hdf5_walk.py FILE MOST SPACE SECONDS

Arrays may have MOST bytes, the process SPACE, and SECONDS of processor time; then SIGPROF ends it,
as a damaged file can make libhdf5 loop forever. Prints JSON: the root's attributes as text,
names of its members, bytes of all arrays. It imports nothing of qgraph.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
from typing import TYPE_CHECKING

import h5py

if TYPE_CHECKING:
    from qgraph.foreign import Hdf5Object

KINDS = "fiubSV"  # of dtypes; V stands for bfloat16
SKIPPED = ("optimizer_weights", "optimizer")  # never read


def text_of(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


class Walk:
    def __init__(self, most: int) -> None:
        self.most, self.bytes, self.objects = most, 0, 0
        self.seen: set[int] = set()

    def group(self, group: Hdf5Object) -> None:
        for name in group:
            if group.name == "/" and name in SKIPPED:
                continue
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"`{name}` is a link to another place")
            child = group[name]
            address = h5py.h5o.get_info(child.id).addr
            if address in self.seen:
                raise ValueError(f"`{name}` occurs twice")
            self.seen.add(address)
            for key in child.attrs:
                child.attrs[key]
            if isinstance(child, h5py.Group):
                self.group(child)
            elif isinstance(child, h5py.Dataset):
                self.dataset(child)
            else:
                raise ValueError(f"`{name}` is neither a group nor an array")

    def dataset(self, dataset: Hdf5Object) -> None:
        if dataset.external or dataset.is_virtual:
            raise ValueError(f"`{dataset.name}` is stored in another file")
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        if dataset.dtype.kind not in KINDS and not is_text:
            raise ValueError(f"`{dataset.name}` is not an array of numbers")
        self.bytes += math.prod(dataset.shape or ()) * dataset.dtype.itemsize
        if self.bytes > self.most:
            raise ValueError(f"arrays of more than {self.most:,} bytes")
        dataset[()]


def main() -> None:
    path, (most, space), seconds = sys.argv[1], map(int, sys.argv[2:4]), float(sys.argv[4])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    _, most_allowed = resource.getrlimit(resource.RLIMIT_AS)  # such as that of `ulimit -v`
    if most_allowed != resource.RLIM_INFINITY:
        space = min(space, most_allowed)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    walk = Walk(most)
    try:
        with h5py.File(path, "r") as file:
            attributes = {str(name): text_of(file.attrs[name]) for name in file.attrs}
            walk.group(file)
            members = [str(name) for name in file]
    except Exception as error:  # h5py may raise anything on a foreign file
        print(json.dumps({"error": (str(error) or type(error).__name__)[:300]}))
    else:
        print(json.dumps({"attributes": attributes, "members": members, "bytes": walk.bytes}))


if __name__ == "__main__":
    main()
