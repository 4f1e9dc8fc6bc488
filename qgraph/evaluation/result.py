"""The facts of an evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from qgraph.notebook import table_html
from qgraph.words import counted


@dataclass(frozen=True)
class Accuracy:
    """Shares of samples, in [0, 1]; `top5` is None with five classes or fewer."""

    top1: float
    top5: float | None


@dataclass(frozen=True)
class Error:
    """The distance of outputs from labels, over all their numbers."""

    root_mean_square: float
    mean_absolute: float


Score = Accuracy | Error


@dataclass(frozen=True)
class OutputScore:
    """One output, by float and quantized network; `same` is the share of equal classes, if any."""

    output: str
    floating: Score
    quantized: Score
    same: float | None


@dataclass(frozen=True)
class Sizes:
    """Bytes of all constants: as the float network has them, and as codes."""

    floating: int
    quantized: int

    @property
    def compression(self) -> float:
        """How many times smaller the quantized constants are."""
        return self.floating / max(self.quantized, 1)


@dataclass(frozen=True)
class Speed:
    """Time of the integer engine for one sample; `level` names its instructions."""

    milliseconds: float
    level: str
    threads: int


@dataclass(frozen=True)
class Evaluation:
    """Both networks on `samples` labelled samples.

    `speed` is None where the engine cannot run the network; the integer reference then did.
    `warnings` name inputs that were prepared differently from the calibration samples.

    Example:
        >>> qgraph.evaluate("out", "test.npz").facts()
    """

    samples: int
    outputs: tuple[OutputScore, ...]
    sizes: Sizes
    speed: Speed | None
    warnings: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        rows = [
            (output.output, name, field, f"{value:.6g}")
            for output in self.outputs
            for name, score in (("float", output.floating), ("quantized", output.quantized))
            for field, value in asdict(score).items()
            if value is not None
        ]
        title = f"{counted(self.samples, 'sample')}, {self.sizes.compression:.2f} times smaller"
        return table_html(title, ("output", "network", "", ""), rows)

    def facts(self) -> dict[str, object]:
        """All of it, for JSON."""
        sizes = {**asdict(self.sizes), "compression": round(self.sizes.compression, 3)}
        return {**asdict(self), "sizes": sizes}
