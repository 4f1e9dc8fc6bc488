"""Models that are damaged on purpose, and a process with limits that loads them.

    python -m tests.helpers.damage onnx 0 300  # seeds 0 to 299

For any model, loading ends soon and in little memory, with a graph or with an error of qgraph.
"""

from __future__ import annotations

import faulthandler
import resource
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
from onnx import helper, numpy_helper

from qgraph.errors import QGraphError
from qgraph.frontends import load
from tests.helpers.onnx_graphs import model_of

SECONDS = 20  # for one model
SPACE = 1 << 31  # more than the memory in use after all imports
ODD = (0, -1, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63))


def flipped(data: bytes, random: Random) -> bytes:
    """Bytes exchanged, removed or repeated, or the end removed."""
    made = bytearray(data)
    for _ in range(random.randint(1, 6)):
        if not made:
            break
        at = random.randrange(len(made))
        kind = random.randrange(5)
        if kind < 2:
            made[at] = random.randrange(256)
        elif kind == 2:
            made[at] ^= 1 << random.randrange(8)
        elif kind == 3:
            del made[at : at + random.randint(1, 8)]
        else:
            made[at:at] = made[at : at + random.randint(1, 8)]
    return bytes(made[: random.randrange(len(made) + 1)] if random.randrange(8) == 0 else made)


# -- ONNX ---------------------------------------------------------------------------------------


def odd_tensor(tensor, random: Random) -> None:
    kind = random.randrange(5)
    if kind == 0 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(ODD)
    elif kind == 1:
        tensor.dims.append(random.choice(ODD))
    elif kind == 2:
        tensor.data_type = random.randrange(30)
    elif kind == 3:
        tensor.raw_data = tensor.raw_data[: random.randrange(len(tensor.raw_data) + 1)]
    else:
        tensor.data_location = 1
        place = random.choice(("", "/etc/passwd", "../x", "x", "\0", "x" * 5000, "."))
        tensor.external_data.add(key="location", value=place)
        tensor.external_data.add(key="offset", value=str(random.choice(ODD)))


def odd_attribute(node, random: Random, others) -> None:
    kind = random.randrange(4)
    if kind == 0 and node.attribute:
        del node.attribute[random.randrange(len(node.attribute))]
    elif kind == 1:
        donors = [n for n in others if n.attribute]
        if donors:
            donor = random.choice(donors)
            node.attribute.add().CopyFrom(random.choice(list(donor.attribute)))
    elif node.attribute:
        attribute = random.choice(list(node.attribute))
        if attribute.ints:
            attribute.ints[random.randrange(len(attribute.ints))] = random.choice(ODD)
        elif random.randrange(4) == 0:
            attribute.type = random.randrange(1, 13)
        else:
            attribute.i = random.choice(ODD)
            attribute.f = random.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
            attribute.s = random.choice((b"", b"\xff", b"linear", b"reflect", b"SAME_LOWER"))


def odd_edge(graph, random: Random) -> None:
    node = random.choice(list(graph.node))
    names = [n for m in graph.node for n in (*m.input, *m.output)] + ["", "nowhere"]
    kind = random.randrange(5)
    if kind == 0 and node.input:
        node.input[random.randrange(len(node.input))] = random.choice(names)
    elif kind == 1 and node.input:
        del node.input[random.randrange(len(node.input))]
    elif kind == 2:
        node.input.append(random.choice(names))
    elif kind == 3 and node.output:
        node.output[random.randrange(len(node.output))] = random.choice(names)
    else:
        node.output.append(random.choice(names))


def odd_input(graph, random: Random) -> None:
    """Another type or shape for inputs, or a giant constant of one repeated value."""
    entry = random.choice(list(graph.input)).type.tensor_type
    kind = random.randrange(4)
    if kind == 0 and entry.shape.dim:
        random.choice(list(entry.shape.dim)).dim_value = random.choice(ODD)
    elif kind == 1:
        entry.shape.dim.add().dim_value = random.choice(ODD)
    elif kind == 2:
        entry.elem_type = random.randrange(30)
    else:
        giant(graph, random)


