"""Classes and functions of Keras 2 and 3 that may be made from a file's config.

They compute on tensors; their arguments are numbers, text and each other. Classes that take a
function, a path or code (Lambda, TFSMLayer, JaxLayer, StringLookup, Map, Cond ...) are excluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _sizes(text: str, sizes: tuple[int, ...]) -> frozenset[str]:
    """`Conv#` as Conv1D, Conv2D and so on."""
    return frozenset(name.replace("#", f"{n}D") for name in text.split() for n in sizes)


MODELS = _names("Functional Model Sequential")

LAYERS = _sizes(
    """AdaptiveAveragePooling# AdaptiveMaxPooling# AveragePooling# AvgPool# Conv# Conv#Transpose
    ConvLSTM# Convolution# Convolution#Transpose Cropping# GlobalAveragePooling# GlobalAvgPool#
    GlobalMaxPool# GlobalMaxPooling# MaxPool# MaxPooling# SpatialDropout# UpSampling#
    ZeroPadding#""",
    (1, 2, 3),
) | _sizes("DepthwiseConv# LocallyConnected# SeparableConv# SeparableConvolution#", (1, 2))
LAYERS |= _names(
    """Activation ActivityRegularization Add AdditiveAttention AlphaDropout Attention Average
    BatchNormalization BatchNormalizationV1 BatchNormalizationV2 Bidirectional
    CategoryEncoding CenterCrop Concatenate Dense Dot Dropout ELU EinsumDense Embedding
    Flatten GRU GRUCell GRUV2 GaussianDropout GaussianNoise GroupNormalization
    GroupQueryAttention Identity InputLayer LSTM LSTMCell LSTMV2 LayerNormalization LayerScale
    LeakyReLU Masking Maximum Minimum MultiHeadAttention Multiply Normalization PReLU Permute
    RMSNormalization RNN RandomBrightness RandomContrast RandomCrop RandomFlip RandomHeight
    RandomRotation RandomTranslation RandomWidth RandomZoom ReLU RepeatVector Rescaling
    Reshape Resizing SimpleRNN SimpleRNNCell Softmax SpectralNormalization StackedRNNCells
    Subtract SyncBatchNormalization ThresholdedReLU TimeDistributed UnitNormalization"""
)

VALUES = _names(
    """Constant GlorotNormal GlorotUniform HeNormal HeUniform IdentityInitializer LecunNormal
    LecunUniform Ones Orthogonal OrthogonalInitializer RandomNormal RandomUniform TruncatedNormal
    VarianceScaling Zeros
    L1 L1L2 L2 OrthogonalRegularizer
    MaxNorm MinMaxNorm NonNeg RadialConstraint UnitNorm
    DTypePolicy DTypePolicyMap FloatDTypePolicy Policy"""
)

# Operations of Keras 3 on tensors, which are layers in its functional models.
OPERATIONS = _names(
    """Abs Absolute AdaptiveAveragePool AdaptiveMaxPool Add All Amax Amin Any Arange Argmax Argmin
    Average AveragePool BatchNorm BroadcastTo Cast Ceil Celu Clip Concatenate Conv ConvTranspose
    Copy Cos Cosh Cumprod Cumsum DepthToSpace DepthwiseConv Divide DivideNoNan Dot
    DotProductAttention Einsum Elu Equal Erf Erfc Exp Exp2 ExpandDims Expm1 Flip Floor FloorDivide
    Full FullLike Gelu GetItem Glu Greater GreaterEqual HardShrink HardSigmoid HardSilu HardTanh
    Hstack LayerNorm LeakyRelu Less LessEqual Log Log10 Log1p Log2 LogSigmoid LogSoftmax LogicalAnd
    LogicalNot LogicalOr LogicalXor Logsumexp Matmul Max MaxPool Maximum Mean Min Minimum Mod
    Moments Moveaxis Multiply Negative Normalize NotEqual OneHot OnesLike PadImages Pad Power Prod
    RGBToGrayscale RMSNorm Ravel Reciprocal Relu Relu6 Repeat Reshape Resize Roll Round Rsqrt
    SaturateCast Selu SeparableConv Sigmoid Sign Silu Sin Sinh Slice Softmax Softplus SoftShrink
    Softsign SpaceToDepth SparsePlus SparseSigmoid Split Sqrt Square Squareplus Squeeze Stack Std
    StopGradient Subtract Sum Swapaxes Take TakeAlongAxis Tan Tanh TanhShrink Tensordot Threshold
    Tile TopK Transpose Tril Triu TrueDivide Unstack Var Vstack Where ZerosLike"""
)

