"""The columns of table 3: how a network is quantized and trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.real.effort_networks import INT4_ACTIVATIONS
from qgraph.choices import Equalization
from qgraph.compiler import TO_TRAIN
from qgraph.quant.plan import PLAIN, Plan


@dataclass(frozen=True)
class Way:
    """A column: a profile (None for float), and what is trained."""

    title: str
    profile: str | None
    learn: str | None = None
    equalized: bool = True
    annealed: bool = False
    searched: bool = False  # training starts from the result of static mode's default effort
    weight_rate: float | None = None  # if it is not that of all ways

    @property
    def key(self) -> str:
        marks = [] if self.equalized else ["unequalized"]
        marks += ["annealed"] if self.annealed else []
        marks += [] if self.weight_rate is None else [f"rate{self.weight_rate:g}"]
        marks += ["searched"] if self.searched else []
        profile = Path(self.profile).stem if self.profile else "float"
        return "-".join(part for part in (profile, self.learn, *marks) if part)

    @property
    def plan(self) -> Plan | None:
        """As it is, by MAX; or what `--mode retrain` does, where thresholds learn too.

        None: that of the search.
        """
        if self.searched:
            return None
        plan = TO_TRAIN if self.learn == "all" else PLAIN
        return plan if self.equalized else replace(plan, equalize=Equalization.OFF)


# Chosen by validation images of resnet. The rate of the other ways, annealed, is too low to change
# many codes of a network that is near to float already.
ANNEALED_RATE = 5e-4
WAYS = (
    Way("FP32", None),
    Way("static INT8", "graffitist-int8"),
    Way("wt FP32", None, "weights"),
    Way("wt INT8", "graffitist-int8", "weights"),
    Way("wt+th INT8", "graffitist-int8", "all"),
    Way("wt+th INT4", "graffitist-int4", "all"),
    Way("static INT4", "graffitist-int4", searched=True),
    Way("wt FP32 annealed", None, "weights", annealed=True, weight_rate=ANNEALED_RATE),
    Way(
        "INT4 from static", "graffitist-int4", "all", annealed=True, searched=True,
        weight_rate=ANNEALED_RATE,
    ),
    Way("static INT4/4", INT4_ACTIVATIONS, searched=True),
    Way(
        "INT4/4 from static", INT4_ACTIVATIONS, "all", annealed=True, searched=True,
        weight_rate=ANNEALED_RATE,
    ),
)  # fmt: skip
REFERENCE, INT8_TRAINED, INT4_TRAINED = WAYS[2], WAYS[4], WAYS[5]
REFERENCE_ANNEALED, INT4_FROM_STATIC = WAYS[7:9]
COMPARISONS = {  # columns: a way, and the one that it is compared with
    "INT8 over wt FP32": (INT8_TRAINED, REFERENCE),
    "INT4 over wt FP32": (INT4_TRAINED, REFERENCE),
    "INT4 from static over wt FP32": (INT4_FROM_STATIC, REFERENCE),
    "INT4 from static over wt FP32 annealed": (INT4_FROM_STATIC, REFERENCE_ANNEALED),
}
INT4_UNEQUALIZED = replace(INT4_TRAINED, title="wt+th INT4, not equalized", equalized=False)
INT8_UNEQUALIZED = replace(INT8_TRAINED, title="wt+th INT8, not equalized", equalized=False)
ANNEALED = tuple(
    replace(w, title=f"{w.title}, annealed", annealed=True) for w in (REFERENCE, INT8_TRAINED)
)
