"""The compressor: a chain of links, with a text of one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.rl.actor import ActorProgram
from qgraph.rl.compress.call_text import parse_call, split
from qgraph.rl.compress.chain_policy import ChainPolicy, Memory, silent
from qgraph.rl.compress.distill import Distill
from qgraph.rl.compress.factorize import Factorize
from qgraph.rl.compress.fuse import Fuse
from qgraph.rl.compress.link import Compression, End, Link
from qgraph.rl.compress.pack import Pack
from qgraph.rl.compress.prune import Prune
from qgraph.rl.compress.quantize import Quantize
from qgraph.rl.compress.static import Static

LINKS: Mapping[str, type[Link]] = MappingProxyType(
    {kind.name: kind for kind in (Prune, Distill, Factorize, Fuse, Quantize, Pack, Static)}
)

L = TypeVar("L", bound=Link)


@dataclass(frozen=True)
class Compressor:
    """A chain of responsibility over policies (AcceRL, section 2.2, table 1).

        compressor = Compressor().prune(0.5).distill("net3").quantize(8).pack()
        compressor = Compressor.parse("prune(0.5)|distill(net3)|quantize(8)|pack")
        block = compressor(policy, observations).block

    Its text is `str(compressor)`, which `parse` reads unless a student in it is an
    `ActorProgram`. Raises UsageError for a value that is not a link, and for a link behind one that
    ends the chain.
    """

    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        for link in self.links:
            _as_link(link)
        for link in self.links[:-1]:
            if isinstance(link, End):
                raise UsageError(f"nothing can follow `{link}`: it ends the chain")

    def then(self, link: Link) -> Compressor:
        """The chain with one more link, such as a custom one."""
        return Compressor((*self.links, link))

    def prune(self, sparsity: float) -> Compressor:
        return self.then(Prune(sparsity))

    def distill(self, student: str | ActorProgram = "", **settings: Any) -> Compressor:
        """settings: fields of `Distill`."""
        return self.then(Distill(student, **settings))

    def factorize(self, energy: float = 0.99) -> Compressor:
        return self.then(Factorize(energy))

    def fuse(self) -> Compressor:
        return self.then(Fuse())

    def quantize(
        self, bits: int = 8, first: int | None = None, last: int | None = None
    ) -> Compressor:
        return self.then(Quantize(bits, first, last))

    def pack(self) -> Compressor:
        return self.then(Pack())

    def static(self, bits: int | None = None) -> Compressor:
        return self.then(Static(bits))

    def __call__(
        self,
        policy: ChainPolicy,
        observations: Array | None = None,
        memory: Memory | None = None,
        beat: Callable[[], object] = silent,
        trace: Trace | None = None,
    ) -> ChainPolicy:
        """The compressed policy; `policy` stays as it is.

        observations: [n, *shape], for links that learn or calibrate. memory: an empty dict at
        first, to be passed again with the next policy of the same program, so that a student
        continues to learn, in other chains too. beat: called from time to time. trace: records the
        changes and the refusals of each link.

        Raises the errors of links, with the link's text in front; UnsupportedError for other
        exceptions, and for outputs that differ from those of `policy`.
        """
        subject = Compression(policy, observations, {} if memory is None else memory, beat)
        PassManager(self.links).run(subject, trace)
        return subject.policy

    def first(self, kind: type[L]) -> L | None:
        """The first link of a class; None without one."""
        return next((link for link in self.links if isinstance(link, kind)), None)

    def changed(self, kind: type[L], change: Callable[[L], Link | None]) -> Compressor:
        """The chain with the links of a class changed, or removed if `change` returns None."""
        links = (change(link) if isinstance(link, kind) else link for link in self.links)
        return Compressor(tuple(link for link in links if link is not None))

    @property
    def quantize_link(self) -> Quantize | None:
        """The last `quantize`, which sets the bits; None without one."""
        return next((link for link in reversed(self.links) if isinstance(link, Quantize)), None)

    def with_bits(self, bits: int) -> Compressor:
        """The chain with other bits in `quantize_link`."""
        last = self.quantize_link
        return Compressor(tuple(x.with_bits(bits) if x is last else x for x in self.links))

    def __str__(self) -> str:
        return "|".join(map(str, self.links))

    @staticmethod
    def parse(text: str) -> Compressor:
        """The chain of a text. Raises UsageError."""
        parts = split(text, "|") if text.strip() else []
        return Compressor(tuple(_as_link(parse_call(part, LINKS, "link")) for part in parts))


def _as_link(value: object) -> Link:
    if not isinstance(value, Link):
        raise UsageError(f"`{value}` is not a link", hint="use a dataclass from rl.compress.Link")
    return value