# Data in a config, not objects.
DATA = _names(
    """__bytes__ __ellipsis__ __keras_tensor__ __numpy__ __slice__ __tensor__ __tuple__
    TensorShape"""
)

ACTIVATIONS = _names(
    """celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh
    leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax
    softplus softsign sparse_plus sparse_sigmoid squareplus swish tanh tanh_shrink threshold"""
)

# What TFOpLambda may call: TensorFlow functions of tensors, by their public names after `tf.`.
PLAIN = _names(
    """abs add add_n argmax argmin batch_to_space broadcast_to cast clip_by_value concat cos
    divide einsum equal exp expand_dims eye fill floor gather greater greater_equal identity
    less less_equal linspace logical_and logical_not logical_or matmul maximum minimum multiply
    negative norm not_equal one_hot ones ones_like pad pow range rank reduce_all reduce_any
    reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum repeat reshape
    reverse roll round saturate_cast shape sigmoid sign sin size slice space_to_batch split
    sqrt square squeeze stack stop_gradient strided_slice subtract tanh tensordot tile
    transpose truediv unstack where zeros zeros_like"""
)
MATH = _names(
    """abs add add_n argmax argmin ceil cos cosh cumprod cumsum divide divide_no_nan equal erf
    erfc exp expm1 floor floordiv floormod greater greater_equal l2_normalize less less_equal
    log log1p log_sigmoid log_softmax logical_and logical_not logical_or logical_xor maximum
    minimum mod multiply multiply_no_nan negative not_equal pow reciprocal reduce_all
    reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_std
    reduce_sum reduce_variance rint round rsqrt scalar_mul sigmoid sign sin sinh softmax
    softplus softsign sqrt square squared_difference subtract tan tanh top_k truediv"""
)
NN = _names(
    """avg_pool avg_pool1d avg_pool2d batch_normalization bias_add conv1d conv2d conv2d_transpose
    convolution crelu depth_to_space depthwise_conv2d elu gelu l2_normalize leaky_relu
    local_response_normalization log_softmax lrn max_pool max_pool1d max_pool2d moments pool
    relu relu6 selu separable_conv2d sigmoid silu softmax softplus softsign space_to_depth
    swish tanh top_k"""
)
OPERATORS = _names(
    """abs add and eq floordiv ge getitem gt invert le lt matmul mod mul ne neg or pow radd rand
    rdiv rfloordiv rmatmul rmod rmul ror rpow rsub rtruediv rxor sub truediv xor"""
)
OTHERS = _names("image.resize image.rgb_to_grayscale linalg.matmul linalg.norm linalg.l2_normalize")
FUNCTIONS = PLAIN | OTHERS.union(
    *(
        {f"{module}.{name}" for name in names}
        for module, names in (("math", MATH), ("nn", NN), ("__operators__", OPERATORS))
    )
)


def is_known_function(name: str) -> bool:
    """Whether TFOpLambda may call `tf.NAME`."""
    if name.startswith("keras.activations."):
        return name.removeprefix("keras.activations.") in ACTIVATIONS
    return name in FUNCTIONS or name.removeprefix("compat.v1.") in FUNCTIONS


# Layers of networks in `applications`, by the module there. Keras does not find them by name.
OF_APPLICATIONS: Mapping[str, str] = MappingProxyType(
    {
        "LayerScale": "convnext",
        "StochasticDepth": "convnext",
        "CustomScaleLayer": "inception_resnet_v2",
    }
)
# The module of initializers that TensorFlow itself has, which networks of tf_keras name.
INITIALIZERS_OF_TENSORFLOW = "tensorflow.python.ops.init_ops_v2"
# Modules of such classes and functions, after `keras.`, `keras.src.` and the like.
HOMES = _names(
    """activations applications constraints dtype_policies engine initializers layers
    mixed_precision models ops regularizers"""
)
