"""Errors of models that cannot be loaded name the file or the node, and what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qgraph.errors import GraphError, LoadError, UnsupportedError, UsageError
from qgraph.frontends import load
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import f, imported, info, ints, model_of, one_op, runtime

ROW = f(3, 6)
make = helper.make_node


def of_domain(op="Mine", domain="my.own"):
    model = model_of([make(op, ["x"], ["y"], domain=domain)], {"x": (3,)})
    model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def branching(op="If"):
    inner = helper.make_graph([make("Relu", ["x"], ["z"])], "inner", [], [info("z", (3,))])
    attrs = {"then_branch": inner, "else_branch": inner} if op == "If" else {"body": inner}
    return model_of([make(op, ["c"], ["y"], **attrs)], {"x": (3,), "c": info("c", (), "bool")})


def sequence():
    nodes = [
        make("SequenceConstruct", ["x"], ["s"]),
        make("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    return model_of(nodes, {"x": (3,)})


def of_opset(version):
    model = one_op("Relu", ROW)
    model.opset_import[0].version = version
    return model


def cyclic():
    nodes = [make("Add", ["x", "b"], ["a"]), make("Relu", ["a"], ["b"])]
    return model_of(nodes, {"x": (3,)}, ("b",))


def twice():
    return model_of([make("Relu", ["x"], ["y"]), make("Abs", ["x"], ["y"])], {"x": (3,)})


def filled(*shape):
    node = make("ConstantOfShape", ["s"], ["c"])
    constants = {"s": ints(*shape)}
    return model_of([node, make("Add", ["x", "c"], ["y"])], {"x": (3,)}, constants=constants)


def sparse():
    model = one_op("Add", ROW, f(6))
    dense = numpy_helper.from_array(f(1), "values")
    places = numpy_helper.from_array(ints(0), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(dense, places, [6]))
    return model


def of_type(kind):
    value = helper.make_tensor_value_info("x", kind, (3,))
    return model_of([make("Relu", ["x"], ["y"])], {"x": value})


REFUSED = {
    "domain": (of_domain(), UnsupportedError, "y: unknown op `Mine` of `my.own`"),
    "unknown": (one_op("Mine", ROW), UnsupportedError, "y: unknown op `Mine`"),
    "newer": (one_op("TensorScatter", ROW, f(3, 6)), UnsupportedError, "not in opset 17"),
    "if": (
        branching(),
        UnsupportedError,
        r"y: the condition of this `If` depends on the input(.|\n)*its control flow resolved",
    ),
    "loop": (branching("Loop"), UnsupportedError, "the number of steps of this `Loop` depends"),
    "sequence": (sequence(), UnsupportedError, "s: `SequenceConstruct` is an op on sequences"),
    "random": (one_op("RandomNormalLike", ROW), UnsupportedError, "draws random numbers"),
    "old": (of_opset(6), UnsupportedError, "opset 6; 7 to .* are supported(.|\n)*version_conv"),
    "future": (of_opset(999), UnsupportedError, "opset 999; 7 to"),
    "training_norm": (
        one_op("BatchNormalization", f(2, 3), *[f(3)] * 4, training_mode=1, opset=15),
        UnsupportedError,
        "y: a batch norm in training mode",
    ),
    "dropout": (
        one_op("Dropout", ROW, np.float32(0.5), np.array(True)),
        UnsupportedError,
        "dropout in training mode",
    ),
    "indices": (
        one_op("MaxPool", f(1, 1, 4, 4), kernel_shape=[2, 2], outputs=("y", "z")),
        UnsupportedError,
        "y: a max pool that also gives indices",
    ),
    "cycle": (cyclic(), GraphError, "cycle: b -> a -> b"),
    "twice": (twice(), GraphError, "y: two nodes produce this tensor"),
    "missing": (one_op("Add", ROW), GraphError, "y: "),
    "giant": (filled(2**20, 2**20), LoadError, "c: a constant of 1,099,511,627,776 elements"),
    "negative": (filled(-1, 2), LoadError, r"c: a constant of shape \(-1, 2\)"),
    "sparse": (sparse(), UnsupportedError, "sparse constants"),
    "float8": (
        of_type(TensorProto.FLOAT8E5M2),
        UnsupportedError,
        "tensors of float8_e5m2",
    ),
    "no_type": (of_type(0), LoadError, "x: .*type"),
    "channels": (one_op("Conv", f(1, 3, 5, 5), f(2, 4, 3, 3)), GraphError, "y: 3 channels do not"),
    "window": (one_op("Conv", f(1, 3, 2, 2), f(2, 3, 5, 5)), GraphError, "does not fit"),
    "axis": (one_op("Concat", ROW, axis=7), GraphError, "y: axis 7 is out of range for rank 2"),
    "attribute": (
        one_op("Conv", f(1, 3, 5, 5), f(2, 3, 3, 3), auto_pad="SOME"),
        GraphError,
        "SOME",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_the_node(case):
    model, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        imported(model)


# -- ends ----------------------------------------------------------------------------------------


def chain(names=("x:0", "y:0", "z:1")):
    x, y, z = names
    return model_of([make("Relu", [x], [y], name="first"), make("Abs", [y], [z])], {x: (3,)}, (z,))


def test_names_of_tensors_become_names_of_nodes():
    """`:1` is the index of a node's output in a graph; `:0` is never written."""
    graph = imported(chain())
    assert graph.inputs == ["x:0"]
    assert graph.outputs == {"z:1": "z_1"}
    assert list(graph.nodes) == ["x:0", "y:0", "z_1"]


