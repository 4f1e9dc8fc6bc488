"""Returns of ten trained policies with fewer bits: tables 1 and 2 of the papers, and sweeps.

    python -m benchmarks.policies_bits  # everything; half an hour
    python -m benchmarks.policies_bits --only CartPole --episodes 10 --bits 8 --json FILE

The policies are not in a package: `QGRAPH_POLICIES` names their folder, or `shared/policies` beside
the checkout is used. Needs `pip install 'qgraph-compiler[rl]'`, and gymnasium's box2d for some.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.real.policies import folder
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table, merged
from qgraph.cli.rl.options import bits_of, head_in
from qgraph.errors import QGraphError, UnsupportedError
from qgraph.rl.policy import read_policy
from qgraph.rl.policy.about import about
from qgraph.rl.policy.affine import Simulated
from qgraph.rl.policy.plots import plot
from qgraph.rl.policy.study import DYNAMIC, STATIC, WAYS, PolicyForm, Study, StudyRow, forms, study

TITLES = {
    "papers": "simulated as in the papers",
    "weights": "weights alone",
    "actor": "actor, packed",
    DYNAMIC: "actor, biases corrected",
    STATIC: "static, calibrated",
}


def studies(arguments: argparse.Namespace) -> Iterator[tuple[str, Study]]:
    """The study of each policy. Policies that cannot be played are named and skipped."""
    files = sorted(folder().glob("*.pb"))
    if not files:
        print(f"no policies in {folder()}: set QGRAPH_POLICIES to where they are; skipped")
    for file in files:
        if arguments.only and arguments.only not in file.stem:
            continue
        start = time.perf_counter()
        try:
            yield file.stem, _study(file, arguments)
        except QGraphError as error:
            print(f"{file.stem} is skipped: {error}", file=sys.stderr)
        print(f"{file.stem}: {time.perf_counter() - start:.0f} s", file=sys.stderr)


def _study(file: Path, arguments: argparse.Namespace) -> Study:
    known, network = about(file), read_policy(file)
    program = network.program
    place = str(known.environment)
    head = head_in(place, network, known)
    bits, ways = bits_of(arguments.bits), arguments.ways.split(",")

    def compared() -> Iterator[PolicyForm]:
        try:
            yield from forms(network, bits, ways, head, place)
        except UnsupportedError as error:
            print(f"{file.stem} has no static form: {error}", file=sys.stderr)

    return study(
        Simulated(program, network.weights), compared(), head, place,
        episodes=arguments.episodes, first_seed=known.first_seed, steps=arguments.steps,
    )  # fmt: skip


def tables(found: Sequence[tuple[str, Study]]) -> Iterator[Table]:
    """Returns and divergences with 16 and 8 bits, then the sweep with a row for each way and
    policy.
    """
    ways = dict.fromkeys(row.way for _, one in found for row in one.rows)
    of_way = {
        way: {name: [row for row in one.rows if row.way == way] for name, one in found}
        for way in ways
    }
    returns = ((TITLES[way], _returns(found, rows)) for way, rows in of_way.items())
    yield merged("Returns", "way", returns)
    bits = sorted({row.bits for _, one in found for row in one.rows}, reverse=True)
    sweeps = ((TITLES[way], _sweep(bits, found, rows)) for way, rows in of_way.items())
    yield merged("Change of the return by bits", "way", sweeps)


def _returns(found: Any, rows: dict[str, list[StudyRow]]) -> Table:
    table = Table(
        "Returns",
        {"policy": "", "float": ".1f", "fp16": ".1f", "int8": ".1f", "change, int8": "+.2%",
         "error of it": ".2%", "same action": ".1%", "KL actions": ".4f", "KL policy": ".4f"},
    )  # fmt: skip
    for name, one in found:
        by_bits = {row.bits: row for row in rows[name]}
        half, eight = by_bits.get(16), by_bits.get(8)
        measured: tuple[Any, ...] = (None,) * 5
        if eight is not None:
            apart = eight.shift
            measured = (eight.change, eight.change_error, apart.same_action, apart.kl_actions)
            measured += (apart.kl_policy,)
        returned = [None if r is None else _mean(r.returns) for r in (half, eight)]
        table.add(name, _mean(one.floating), *returned, *measured)
    first = found[0][1]
    table.notes.append(
        f"{first.episodes} episodes, the same seeds for all; {first.steps} observations of the "
        "float policy; the error of a change is that of the paired differences"
    )
    return table


def _sweep(bits: list[int], found: Any, rows: dict[str, list[StudyRow]]) -> Table:
    table = Table("Sweep", {"policy": "", **{f"{b} bits": "+.1%" for b in bits}})
    for name, _ in found:
        changes = {row.bits: [row.change, row.change_error] for row in rows[name]}
        table.add(name, *(changes.get(b) for b in bits))
    return table


def _mean(returns: Any) -> list[float]:
    return [float(returns.mean), float(returns.error)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="policies with this in their names")
    parser.add_argument("--bits", default="16,8,6,5,4,3,2")
    parser.add_argument("--ways", default=",".join([*WAYS, STATIC]))
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--plots", type=Path, help="a folder, for figures of each policy")
    parser.add_argument("--studies", type=Path, help="a JSON file, for all that each study has")
    add_json_option(parser)
    arguments = parser.parse_args()
    found = []
    for name, one in studies(arguments):
        found.append((name, one))
        if arguments.plots:
            plot(one, arguments.plots / name)
        if arguments.studies:
            data = {name: one.as_json() for name, one in found}
            arguments.studies.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    report("benchmarks.policies_bits", tables(found), arguments.json)


if __name__ == "__main__":
    main()
