"""Definitions of actor ops: what is missing of an op fails by its name."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qgraph.errors import GraphError, UnsupportedError
from qgraph.ops.attributes import declarations
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.ops import ACTIVATIONS, ALPHA, OPS, ChannelRule
from qgraph.rl.actor.ops.activations import FUNCTIONS
from qgraph.rl.actor.records import COLUMNS, STEP
from qgraph.rl.compress.channels import channels_of
from qgraph.rl.policy import floats
from tests.helpers.actors import everything, mlp, random_weights


def test_codes_of_ops_are_those_of_blocks() -> None:
    """Blocks are stored in files and exchanged between versions."""
    assert {op.name: op.code for op in OPS.values()} == {
        "dense": 0, "conv": 1, "affine": 2, "clip": 3, "layer_norm": 4, "activate": 5, "center": 6,
        "softmax": 7, "max_pool": 8, "add": 9, "multiply": 10, "concat": 11, "flatten": 12,
        "slice": 13, "reshape": 14, "transpose": 15, "sum": 16, "matmul": 17, "avg_pool": 18,
    }  # fmt: skip
    assert [op.code for op in OPS.values()] == [*range(len(OPS))]
    assert list(ACTIVATIONS) == [
        "linear", "relu", "leaky_relu", "elu", "tanh", "sigmoid", "softplus", "swish", "exp",
        "sign", "erf",
    ]  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_every_attribute_has_a_column_in_blocks(op: str) -> None:
    for declared in declarations(OPS[op].attributes):
        assert declared.name in COLUMNS, f"{op}: no column `{declared.name}` in records.COLUMNS"
        column = COLUMNS[declared.name].name
        assert column in (STEP.names or ()), f"{op}: no column `{column}` in STEP"


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_defined_in_full(op: str) -> None:
    definition = OPS[op]
    assert definition.name == op and definition.summary and definition.operands
    assert definition.layer == (definition.weights == ("kernel", "bias")), f"{op}: weights"
    fresh = definition.channels in (ChannelRule.LAYER, ChannelRule.PLACED)
    assert fresh != (definition.channel_ids is not None), f"{op}: channel_ids"
    activates = any(d.name == "activation" for d in declarations(definition.attributes))
    assert definition.layer <= activates, f"{op}: a layer without an activation"


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_in_the_block_that_native_code_is_tested_with(op: str) -> None:
    assert op in {step.op for step in everything().steps}, f"{op}: not in tests/helpers/actors.py"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_has_a_function_and_a_step_that_is_tested(activation: str) -> None:
    assert activation in FUNCTIONS, f"{activation}: no function"
    x = np.linspace(-2, 2, 16, dtype=np.float32)
    step = ActorStep("activate", ("observation",), "y", (), {"activation": activation})
    found = step.definition.compute(step.attrs, [x], [])
    wanted = floats.activated(step, x)
    assert np.allclose(found, wanted, atol=1e-6), activation


def tables() -> dict:
    pytest.importorskip("tensorflow")
    from qgraph.rl.learn import tensors
    from qgraph.rl.trained_bits import policy_graph

    return {
        "floats": floats.STEPS,
        "learner": tensors.STEPS,
        "activations of learners": tensors.ACTIVATIONS,
        "few bits": policy_graph.STEPS,
        "activations of few bits": policy_graph.ACTIVATIONS,
    }


@pytest.mark.parametrize(
    "table",
    ["floats", "learner", "activations of learners", "few bits", "activations of few bits"],
)
def test_every_op_is_lowered_or_refused(table: str) -> None:
    assert not list(tables()[table].faults())


@pytest.mark.parametrize(("activation", "alpha"), [("softplus", None), ("elu", 0.5)])
def test_a_learner_refuses_activations_that_it_would_compute_otherwise(activation, alpha) -> None:
    tf = pytest.importorskip("tensorflow")
    from qgraph.rl.learn import tensors

    attrs = {"activation": activation, "alpha": alpha}
    step = ActorStep("activate", ("observation",), "y", (), attrs)
    program = ActorProgram((3,), (step,), ("y",), {})
    with pytest.raises(UnsupportedError, match="y: a learner has no"):
        tensors.run(program, {}, tf.zeros((1, 3)))


# -- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "weights", "attrs", "says"),
    [
        ("warp", 1, 0, {}, "y: actors have no op `warp`"),
        ("add", 1, 0, {}, "y: add: 1 inputs are given"),
        ("flatten", 2, 0, {}, "y: flatten: 2 inputs are given"),
        ("dense", 1, 1, {}, "y: dense: 1 weights are given"),
        ("dense", 1, 2, {"strides": (1, 1)}, "unknown attribute `strides`"),
        ("dense", 1, 2, {"activation": "relu6"}, "attribute `activation` is 'relu6'"),
        ("conv", 1, 2, {"strides": (0, 1)}, "attribute `strides`"),
        ("conv", 1, 2, {"pads": ((0, -1), (0, 0))}, "attribute `pads`"),
        ("layer_norm", 1, 2, {}, "attribute `epsilon` is missing"),
        ("layer_norm", 1, 2, {"epsilon": -1.0}, "attribute `epsilon`"),
        ("max_pool", 1, 0, {"ksize": (2, 2), "strides": (1, 1), "pads": ((2, 0), (0, 0))},
         "as large as the window"),
        ("slice", 1, 0, {"columns": (0, 0)}, "has no columns"),
        ("slice", 1, 0, {"columns": (-1, 1)}, "attribute `columns`"),
        ("reshape", 1, 0, {"shape": (2, -1)}, "attribute `shape`"),
        ("transpose", 1, 0, {"perm": (0, 0)}, "not a permutation"),
    ],
)  # fmt: skip
def test_steps_that_make_no_sense_are_refused_by_name(op, inputs, weights, attrs, says) -> None:
    with pytest.raises(GraphError, match=says) as caught:
        ActorStep(op, ("x",) * inputs, "y", ("w", "b")[:weights], attrs)
    assert str(caught.value).startswith("y: ")


@pytest.mark.parametrize(
    ("op", "shape", "weights", "attrs"),
    [
        ("dense", (3,), ((4, 2), (2,)), {}),
        ("dense", (3,), ((3, 2), (3,)), {}),
        ("dense", (3, 3), ((3, 2), (2,)), {}),
        ("conv", (4, 4, 3), ((2, 2, 2, 5), (5,)), {}),
        ("conv", (1, 4, 3), ((2, 2, 3, 5), (5,)), {}),
        ("affine", (3,), ((4,), (4,)), {}),
        ("layer_norm", (2, 3), ((2,), (2,)), {"epsilon": 0.1}),
        ("slice", (3,), (), {"columns": (2, 2)}),
        ("reshape", (3, 2), (), {"shape": (4,)}),
        ("transpose", (3,), (), {"perm": (1, 0)}),
        ("avg_pool", (4, 4), (), {"ksize": (2, 2), "strides": (1, 1)}),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(op, shape, weights, attrs) -> None:
    names = ("w0", "w1")[: len(weights)]
    step = ActorStep(op, ("observation",), "y", names, attrs)
    with pytest.raises(GraphError, match=f"y: `{op}` does not fit: "):
        ActorProgram(shape, (step,), ("y",), dict(zip(names, weights, strict=True)))


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (3,))])
def test_matrices_that_do_not_fit_are_refused(shapes) -> None:
    steps = tuple(
        ActorStep("reshape", (f"{i}/all",), f"{i}", (), {"shape": shape})
        for i, shape in enumerate(shapes)
    )
    cut = tuple(
        ActorStep("slice", ("observation",), f"{i}/all", (), {"columns": (0, int(np.prod(shape)))})
        for i, shape in enumerate(shapes)
    )
    product = ActorStep("matmul", ("0", "1"), "y")
    with pytest.raises(GraphError, match="y: `matmul` does not fit: matrices"):
        ActorProgram((9,), (*cut, *steps, product), ("y",), {})


def test_values_that_do_not_fit_together_are_refused() -> None:
    steps = (
        ActorStep("flatten", ("observation",), "f"),
        ActorStep("concat", ("f", "observation"), "y"),
    )
    with pytest.raises(GraphError, match="y: `concat` does not fit"):
        ActorProgram((2, 2), steps, ("y",), {})
    steps = (steps[0], ActorStep("add", ("f", "observation"), "y"))
    with pytest.raises(GraphError, match="y: `add` does not fit"):
        ActorProgram((2, 2), steps, ("y",), {})


def test_alpha_has_the_default_of_its_activation() -> None:
    for activation in ACTIVATIONS:
        step = ActorStep("activate", ("x",), "y", (), {"activation": activation})
        assert step.alpha == ALPHA.get(activation, 0.0)
    assert ActorStep("activate", ("x",), "y", (), {"activation": "elu", "alpha": 0.5}).alpha == 0.5


def test_programs_are_the_same_after_json() -> None:
    program = everything()
    assert ActorProgram.from_json(json.loads(json.dumps(program.as_json()))) == program
    assert ActorProgram.from_json(program.as_json()) == program


@pytest.mark.parametrize("alpha", [float("inf"), float("nan")])
def test_slopes_are_finite(alpha: float) -> None:
    """JSON has no infinity: such a slope would become the default in another process."""
    with pytest.raises(GraphError, match=r"y: activate: attribute `alpha` is (inf|nan)"):
        ActorStep("activate", ("x",), "y", (), {"activation": "elu", "alpha": alpha})


def test_channels_are_numbered_by_what_each_op_does() -> None:
    """Ops that see all channels at once keep them; those that move channels take numbers along."""
    assert {op.name for op in OPS.values() if op.channels is ChannelRule.MIXED} == {
        "center", "softmax",
    }  # fmt: skip
    program = mlp(4, 3, 2)
    assert len(channels_of(program).groups["y0"]) == 3
    assert random_weights(program)["w0"].shape == (4, 3)
    both = np.concatenate([np.arange(3), np.arange(5, 7)])
    joined = OPS["concat"].channel_ids([both[:3], both[3:]], [(3,), (2,)])
    assert np.array_equal(joined, both)
    flat = OPS["flatten"].channel_ids([np.arange(3)], [(2, 2, 3)])
    assert np.array_equal(flat, np.tile(np.arange(3), 4))
