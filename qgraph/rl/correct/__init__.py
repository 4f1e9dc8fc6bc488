"""Off-policy correction: actors act by a compressed policy, the learner learns another."""

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
