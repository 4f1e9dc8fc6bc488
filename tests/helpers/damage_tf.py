"""Frozen TensorFlow graphs that are damaged on purpose."""

from __future__ import annotations

from random import Random

from tests.helpers.damage import ODD, flipped
from tests.helpers.tf_graphs import graph_def_of, v1

SOME_OPS = (
    "Fill", "Range", "Tile", "BroadcastTo", "LinSpace", "Enter", "Merge", "Switch", "OneHot",
    "ResizeBilinear", "GatherV2", "Conv3D", "Unheard", "", "VariableV2", "PartitionedCall",
)  # fmt: skip


def odd_shape(proto, random: Random) -> None:
    if proto.dim and random.randrange(2):
        random.choice(list(proto.dim)).size = random.choice(ODD)
    elif random.randrange(2):
        proto.dim.add().size = random.choice((*ODD, 2**10, 2**14))
    else:
        proto.unknown_rank = True


def odd_attribute(node, random: Random) -> None:
    key = random.choice(sorted(node.attr))
    value = node.attr[key]
    kind = random.randrange(6)
    if kind == 0:
        del node.attr[key]
    elif value.HasField("tensor"):
        tensor = value.tensor
        if kind < 3:
            odd_shape(tensor.tensor_shape, random)
        elif kind == 3:
            tensor.dtype = random.randrange(26)
        elif kind == 4:
            tensor.tensor_content = tensor.tensor_content[: random.randrange(9)]
        else:  # one value stands for all of a giant
            tensor.tensor_content = b""
            del tensor.tensor_shape.dim[:]
            for _ in range(random.randint(1, 3)):
                tensor.tensor_shape.dim.add().size = random.choice((2**10, 2**20, 2**30))
            tensor.float_val.append(1.0)
            tensor.int_val.append(1)
    elif value.HasField("shape"):
        odd_shape(value.shape, random)
    elif value.HasField("type"):
        value.type = random.choice((*range(26), 101))
    elif value.HasField("list") and value.list.i:
        value.list.i[random.randrange(len(value.list.i))] = random.choice(ODD)
    elif value.HasField("i"):
        value.i = random.choice(ODD)
    elif value.HasField("s"):
        value.s = random.choice((b"", b"\xff", b"NCHW", b"VALID", b"EXPLICIT", b"REFLECT"))
    elif value.HasField("f"):
        value.f = random.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))


def odd_node(graph_def, random: Random) -> None:
    nodes = list(graph_def.node)
    node, other = random.choice(nodes), random.choice(nodes)
    kind = random.randrange(6)
    if kind == 0:
        node.op = random.choice((other.op, random.choice(SOME_OPS)))
    elif kind == 1 and node.input:
        del node.input[random.randrange(len(node.input))]
    elif kind == 2 and node.input:
        at = random.randrange(len(node.input))
        node.input[at] = random.choice(
            (other.name, f"{other.name}:1", f"^{other.name}", "nowhere", "")
        )
    elif kind == 3:
        node.input.append(other.name)
    elif kind == 4:
        node.name = random.choice((other.name, "", "a b", "x:1", "^x"))
    elif other.attr:
        key = random.choice(sorted(other.attr))
        node.attr[key].CopyFrom(other.attr[key])


def damaged(graph_def, random: Random):
    made = type(graph_def).FromString(graph_def.SerializeToString())
    for _ in range(random.randint(1, 4)):
        node = random.choice(list(made.node))
        if node.attr and random.randrange(2):
            odd_attribute(node, random)
        else:
            odd_node(made, random)
    return made


def cases():
    from tests.frontends.test_bad_input import SOUND
    from tests.frontends.test_ops import CASES

    graphs = [SOUND]
    for shape, build in CASES.values():
        graphs.append(graph_def_of(lambda s=shape, b=build: b(v1.placeholder("float32", s, "x"))))
    return graphs


def content(seed: int, graphs) -> tuple[str, bytes]:
    random = Random(seed)
    graph_def = random.choice(graphs)
    if random.randrange(4):
        graph_def = damaged(graph_def, random)
    data = graph_def.SerializeToString()
    return "net.pb", flipped(data, random) if random.randrange(3) == 0 else data
