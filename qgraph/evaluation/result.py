"""Results of an evaluation: scores, sizes and speed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from qgraph.notebook import table_html
from qgraph.words import counted


@dataclass(frozen=True)
class Accuracy:
    """Shares of samples, in [0, 1]; `top5` is None with five classes or fewer."""

    top1: float
    top5: float | None

    def cells(self) -> dict[str, str]:
        """The scores as text, by heading."""
        top5 = {} if self.top5 is None else {"top-5": f"{self.top5:.2%}"}
        return {"top-1": f"{self.top1:.2%}", **top5}


@dataclass(frozen=True)
class Error:
    """The distance of outputs from labels, over all their numbers."""

    root_mean_square: float
    mean_absolute: float

    def cells(self) -> dict[str, str]:
        """The scores as text, by heading."""
        return {
            "RMS error": f"{self.root_mean_square:.6g}",
            "mean error": f"{self.mean_absolute:.6g}",
        }


Score = Accuracy | Error


@dataclass(frozen=True)
class OutputScore:
    """One output, by float and quantized network; `same` is the share of equal classes, if any."""

    output: str
    floating: Score
    quantized: Score
    same: float | None

    def __str__(self) -> str:
        field, floating = next(iter(asdict(self.floating).items()))
        quantized = getattr(self.quantized, field)
        return f"{self.output}: {field} {floating:.4g} float, {quantized:.4g} quantized"


@dataclass(frozen=True)
class Sizes:
    """Bytes of all constants, in the float network and as codes."""

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


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of the float network and of the quantized one on labelled samples.

    Attributes:
        samples: The number of samples.
        outputs: For each output, the scores `floating` and `quantized` (`top1` and `top5`, or
            `root_mean_square` and `mean_absolute`), and the share `same` of equal classes.
        sizes: Bytes of the constants, `floating` and `quantized`, and their `compression`.
        speed: Time of the engine for one sample; None where the engine cannot run the network, and
            the integer reference did.
        warnings: Inputs that were prepared differently from the calibration samples.

    Examples:
        >>> found = qgraph.evaluate("out", "test.npz")
        >>> found
        Evaluation(450 samples, probabilities: top1 0.9911 float, 0.9911 quantized)
        >>> found.sizes.floating
        26440
    """

    samples: int
    outputs: tuple[OutputScore, ...]
    sizes: Sizes
    speed: Speed | None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        scores = ", ".join(map(str, self.outputs))
        return f"Evaluation({counted(self.samples, 'sample')}, {scores})"

    def _repr_html_(self) -> str:
        rows = [
            (output.output, name, heading, cell)
            for output in self.outputs
            for name, score in (("float", output.floating), ("quantized", output.quantized))
            for heading, cell in score.cells().items()
        ]
        title = f"{counted(self.samples, 'sample')}, {self.sizes.compression:.2f} times smaller"
        return table_html(title, ("output", "network", "score", "value"), rows)

    def facts(self) -> dict[str, object]:
        """All attributes as plain values, for JSON.

        Returns:
            Values by the names of the attributes.

        Examples:
            >>> qgraph.evaluate("out", "test.npz").facts()["outputs"][0]["same"]
            1.0
        """
        sizes = {**asdict(self.sizes), "compression": round(self.sizes.compression, 3)}
        return {**asdict(self), "sizes": sizes}