@pytest.mark.parametrize("name", ["y:0", "y", "first"])
def test_output_named_by_tensor_or_node(name):
    graph = imported(chain(), outputs=[name])
    assert graph.outputs == {name: "y:0"}
    assert "z_1" not in graph.nodes


def test_input_named_in_the_middle_needs_a_shape():
    message = r"`y:0` \(Relu\) is named as an input(.|\n)*--input-shape"
    with pytest.raises(UsageError, match=message):
        imported(chain(), inputs=["y"])
    graph = imported(chain(), inputs=["y"], input_shapes={"y:0": (None,)})
    assert [n.op for n in graph.nodes.values()] == ["input", "abs"]


def test_name_that_does_not_exist_lists_candidates():
    with pytest.raises(UsageError, match=r"no output `zz`(.|\n)*candidates: `z:1`"):
        imported(chain(), outputs=["zz"])
    with pytest.raises(UsageError, match=r"no input `q`(.|\n)*candidates: `x:0`"):
        imported(chain(), inputs=["q"])


def test_inputs_must_all_be_named_or_none():
    model = model_of([make("Add", ["a", "b"], ["y"])], {"a": (3,), "b": (3,)})
    with pytest.raises(UsageError, match=r"the outputs also need `b`"):
        imported(model, inputs=["a"])


def test_input_that_nothing_needs_is_left_out():
    model = model_of([make("Relu", ["a"], ["y"])], {"a": (3,), "unused": (3,)})
    assert imported(model).inputs == ["a"]


def test_shape_that_is_missing_is_asked_for():
    model = model_of(
        [make("Conv", ["x", "w"], ["y"])], {"x": info("x")}, constants={"w": f(2, 3, 1, 1)}
    )
    with pytest.raises(GraphError, match=r"give it: --input-shape x="):
        imported(model)
    assert str(imported(model, input_shapes={"": (None, 3, 4, 4)}).types["y"]) == "float32[?,2,4,4]"


