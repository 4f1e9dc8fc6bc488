"""Write the files of the repository that are made from definitions; tests compare them.

Usage: `python -m tests.helpers.golden`, or `make golden`. Look at what changed before you commit
it: files of a published format must stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.topics import site
from qgraph.backends.engine import engine_file
from qgraph.backends.engine import native_ops as engine_ops
from qgraph.quant.key_tables import with_tables
from qgraph.rl.actor import Packer
from qgraph.rl.actor import native_ops as actor_ops
from tests.helpers.actors import everything, random_weights
from tests.helpers.doc_tables import TABLES, pages
from tests.helpers.native_stubs import interface_header, interface_module, native_stubs
from tests.helpers.program_builder import every_op

ROOT = Path(__file__).parents[2]


def every_block() -> bytes:
    """A packed actor with every op of actor programs."""
    program = everything()
    packer = Packer(program, 8, first_bits=16, last_bits=4)
    return packer.pack(random_weights(program), version=5).tobytes()


# By path: the function that makes the file. Tables in the documentation are included.
GOLDEN: Mapping[str, Callable[[], bytes]] = {
    "qgraph/_native.pyi": native_stubs,
    "qgraph/kernels/interface.py": interface_module,
    "fused_ops/bindings/interface.h": interface_header,
    "fused_ops/actor/ops.h": lambda: actor_ops.ops_header().encode(),
    "fused_ops/engine/ops.h": lambda: engine_ops.ops_header().encode(),
    "fused_ops/tests/every_op.qgi": lambda: engine_file(every_op()),
    "fused_ops/tests/every_op.qga": every_block,
}


def golden() -> Iterator[tuple[str, bytes]]:
    """Each generated file with its content."""
    yield from ((name, make()) for name, make in GOLDEN.items())
    yield from site.figures()
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        if name not in GOLDEN:
            yield name, with_tables(page.read_text("utf-8"), TABLES).encode()


def stale() -> list[str]:
    """The files that differ from what their definitions make."""
    return [name for name, content in golden() if _content(name) != content]


def _content(name: str) -> bytes:
    path = ROOT / name
    return path.read_bytes() if path.exists() else b""


def main() -> None:
    for name, content in golden():
        if _content(name) != content:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_bytes(content)
            print(f"{name} rewritten")


if __name__ == "__main__":
    main()
