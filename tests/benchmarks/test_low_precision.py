"""The benchmark of float16: its runs, its report, its counts."""

import json

import pytest
import typer

from benchmarks import low_precision as bench
from benchmarks import low_precision_speed, result, training_runs
from benchmarks.low_precision_memory import World, bytes_of
from qgraph.rl.agents.former_names import half_settings
from qgraph.rl.half.methods import METHODS
from tests.helpers.processes import Ended

PENDULUM = bench.TASKS[0]


def test_variants_are_the_papers():
    adding = bench.GROUPS["adding"]
    assert [len(half_settings(v.options[1])["float16_methods"]) for v in adding] == list(range(7))
    left = [half_settings(v.options[1])["float16_methods"] for v in bench.GROUPS["leaving"][1:]]
    assert [set(METHODS) - set(methods) for methods in left] == [{m} for m in METHODS]
    said = [v.options[-1] for v in bench.GROUPS["significands"]]
    assert said == [str(bits) for bits in range(10, 2, -1)]
    every = bench.variants_of(bench.ALL_GROUPS)
    folders = {bench.folder_of(bench.RUNS, PENDULUM, v, 0) for v in every}
    assert len(folders) == len(every) == 5 + 1 + 5 + 6 + 8
    with pytest.raises(typer.BadParameter, match="there is no `x`"):
        bench.variants_of("x")


def put(out, variant, seed, returns, crashed=False):
    folder = bench.folder_of(out, PENDULUM, variant, seed)
    folder.mkdir(parents=True)
    lines = [f"{100 * (i + 1)},{value}\n" for i, value in enumerate(returns)]
    (folder / "progress.csv").write_text("".join(["actor_steps,return_mean\n", *lines]))
    (folder / bench.ENDED).write_text(json.dumps({"crashed": crashed, "said": ""}))


def test_a_report_of_runs(tmp_path):
    put(tmp_path, bench.FLOAT, 0, [-1000, -200, -200, -200])
    put(tmp_path, bench.FLOAT, 1, [-1000, -300, -300, -300])
    put(tmp_path, bench.ALL, 0, [-1000, -400, -450, -500])
    put(tmp_path, bench.NONE, 0, [-1000, -100], crashed=True)
    figure = tmp_path / "figure.png"
    file = tmp_path / "made.json"
    bench.report(tmp_path, "pendulum", bench.ALL_GROUPS, json_file=file, figure=figure)
    table = result.read("made", tmp_path).tables[0]
    rows = {row["variant"]: row for row in table.rows}
    assert rows["float32"]["return"] == [-250, pytest.approx(5000**0.5)]
    assert rows["all six"]["of float32"] == pytest.approx(750 / 950)
    assert rows["float16"] == {
        "task": "pendulum", "variant": "float16", "seeds": 1, "crashed": 1,
        "return": [-1200.0, 0.0], "of float32": 0.0,
    }  # fmt: skip
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_runs_that_are_over_are_passed_over(tmp_path, monkeypatch):
    put(tmp_path, bench.FLOAT, 0, [-200])
    begun = []
    monkeypatch.setattr(
        training_runs, "start", lambda folder, said: begun.append(folder.name) or Ended()
    )
    monkeypatch.setattr(bench, "end", lambda folder, code: None)
    bench.run(tmp_path, "pendulum", "baselines", seeds=1)
    assert begun == [f"pendulum-{n}-0" for n in ("float16", "loss-scaling", "mixed", "all-six")]


def test_steps_are_timed_where_there_is_float16(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(low_precision_speed, "hardware", lambda: "")
    low_precision_speed.speed()
    assert "nothing here computes in float16" in capsys.readouterr().out
    monkeypatch.setattr(low_precision_speed, "hardware", lambda: "a GPU")
    monkeypatch.setattr(low_precision_speed, "OBSERVATIONS", {"states": ((3,), 8)})
    monkeypatch.setattr(low_precision_speed, "WARM", 1)
    low_precision_speed.speed(steps=1, turns=1, json_file=tmp_path / "speed.json")
    (table,) = result.read("speed", tmp_path).tables
    assert "a GPU" in table.title
    assert [row["learner"] for row in table.rows] == [
        f"states, {how}" for how in ("float32", "mixed", "all")
    ]


def test_memory_is_counted_from_shapes():
    world = World((17,))
    plain, half = bytes_of(world, 64, "float32"), bytes_of(world, 64, "all")
    layers = [(17, 1024), (1024, 1024), (1024, 12)], [(23, 1024), (1024, 1024), (1024, 1)]
    actor, critic = (sum(k * m + m for k, m in each) for each in layers)
    assert plain["parameters"] == 4 * (actor + 2 * critic)
    assert half["parameters"] * 2 == plain["parameters"]
    assert half["average"] == 2 * 2 * 2 * critic  # what it has, and what it lost
    assert half["activations"] * 2 == plain["activations"]
    assert plain["activations"] >= 4 * 64 * 2 * (2 * 1024 + 1)
