"""Calls between the layers of a Keras 2 model, checked before Keras rebuilds it.

Keras 2 repeats calls of layers until every input of every call exists. If one never exists, it
loops forever; Keras 3 raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qgraph.errors import LoadError

CONSTANT = "_CONSTANT_VALUE"  # replaces the name of a layer
SHAPES = ("batch_input_shape", "batch_shape", "input_shape")

Reference = tuple[object, object]  # a layer's name, and which of its calls


def check_calls(config: object) -> None:
    """Raise LoadError, naming the layer, where a call takes a result that no layer produces.

    config: of a model, which may contain models.
    """
    if isinstance(config, list):
        for value in config:
            check_calls(value)
    elif isinstance(config, Mapping):
        if "input_layers" in config and isinstance(config.get("layers"), list):
            _check_model(config["layers"])
        for value in config.values():
            check_calls(value)


def _check_model(layers: Sequence[object]) -> None:
    entries = [entry for entry in layers if isinstance(entry, Mapping)]
    inputs = {_name(e) for e in entries if e.get("class_name") == "InputLayer"}
    waiting: dict[object, list[list[Reference]]] = {}
    made: dict[object, int] = {}
    for entry in entries:
        calls = entry.get("inbound_nodes")
        nodes = waiting.setdefault(_name(entry), [])
        nodes += [list(_references(c)) for c in calls] if isinstance(calls, list) else []
        made[_name(entry)] = _first_call(entry)
    known: set[Reference] = set()
    progress = True
    while progress:
        progress = False
        for name, nodes in waiting.items():
            while nodes and all(r[0] in inputs or _is_in(r, known) for r in nodes[0]):
                nodes.pop(0)
                known.add((name, made[name]))
                made[name] += 1
                progress = True
    for name, nodes in waiting.items():
        if nodes:
            lost = next(r for r in nodes[0] if r[0] not in inputs and not _is_in(r, known))
            raise LoadError(
                f"layer `{str(name)[:60]}` takes the result of call {str(lost[1])[:20]} of layer "
                f"`{str(lost[0])[:60]}`, which is never produced",
                hint="the file is damaged, or its layers form a cycle",
            )


def _name(entry: Mapping[str, object]) -> str:
    return str(entry.get("name"))


def _first_call(entry: Mapping[str, object]) -> int:
    """1 for a model with its own inputs, whose first call is not in the file; else 0."""
    config = entry.get("config")
    layers = config.get("layers") if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping) or not isinstance(layers, list) or not layers:
        return 0
    if "input_layers" in config:
        return 1
    first = layers[0] if isinstance(layers[0], Mapping) else {}
    inner = first.get("config")
    shaped = isinstance(inner, Mapping) and any(inner.get(key) for key in SHAPES)
    return int(shaped or first.get("class_name") == "InputLayer")


def _references(data: object) -> Iterator[Reference]:
    """References of one call to results: `[layer, call, output]`, then arguments by name."""
    if isinstance(data, Mapping):
        for value in data.values():
            yield from _references(value)
    elif isinstance(data, list):
        if len(data) in (3, 4) and isinstance(data[0], str):
            if data[0] != CONSTANT:
                yield data[0], data[1]
            yield from _references(data[3:])
        else:
            for value in data:
                yield from _references(value)


def _is_in(reference: Reference, known: set[Reference]) -> bool:
    """Look up as Keras does: `True` equals 1, and values without a hash are not found."""
    try:
        return reference in known
    except TypeError:
        return False
