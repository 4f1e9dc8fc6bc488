"""Fused compute ops, split into the layers that they contain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.local_response import LocalResponse
from qgraph.frontends.tf.builder import Importer, Result, TfSite
from qgraph.frontends.tf.ops.layout import channels_first, window

ACTIVATIONS = {
    "Relu": "relu", "Relu6": "relu6", "Elu": "elu", "Sigmoid": "sigmoid", "Tanh": "tanh",
    "LeakyRelu": "leaky_relu", "GeluApproximate": "gelu", "GeluExact": "gelu", "_MklSwish": "swish",
}  # fmt: skip


def _activation_attrs(site: TfSite, name: str) -> dict[str, object]:
    if name == "LeakyRelu":
        return {"alpha": site.node.real("leakyrelu_alpha", 0.2)}
    return {"approximate": name == "GeluApproximate"} if name.startswith("Gelu") else {}


def _fused_step(
    site: TfSite, name: str, args: list[str]
) -> tuple[str, list[str], dict[str, object]] | None:
    """The op, its further inputs (taken from `args`) and attributes of one fused step."""
    if name == "BiasAdd":
        return "bias_add", [args.pop(0)], {}
    if name == "FusedBatchNorm":
        statistics = [args.pop(0) for _ in range(4)]
        return "batch_norm", statistics, {"epsilon": site.node.real("epsilon", 1e-4)}
    if name == "Add":
        return "add", [args.pop(0)], {}
    if name in ACTIVATIONS:
        return ACTIVATIONS[name], [], _activation_attrs(site, name)
    return None


def _split(site: TfSite, op: str, compute: Mapping[str, object], x: str, w: str) -> Result:
    steps = site.node.texts("fused_ops")
    if channels_first(site.node) and "Add" in steps:
        return None
    if "FusedBatchNorm" not in steps:
        site.without_effect("epsilon")
    if "LeakyRelu" not in steps:
        site.without_effect("leakyrelu_alpha")
    args = list(site.inputs[2 : 2 + site.node.integer("num_args", len(site.inputs) - 2)])
    plan: list[tuple[str, list[str], Mapping[str, object]]] = [(op, [w], compute)]
    for name in steps:
        step = _fused_step(site, name, args)
        if step is None:
            return None
        plan.append(step)
    value = x
    if channels_first(site.node):
        value = site.helper("to_nhwc", "transpose", value, perm=(0, 2, 3, 1))
        plan.append(("transpose", [], {"perm": (0, 3, 1, 2)}))
    for step_op, others, attrs in plan[:-1]:
        value = site.helper(step_op, step_op, value, *others, **attrs)
    last_op, others, attrs = plan[-1]
    return site.emit(last_op, value, *others, **attrs)


def _fused_convolution(op: str) -> Importer:
    def importer(site: TfSite) -> Result:
        attrs = window(site.node)
        if attrs is None:
            return None
        return _split(site, op, attrs, site.inputs[0], site.inputs[1])

    return importer


def _fused_matmul(site: TfSite) -> Result:
    x, w = site.inputs[:2]
    if site.node.flag("transpose_a"):
        x = site.helper("a", "transpose", x, perm=(1, 0))
    if site.node.flag("transpose_b"):
        value = site.constant(1)
        w = (
            site.helper("b", "transpose", w, perm=(1, 0))
            if value is None
            else site.const(value.T, "b")
        )
    return _split(site, "matmul", {}, x, w)


def _local_response(site: TfSite) -> Result:
    radius = site.node.integer("depth_radius", 5)
    known = site.type()
    if not known.is_float or known.rank != 4 or radius < 0:
        return None
    made = LocalResponse(
        before=radius, after=radius, factor=site.node.real("alpha", 1.0),
        bias=site.node.real("bias", 1.0), power=site.node.real("beta", 0.5),
    ).of(site, site.inputs[0])  # fmt: skip
    return site.emit("identity", made)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "_FusedConv2D": _fused_convolution("conv2d"),
        "_FusedDepthwiseConv2dNative": _fused_convolution("depthwise_conv2d"),
        "_FusedMatMul": _fused_matmul,
        "LRN": _local_response,
    }
)
