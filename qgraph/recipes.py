"""The recipes: tuples of passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.choices import DEFAULT_PROFILE, Equalization
from qgraph.passes import Pass
from qgraph.quant.plan import PLAIN, Plan, everything
from qgraph.quant.profile import Profile
from qgraph.transforms.absorb_biases import AbsorbBiases
from qgraph.transforms.avg_pool_to_depthwise import AvgPoolToDepthwise
from qgraph.transforms.canonicalize_arithmetic import CanonicalizeArithmetic
from qgraph.transforms.collapse_concat import CollapseConcat
from qgraph.transforms.compose_functions import ComposeFunctions
from qgraph.transforms.convert_dilations import ConvertDilations
from qgraph.transforms.counts_to_tables import CountsToTables
from qgraph.transforms.equalize_channels import EqualizeChannels
from qgraph.transforms.expectations_to_products import ExpectationsToProducts
from qgraph.transforms.fix_input_shape import FixInputShape
from qgraph.transforms.fold_batch_norm import FoldBatchNorm
from qgraph.transforms.fold_centering import FoldCentering
from qgraph.transforms.fold_constant_channels import FoldConstantChannels
from qgraph.transforms.fold_constants import FoldConstants
from qgraph.transforms.fold_flattens import FoldFlattens
from qgraph.transforms.fold_repeated_rows import FoldRepeatedRows
from qgraph.transforms.hoist_quantizers import HoistQuantizers
from qgraph.transforms.insert_quantizers import InsertQuantizers
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from qgraph.transforms.lower_leaky_relu import LowerLeakyRelu
from qgraph.transforms.lower_log_softmax import LowerLogSoftmax
from qgraph.transforms.lower_paddings import LowerPaddings
from qgraph.transforms.mark_scale_groups import MarkScaleGroups
from qgraph.transforms.mean_to_avg_pool import MeanToAvgPool
from qgraph.transforms.move_biases import MoveBiases
from qgraph.transforms.prune_constant_channels import PruneConstantChannels
from qgraph.transforms.recognize_activations import RecognizeActivations
from qgraph.transforms.recognize_batch_norm import RecognizeBatchNorm
from qgraph.transforms.recognize_layer_norm import RecognizeLayerNorm
from qgraph.transforms.recognize_softmax import RecognizeSoftmax
from qgraph.transforms.recognize_tabulated import RecognizeTabulated
from qgraph.transforms.refuse_non_finite import RefuseNonFinite
from qgraph.transforms.remove_training_nodes import RemoveTrainingNodes
from qgraph.transforms.scale_inputs import ScaleInputs
from qgraph.transforms.share_constants import ShareConstants
from qgraph.transforms.simplify_selects import SimplifySelects
from qgraph.transforms.sink_moves import SinkMoves
from qgraph.transforms.sink_reshapes import SinkReshapes
from qgraph.transforms.sink_squeezes import SinkSqueezes
from qgraph.transforms.sink_transposes import SinkTransposes
from qgraph.transforms.splice_identities import SpliceIdentities
from qgraph.transforms.strip_unused import StripUnused
from qgraph.transforms.sums_to_products import SumsToProducts
from qgraph.transforms.wrap_accumulators import WrapAccumulators

# A float graph from training -> layers with separate batch norms.
CLEAN: tuple[Pass, ...] = (
    FixInputShape(),  # first: later passes read shapes
    StripUnused(),  # leftovers of training must not count as second users
    RemoveTrainingNodes(),
    SpliceIdentities(),  # patterns then see constants directly, not `weights/read`
    RecognizeLayerNorm(),  # first: a batch norm on moments of the data looks much like one
    RecognizeBatchNorm(),  # before constants are folded: mean and variance are still separate
    FoldConstants(),
    RecognizeTabulated(),  # of quantizers of the file
    FoldRepeatedRows(),  # first states of recurrent layers
    SimplifySelects(),  # of masked steps; their first states are constants
    ShareConstants(),  # transposes of one weight are one constant
    SinkMoves(),  # of transposed convolutions; first: a leaky ReLU reads its input twice
    LowerLeakyRelu(),
    SinkTransposes(),  # layout first: "last axis" below means channels
    RecognizeLayerNorm(),  # again: norms over axis 1 of NCHW, and constants that had to be folded
    RecognizeSoftmax(),
    MeanToAvgPool(),  # after norms, before squeezes, because it creates squeezes
    RecognizeActivations(),  # before arithmetic is canonical: x / 6 is still a division
    LowerLogSoftmax(),  # before functions: it makes two of them
    ComposeFunctions(),  # after it: recognized activations keep their names
    FoldFlattens(),
    SinkSqueezes(),
    ConvertDilations(),
    SinkReshapes(),  # of dense layers on rows
    SinkMoves(),  # again: activations are recognized, and layouts are known
    CanonicalizeArithmetic(),  # biases are bias_add before batch norms look for them
    RefuseNonFinite(),  # before weights are folded into each other
)
# -> the same function in the few forms that quantization knows.
FOLD: tuple[Pass, ...] = (
    FoldBatchNorm(),
    FoldCentering(),
    LowerBatchNorm(),
    CollapseConcat(),
    AvgPoolToDepthwise(),
    LowerPaddings(),
    # Again: standalone batch norms are layers only now.
    RecognizeActivations(),
    ComposeFunctions(),
    StripUnused(),
    MoveBiases(),  # after functions, which may have a bias within
    CountsToTables(),  # before sums are products
    ExpectationsToProducts(),  # before sums are products, and after products are folded
    SumsToProducts(),  # last: what other passes recognize has sums
    ShareConstants(),  # weights with the same folded batch norm are equal
)
FLOAT: tuple[Pass, ...] = (*CLEAN, *FOLD)
# Passes that actors do not need: they support these ops directly.
NOT_FOR_ACTORS = (
    ComposeFunctions, LowerLeakyRelu, LowerLogSoftmax, MeanToAvgPool, AvgPoolToDepthwise,
    LowerPaddings, ExpectationsToProducts, SumsToProducts, SinkMoves,
)  # fmt: skip
# A policy from training -> the forms that `qgraph.rl.policy.read` supports.
POLICY: tuple[Pass, ...] = tuple(step for step in FLOAT if not isinstance(step, NOT_FOR_ACTORS))


def prepare(plan: Plan) -> tuple[Pass, ...]:
    """FLOAT, with the passes on weights that `plan` adds before quantization."""
    constants = [FoldConstantChannels(plan.constant_channels)] if plan.constant_channels else []
    prune = [PruneConstantChannels()] if constants else []
    kind = plan.equalize
    scaled = EqualizeChannels(
        biases=kind is Equalization.BIASES,
        powers_of_two=plan.powers_of_two,
        noise=kind.by_noise,
        measured=kind is Equalization.MEASURED,
    )
    equalize = [scaled] if kind else []
    absorb = [AbsorbBiases()] if plan.absorb else []
    return (*CLEAN, *constants, *FOLD, *prune, *equalize, *absorb)


def insert(profile: Profile) -> tuple[Pass, ...]:
    """A float graph in those forms -> one with quantizers, ready for calibration."""
    return (InsertQuantizers(profile), HoistQuantizers(), MarkScaleGroups())


def static(profile: Profile, plan: Plan = PLAIN) -> tuple[Pass, ...]:
    """A trained float graph -> one with quantizers, ready for calibration."""
    return (*prepare(plan), *insert(profile))


RECIPES: Mapping[str, tuple[Pass, ...]] = MappingProxyType(
    {"float": FLOAT, "static": static(Profile(DEFAULT_PROFILE)), "policy": POLICY}
)
# Passes that a plan or a profile adds to `static`.
OPTIONAL: tuple[Pass, ...] = (
    *(step for step in prepare(everything()) if step not in FLOAT),
    ScaleInputs({}),
    WrapAccumulators(32),
)