def test_functions_of_the_model_are_inlined():
    body = [make("Relu", ["a"], ["r"]), make("Neg", ["r"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("my.own", "Mine", ["a"], ["b"], body, opsets)
    model = of_domain()
    model.functions.append(function)
    assert [n.op for n in imported(model).nodes.values()] == ["input", "relu", "neg"]


def with_functions(calls, top):
    """`calls`: function -> the functions that it calls, one after the other."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)]
    model = of_domain(top)
    for name, called in calls.items():
        values = ["a", *(f"v{i}" for i in range(len(called)))]
        body = [
            make(c, [values[i]], [values[i + 1]], domain="my.own") for i, c in enumerate(called)
        ]
        body.append(make("Neg", values[-1:], ["b"]))
        model.functions.append(helper.make_function("my.own", name, ["a"], ["b"], body, opsets))
    return model


def test_functions_that_call_functions():
    doubling = {"f0": [], **{f"f{i}": [f"f{i - 1}"] * 2 for i in range(1, 40)}}
    assert len(imported(with_functions(doubling, "f3")).nodes) == 1 + 15
    with pytest.raises(
        LoadError, match="the model has 1,099,511,627,775 nodes once its functions are inlined"
    ):
        imported(with_functions(doubling, "f39"))
    with pytest.raises(GraphError, match="f: this function calls itself"):
        imported(with_functions({"f": ["g"], "g": ["f"]}, "f"))


# -- external data ---------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path):
    """A model whose weights are in another file."""
    model = one_op("Gemm", ROW, f(6, 50), f(50))
    path = tmp_path / "models" / "net.onnx"
    path.parent.mkdir()
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path, onnx.load(path)


def changed(path, **entries):
    """The file with a wrong description of its first external tensor."""
    model = onnx.load(path, load_external_data=False)
    described = {e.key: e.value for e in model.graph.initializer[0].external_data}
    del model.graph.initializer[0].external_data[:]
    for key, value in {**described, **entries}.items():
        model.graph.initializer[0].external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


def test_weights_beside_the_model(outside):
    path, model = outside
    wanted = runtime(model, {"x": ROW})["y"]
    np.testing.assert_allclose(evaluate(load(path), {"x": ROW})["y"], wanted, atol=1e-4)


def test_weights_that_are_gone_or_cut_short(outside):
    path, _ = outside
    weights = path.parent / "weights.bin"
    content = weights.read_bytes()
    weights.write_bytes(content[:100])
    with pytest.raises(
        LoadError, match=r"c0: its data ends at byte .* of `weights.bin`, which has 100"
    ):
        load(path)
    weights.unlink()
    with pytest.raises(LoadError, match=r"c0: `weights.bin`.* cannot be read"):
        load(path)
    weights.mkdir()
    with pytest.raises(LoadError, match="is not a file"):
        load(path)


ESCAPES = (
    "../weights.bin",
    "/etc/hostname",
    "a/../../weights.bin",
    "",
    ".",
    "..",
    "x\0y",
)


@pytest.mark.parametrize("location", ESCAPES)
def test_nothing_outside_the_folder_is_opened(outside, location):
    path, _ = outside
    (path.parent / "weights.bin").rename(path.parent.parent / "weights.bin")
    changed(path, location=location)
    with pytest.raises(LoadError, match=r"c0: its data is in .* not in the model's folder"):
        load(path)


def test_a_link_out_of_the_folder_is_not_followed(outside):
    path, _ = outside
    weights = path.parent / "weights.bin"
    elsewhere = path.parent.parent / "weights.bin"
    weights.rename(elsewhere)
    weights.symlink_to(elsewhere)
    with pytest.raises(LoadError, match=r"not in the model's folder"):
        load(path)


@pytest.mark.parametrize(
    "entries",
    [{"offset": -4}, {"offset": "x"}, {"length": 7}, {"offset": 2**62}, {"location": "y" * 300}],
)
def test_numbers_that_do_not_fit(outside, entries):
    path, _ = outside
    changed(path, **entries)
    with pytest.raises(LoadError, match="c0: "):
        load(path)


def test_external_data_of_a_model_in_memory():
    model = one_op("Add", ROW, f(6))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    with pytest.raises(LoadError, match=r"c0: its data is in another file(.|\n)*by its path"):
        imported(model)


WIDE = {
    "strides": {"strides": [2**31, 2**31]},
    "dilations": {"dilations": [2**31, 2**31]},
    "padding": {"output_padding": [2**40, 0], "strides": [2, 2]},
}


@pytest.mark.parametrize("case", WIDE)
def test_transposed_convolution_far_wider_than_its_filter_is_left_alone(case):
    model = one_op("ConvTranspose", f(1, 3, 4, 4), f(3, 2, 2, 2), **WIDE[case])
    try:
        kinds = opaque_kinds(imported(model))
    except GraphError:
        return
    assert kinds == ["ConvTranspose"]
