"""The pipelines, as visible tuples: what runs, in order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.passes import Pass
from qgraph.quant.profile import Profile
from qgraph.transforms.avg_pool_to_depthwise import AvgPoolToDepthwise
from qgraph.transforms.canonicalize_arithmetic import CanonicalizeArithmetic
from qgraph.transforms.collapse_concat import CollapseConcat
from qgraph.transforms.convert_dilations import ConvertDilations
from qgraph.transforms.fix_input_shape import FixInputShape
from qgraph.transforms.fold_batch_norm import FoldBatchNorm
from qgraph.transforms.fold_constants import FoldConstants
from qgraph.transforms.hoist_quantizers import HoistQuantizers
from qgraph.transforms.insert_quantizers import InsertQuantizers
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from qgraph.transforms.lower_leaky_relu import LowerLeakyRelu
from qgraph.transforms.mark_scale_groups import MarkScaleGroups
from qgraph.transforms.mean_to_avg_pool import MeanToAvgPool
from qgraph.transforms.recognize_activations import RecognizeActivations
from qgraph.transforms.recognize_batch_norm import RecognizeBatchNorm
from qgraph.transforms.remove_training_nodes import RemoveTrainingNodes
from qgraph.transforms.sink_transposes import SinkTransposes
from qgraph.transforms.splice_identities import SpliceIdentities
from qgraph.transforms.strip_unused import StripUnused

# A float graph as it was trained -> the same function in the few forms that quantization knows.
FLOAT: tuple[Pass, ...] = (
    FixInputShape(),  # first: later passes read shapes
    StripUnused(),  # training leftovers must not count as second users
    RemoveTrainingNodes(),
    SpliceIdentities(),  # patterns then see constants directly, not `weights/read`
    RecognizeBatchNorm(),  # before constants fold: mean and variance are still apart
    FoldConstants(),
    RecognizeActivations(),  # before arithmetic is canonical: x / 6 is still a division
    LowerLeakyRelu(),
    SinkTransposes(),  # layout first: "last axis" below means channels
    ConvertDilations(),
    CanonicalizeArithmetic(),  # biases are bias_add before batch norms look for them
    FoldBatchNorm(),
    LowerBatchNorm(),
    CollapseConcat(),
    MeanToAvgPool(),
    AvgPoolToDepthwise(),
    StripUnused(),
)


def static(profile: Profile) -> tuple[Pass, ...]:
    """A trained float graph -> one with quantizers, ready to be calibrated."""
    return (*FLOAT, InsertQuantizers(profile), HoistQuantizers(), MarkScaleGroups())


RECIPES: Mapping[str, tuple[Pass, ...]] = MappingProxyType(
    {"float": FLOAT, "static": static(Profile("graffitist-int8"))}
)
