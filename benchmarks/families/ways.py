"""The columns of table 3: how a network is quantized and trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    @property
    def key(self) -> str:
        marks = [] if self.equalized else ["unequalized"]
        marks += ["annealed"] if self.annealed else []
        marks += ["searched"] if self.searched else []
        return "-".join(part for part in (self.profile or "float", self.learn, *marks) if part)

    @property
    def plan(self) -> Plan | None:
        """As it is, by MAX; or what `--mode retrain` does, where thresholds learn too.

        None: that of the search.
        """
        if self.searched:
            return None
        plan = TO_TRAIN if self.learn == "all" else PLAIN
        return plan if self.equalized else replace(plan, equalize=Equalization.OFF)


WAYS = (
    Way("FP32", None),
    Way("static INT8", "graffitist-int8"),
    Way("wt FP32", None, "weights"),
    Way("wt INT8", "graffitist-int8", "weights"),
    Way("wt+th INT8", "graffitist-int8", "all"),
    Way("wt+th INT4", "graffitist-int4", "all"),
    Way("static INT4", "graffitist-int4", searched=True),
    Way("INT4 from static", "graffitist-int4", "all", annealed=True, searched=True),
)
REFERENCE, INT8_TRAINED, INT4_TRAINED, INT4_FROM_STATIC = WAYS[2], WAYS[4], WAYS[5], WAYS[7]
COMPARED_WITH_REFERENCE = {
    "INT8 over wt FP32": INT8_TRAINED,
    "INT4 over wt FP32": INT4_TRAINED,
    "INT4 from static over wt FP32": INT4_FROM_STATIC,
}
INT4_UNEQUALIZED = replace(INT4_TRAINED, title="wt+th INT4, not equalized", equalized=False)
INT8_UNEQUALIZED = replace(INT8_TRAINED, title="wt+th INT8, not equalized", equalized=False)
ANNEALED = tuple(
    replace(w, title=f"{w.title}, annealed", annealed=True) for w in (REFERENCE, INT8_TRAINED)
)