def giant(graph, random: Random) -> None:
    """A constant that takes few bytes in the file, as an input of a node."""
    size = graph.initializer.add(name="size", data_type=7, dims=[3])
    size.int64_data.extend(random.choice((1, 2**6, 2**10, 2**13, 2**40)) for _ in range(3))
    maker = random.choice(("ConstantOfShape", "Expand", "Tile"))
    kind = random.choice((np.float32, np.int64))
    one = numpy_helper.from_array(np.ones((1, 1, 1) if maker != "ConstantOfShape" else 1, kind))
    if maker == "ConstantOfShape":
        made = helper.make_node(maker, ["size"], ["giant"], value=one)
    else:
        one.name = "one"
        graph.initializer.append(one)
        made = helper.make_node(maker, ["one", "size"], ["giant"])
    rest = [type(n).FromString(n.SerializeToString()) for n in graph.node]
    del graph.node[:]
    graph.node.append(made)
    flat = random.randrange(2)
    if flat:
        minus = numpy_helper.from_array(np.array([-1], np.int64), "minus")
        graph.initializer.append(minus)
        graph.node.append(helper.make_node("Reshape", ["giant", "minus"], ["flat"]))
    graph.node.extend(rest)
    node = random.choice(list(graph.node)[1 + flat :])
    if node.input:
        node.input[random.randrange(len(node.input))] = "flat" if flat else "giant"


def damaged_onnx(model, random: Random, ops):
    """`model` with a few properties that no exporter writes."""
    made = type(model).FromString(model.SerializeToString())
    graph = made.graph
    for _ in range(random.randint(1, 4)):
        kind = random.randrange(7)
        if kind == 0 and graph.initializer:
            odd_tensor(random.choice(list(graph.initializer)), random)
        elif kind == 1:
            odd_edge(graph, random)
        elif kind == 2:
            odd_input(graph, random)
        elif kind == 3:
            random.choice(list(graph.node)).op_type = random.choice(ops)
        elif kind == 4 and random.randrange(4) == 0:
            made.opset_import[0].version = random.choice((*ODD, 9, 11, 13, 18, 21))
        else:
            odd_attribute(random.choice(list(graph.node)), random, graph.node)
    return made


def chained(models, random: Random):
    """Nodes of several models of one op, one after the other, with their constants."""
    nodes, constants, value = [], [], "x"
    for index, model in enumerate(models):
        node = type(model.graph.node[0])()
        node.CopyFrom(model.graph.node[0])
        for i, name in enumerate(node.input):
            node.input[i] = value if name == "x" else f"{name}_{index}" if name else ""
        for i, name in enumerate(node.output):
            node.output[i] = f"{name}_{index}"
        for initializer in model.graph.initializer:
            constants.append(type(initializer)())
            constants[-1].CopyFrom(initializer)
            constants[-1].name += f"_{index}"
        value = random.choice(list(node.output))
        nodes.append(node)
    made = model_of(nodes, {"x": models[0].graph.input[0]}, (value,), opset=17)
    made.graph.initializer.extend(constants)
    return made


def onnx_cases():
    from qgraph.frontends.onnx.ops import IMPORTERS
    from tests.frontends.onnx import test_elementwise, test_layers, test_moves, test_opaque

    models = [*test_elementwise.CASES.values(), *test_layers.CASES.values()]
    models += [*test_moves.CASES.values(), *(m for m, _ in test_opaque.OPAQUE.values())]
    extra = ("If", "Loop", "Scan", "Einsum", "LSTM", "NonZero", "Range", "OneHot", "Unheard", "")
    return models, sorted([*IMPORTERS, *extra])


def giant_cases():
    """Every constant of every case as a giant of its type, with its rank or flat."""
    made = []
    for model in onnx_cases()[0]:
        for initializer in model.graph.initializer:
            ranks = {1, max(1, len(initializer.dims))}
            made += [(model, initializer.name, rank) for rank in sorted(ranks)]
    return made


