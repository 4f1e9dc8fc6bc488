"""The report of compressed runs, from runs written by hand."""

import itertools
import json

import numpy as np
import pytest

from benchmarks import compression as bench
from benchmarks import result, training_runs
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.head import Head
from qgraph.rl.learn.networks import network
from qgraph.rl.monitor import parse_strategy
from tests.helpers.processes import Ended

CARTPOLE = bench.TASKS["cartpole"]


def put(out, variant, seed, returns, acting):
    folder = bench.folder_of(out, CARTPOLE, variant, seed)
    folder.mkdir(parents=True)
    lines = [f"{100 * (i + 1)},{i},{value},{value / 2}\n" for i, value in enumerate(returns)]
    head = "actor_steps,seconds,return_mean,actors_return\n"
    (folder / "progress.csv").write_text(head + "".join(lines))
    head = "actor_steps,actor,steps,looking,acting,choosing,environment,waiting\n"
    rows = [
        f"{at},{i},{at / 2},0,{acting * at / 2},{2**-9},{2**-10},5\n"
        for at in (50, 100)
        for i in (0, 1)
    ]
    (folder / "actors.csv").write_text(head + "".join(rows))
    (folder / "energy.json").write_text("{}")
    (folder / "options.json").write_text(json.dumps({"steps": 100 * len(returns)}))


def policy(units):
    """Each output is the number of units."""
    program = network((4,), (units,), 2)
    weights = {name: np.zeros(shape, "f4") for name, shape in program.weight_shapes.items()}
    weights["hidden_0/bias"][:] = weights["output/kernel"][:] = 1
    return Compressor().pack()(ChainPolicy(program, weights, Head("categorical")))


def test_chains_and_strategies_are_those_that_there_are():
    every = {variant for group in bench.GROUPS.values() for variant in group}
    for task, variant in itertools.product(bench.TASKS.values(), every):
        assert not variant.chain or str(Compressor.parse(bench.chain_of(task, variant)))
        strategy = parse_strategy(bench.monitor_of(task, variant))
        if variant.chain:
            strategy.check(Compressor.parse(bench.chain_of(task, variant)))
        said = bench.command(task, variant, 3, 100)
        assert ("--compress" in said) == bool(variant.chain) and said[-2:] == ["--steps", "100"]
    folders = {bench.folder_of(bench.RUNS, CARTPOLE, v, 0) for v in every}
    assert len(folders) == len(every)


def test_a_report_of_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "compressed", lambda folder, chain: policy(4 if chain else 16))
    monkeypatch.setattr(
        bench, "turns", lambda calls: {key: [float(call()[0, 0])] for key, call in calls.items()}
    )
    pruned = next(v for v in bench.GROUPS["links"] if v.name == "pruned")
    put(tmp_path, bench.NONE, 0, [0, 300, 300, 300, 100], 2**-15)
    put(tmp_path, bench.NONE, 1, [0, 500, 500, 500, 100], 2**-15)
    put(tmp_path, pruned, 0, [0, 200, 200, 200, 400], 2**-17)
    harder = next(v for v in bench.GROUPS["monitor"] if v.name == "pruned 95 %")
    put(tmp_path, harder, 0, [9, 9, 9, 9, 9], 2**-19)  # of another group
    figure = tmp_path / "figure.png"
    bench.report(tmp_path, "cartpole", "links", json_file=tmp_path / "made.json", figure=figure)
    found = result.read("made", tmp_path)
    assert found.seeds == (0, 1)
    rows = {row["actors' policy"]: row for row in found.tables[0].rows}
    assert rows["float32"]["return"] == [400, 100] and rows["float32"]["seeds"] == 2
    assert rows["pruned"]["times less"] == 4 and rows["pruned"]["seeds"] == 1
    assert rows["pruned"]["actor, us"] == 1e6 * 2**-17
    assert rows["pruned"]["block, kB"] == len(policy(4).pack()) / 1e3
    assert rows["float32"]["alone, us"] == 16 and rows["pruned"]["times less alone"] == 4
    assert rows["pruned"]["return"] == [pytest.approx(800 / 3), 0]
    assert rows["pruned"]["of actors"] == [200, 0]
    inference, others = 100 * 2**-17, 2 * (2**-9 + 2**-10)
    assert rows["pruned"]["inference"] == inference / (inference + others)
    assert rows["pruned"]["of wall"] == inference / (inference + others + 2 * 5)  # it waits
    assert rows["float32"]["run, s"] == 4
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_runs_that_are_complete_are_passed_over(tmp_path, monkeypatch):
    put(tmp_path, bench.NONE, 0, [1], 1e-6)
    begun = []

    def start(folder, said):
        begun.append(folder.name)
        training_runs.log_of(folder).write_text("return 1\n")
        return Ended()

    monkeypatch.setattr(training_runs, "start", start)
    bench.run(tmp_path, "cartpole", "monitor", seeds=1, jobs=2)
    assert begun == ["cartpole-pruned-95---0", "cartpole-pruned-95----watched-0"]


def test_means_of_evaluations():
    rows = [{"return_mean": float(v)} for v in (0, 3, 6, 9)]
    assert np.array_equal(training_runs.smooth(rows), [0, 1.5, 3, 6])
    assert training_runs.mean_and_error([]) is None and training_runs.finite_result(None) is None
    assert training_runs.finite_result(training_runs.mean_and_error([1, 3])) == [2, 1]
    assert training_runs.finite_result(training_runs.mean_and_error([float("nan")])) is None
