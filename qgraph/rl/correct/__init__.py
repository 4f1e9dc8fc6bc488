"""Off-policy correction: actors use a compressed policy, not the one that learns."""

from qgraph.rl.correct.correction import Corrected, Correction
from qgraph.rl.correct.correctors import ImportanceSampling, Retrace, TreeBackup, VTrace
from qgraph.rl.correct.trajectories import Corrector, Trajectories

__all__ = [
    "Corrected",
    "Correction",
    "Corrector",
    "ImportanceSampling",
    "Retrace",
    "Trajectories",
    "TreeBackup",
    "VTrace",
]