def giant_content(seed: int, cases) -> tuple[str, bytes]:
    model, name, rank = cases[seed % len(cases)]
    made = type(model).FromString(model.SerializeToString())
    kept = next(i for i in made.graph.initializer if i.name == name)
    one = numpy_helper.from_array(np.ones(1, numpy_helper.to_array(kept).dtype))
    sizes = [2**27] if rank == 1 else [2 ** (27 // rank)] * rank
    made.graph.initializer.remove(kept)
    made.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), "size"))
    made.graph.node.insert(0, helper.make_node("ConstantOfShape", ["size"], [name], value=one))
    return "net.onnx", made.SerializeToString()


def attribute_cases():
    """Every number in an attribute or a short constant of every case, replaced by each odd
    number.
    """
    made = []
    for model in onnx_cases()[0]:
        for attribute in model.graph.node[0].attribute:
            for at in range(max(1, len(attribute.ints))):
                made += [(model, attribute.name, at, odd) for odd in ODD]
        for initializer in model.graph.initializer:
            if initializer.data_type == 7:
                for at in range(numpy_helper.to_array(initializer).size):
                    made += [(model, initializer.name, at, odd) for odd in ODD]
    return made


def attribute_content(seed: int, cases) -> tuple[str, bytes]:
    model, name, at, odd = cases[seed % len(cases)]
    made = type(model).FromString(model.SerializeToString())
    for attribute in made.graph.node[0].attribute:
        if attribute.name == name and attribute.ints:
            attribute.ints[at] = odd
        elif attribute.name == name:
            attribute.i, attribute.f = odd, float(odd)
    for initializer in made.graph.initializer:
        if initializer.name == name:
            values = numpy_helper.to_array(initializer).copy()
            values.flat[at] = odd
            initializer.CopyFrom(numpy_helper.from_array(values, name))
    return "net.onnx", made.SerializeToString()


def onnx_content(seed: int, cases) -> tuple[str, bytes]:
    random, (models, ops) = Random(seed), cases
    model = chained(random.sample(models, random.randint(1, 4)), random)
    if random.randrange(3):
        model = damaged_onnx(model, random, ops)
    data = model.SerializeToString()
    return "net.onnx", flipped(data, random) if random.randrange(3) == 0 else data


# -- a process of few means ---------------------------------------------------------------------


def limit_space() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    cap = pages * resource.getpagesize() + SPACE
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))


class TooLong(BaseException):
    """A timeout. It is not an Exception, so that code that catches all errors of a file does not
    catch it.
    """


def too_long(number, frame):
    raise TooLong(f"not loaded within {SECONDS} s")


def kinds(kind: str):
    """By kind of file: how a seed becomes a name and content, and what is prepared once."""
    if kind == "pb":
        from tests.helpers import damage_tf

        return damage_tf.content, damage_tf.cases
    return {
        "onnx": (onnx_content, onnx_cases),
        "giants": (giant_content, giant_cases),
        "attributes": (attribute_content, attribute_cases),
    }[kind]


def main() -> int:
    kind, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    step = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    make, cases = kinds(kind)
    prepared = cases()
    faulthandler.enable()
    signal.signal(signal.SIGALRM, too_long)
    loaded = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count * step, step):
            name, content = make(seed, prepared)
            path = Path(folder) / name
            path.write_bytes(content)
            if seed == first:
                load_once(path)  # load once before the limits, so that late imports are done
                limit_space()
            print(f"seed {seed}", file=sys.stderr, flush=True)
            signal.alarm(SECONDS)
            try:
                load(path)
                loaded += 1
            except QGraphError:
                pass
            except BaseException:
                traceback.print_exc()
                return 1
            finally:
                signal.alarm(0)
    print(loaded)
    return 0


def load_once(path: Path) -> None:
    with suppress(QGraphError):
        load(path)


if __name__ == "__main__":
    sys.exit(main())
