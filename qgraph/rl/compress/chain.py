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
    """A chain of links that make a policy smaller or faster (AcceRL, section 2.2, table 1).

    `str(compressor)` is its text, which `parse` reads, unless a student in it is an `ActorProgram`.

    Attributes:
        links: The links, in order.

    Raises:
        UsageError: A value is not a link, or a link follows one that ends the chain.

    Examples:
        >>> from qgraph.rl.compress import ChainPolicy, Compressor
        >>> compressor = Compressor().prune(0.5).quantize(8).pack()
        >>> str(compressor)
        'prune(0.5)|quantize(8)|pack'
        >>> compressor == Compressor.parse("prune(0.5)|quantize(8)|pack")
        True

        `program` and `weights` are those of the example of `qgraph.rl.actor.ActorProgram`.

        >>> Compressor().quantize(4)(ChainPolicy(program, weights)).bits
        (4, None, None)
    """

    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        for link in self.links:
            _as_link(link)
        for link in self.links[:-1]:
            if isinstance(link, End):
                raise UsageError(f"nothing can follow `{link}`: it ends the chain")

    def then(self, link: Link) -> Compressor:
        """Append a link, such as a custom one.

        Args:
            link: The link.

        Returns:
            The longer chain.

        Raises:
            UsageError: The value is not a link, or the chain has ended.
        """
        return Compressor((*self.links, link))

    def prune(self, sparsity: float) -> Compressor:
        """Append pruning: units and feature maps of hidden layers are removed.

        Args:
            sparsity: Share of the units of each layer to remove, above 0 and below 1.

        Returns:
            The longer chain.

        Raises:
            UsageError: The share is out of range, or the chain has ended.
        """
        return self.then(Prune(sparsity))

    def distill(self, student: str | ActorProgram = "", **settings: Any) -> Compressor:
        """Append distillation: a student is trained to act as the original policy.

        Args:
            student: Name of the student's network, its layers such as `64-64`, or its program.
            settings: Fields of `Distill`, by name.

        Returns:
            The longer chain.

        Raises:
            UsageError: A setting is out of range, or the chain has ended.
        """
        return self.then(Distill(student, **settings))

    def factorize(self, energy: float = 0.99) -> Compressor:
        """Append factorization: dense layers become two layers if these have fewer weights.

        Args:
            energy: Share of the squared singular values to keep, above 0 to 1.

        Returns:
            The longer chain.

        Raises:
            UsageError: The share is out of range, or the chain has ended.
        """
        return self.then(Factorize(energy))

    def fuse(self) -> Compressor:
        """Append fusion: pairs of steps are merged, such as a layer and its activation.

        Returns:
            The longer chain.

        Raises:
            UsageError: The chain has ended.
        """
        return self.then(Fuse())

    def quantize(
        self, bits: int = 8, first: int | None = None, last: int | None = None
    ) -> Compressor:
        """Append quantization of weights.

        Args:
            bits: Bits of weights: 32 (float32), 16 (float16) or 8 to 2.
            first: Bits of the first layers; None takes those of `end_bits`.
            last: Bits of the last layers; None takes those of `end_bits`.

        Returns:
            The longer chain.

        Raises:
            UsageError: The bits are not supported, or the chain has ended.
        """
        return self.then(Quantize(bits, first, last))

    def pack(self) -> Compressor:
        """Append packing into a block for actors. It ends the chain.

        Returns:
            The longer chain.

        Raises:
            UsageError: The chain has ended.
        """
        return self.then(Pack())

    def static(self, bits: int | None = None) -> Compressor:
        """Append an integer program, calibrated on observations. It ends the chain.

        Args:
            bits: Bits of weights, 8 to 2; None takes those of the last `quantize`, or 8.

        Returns:
            The longer chain.

        Raises:
            UsageError: The bits are not supported, or the chain has ended.
        """
        return self.then(Static(bits))

    def __call__(
        self,
        policy: ChainPolicy,
        observations: Array | None = None,
        memory: Memory | None = None,
        heartbeat: Callable[[], object] = silent,
        trace: Trace | None = None,
    ) -> ChainPolicy:
        """Compress a policy.

        Args:
            policy: The policy. It does not change.
            observations: Array [n, *shape], for links that learn or calibrate.
            memory: An empty dict at first; pass it again with the next policy of the same program,
                so that a student continues to learn, in other chains too.
            heartbeat: Called from time to time.
            trace: Records the changes and the refusals of each link.

        Returns:
            The compressed policy.

        Raises:
            QGraphError: An error of a link, with the text of the link in front.
            UnsupportedError: A custom link failed, or outputs differ from those of `policy`.
        """
        subject = Compression(policy, observations, {} if memory is None else memory, heartbeat)
        PassManager(self.links).run(subject, trace)
        return subject.policy

    def first(self, kind: type[L]) -> L | None:
        """Find the first link of a class.

        Args:
            kind: The class.

        Returns:
            The link; None without one.
        """
        return next((link for link in self.links if isinstance(link, kind)), None)

    def changed(self, kind: type[L], change: Callable[[L], Link | None]) -> Compressor:
        """Change or remove the links of a class.

        Args:
            kind: The class.
            change: Returns the new link for a link, or None to remove it.

        Returns:
            The new chain.
        """
        links = (change(link) if isinstance(link, kind) else link for link in self.links)
        return Compressor(tuple(link for link in links if link is not None))

    @property
    def quantize_link(self) -> Quantize | None:
        """The last `quantize`, which sets the bits; None without one."""
        return next((link for link in reversed(self.links) if isinstance(link, Quantize)), None)

    def with_bits(self, bits: int) -> Compressor:
        """Change the bits of `quantize_link`.

        Args:
            bits: The new bits of weights.

        Returns:
            The new chain.
        """
        last = self.quantize_link
        return Compressor(tuple(x.with_bits(bits) if x is last else x for x in self.links))

    def __str__(self) -> str:
        return "|".join(map(str, self.links))

    @staticmethod
    def parse(text: str) -> Compressor:
        """Read a chain from text.

        Args:
            text: Calls of links between bars, such as `prune(0.5)|quantize(8)|pack`. A custom link
                is written with its module: `my.module.MyLink(3)`.

        Returns:
            The chain.

        Raises:
            UsageError: A link is unknown, or its values are out of range.
        """
        parts = split(text, "|") if text.strip() else []
        return Compressor(tuple(_as_link(parse_call(part, LINKS, "link")) for part in parts))


def _as_link(value: object) -> Link:
    if not isinstance(value, Link):
        raise UsageError(f"`{value}` is not a link", hint="use a dataclass from rl.compress.Link")
    return value
