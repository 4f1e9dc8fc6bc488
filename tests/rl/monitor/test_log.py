"""The log has every decision and its reason, and can be read back and drawn."""

import csv
import json
import math
import os
from pathlib import Path

import pytest

from qgraph.errors import LoadError, OutputError
from qgraph.rl.compress import Compressor
from qgraph.rl.monitor import Indicators, Monitor, parse_strategy
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.log import LINES, TABLE, Log, changes, read_log
from qgraph.rl.monitor.thresholds import KlMax

CHAIN = Compressor().prune(0.5).quantize(8)


def watched(folder, values=(1.0, 15.0, math.nan), **more):
    log = Log(folder, **more)
    monitor = Monitor(KlMax(14), CHAIN, log)
    seen = [Indicators(10 * i, 0.5 * i, kl_max=v, staleness=3.0) for i, v in enumerate(values)]
    made = [monitor.decide(one) for one in seen]
    return seen, made


def test_what_is_written_is_read(tmp_path):
    seen, made = watched(tmp_path)
    begins, *found = read_log(tmp_path / LINES)
    assert not begins.looked and begins.decision.reason == "begins"
    assert [row.decision for row in found] == made
    for row, one in zip(found, seen, strict=True):
        assert repr(row.indicators) == repr(one)  # NaN too
    lines = [json.loads(line) for line in (tmp_path / LINES).read_text().splitlines()]
    assert lines[2]["reason"] == "KL max 15 > 14: 8 -> 16 bits" and lines[3]["kl_max"] is None
    with (tmp_path / TABLE).open() as stream:
        _, *rows = csv.DictReader(stream)
    assert [row["compressor"] for row in rows] == [str(m.compressor) for m in made]
    assert rows[1]["kl_max"] == "15.0" and rows[1]["reason"] == made[1].reason
    assert [row.indicators.version for row in changes(found)] == [0, 10]


def test_a_resumed_run_keeps_what_is_before_its_checkpoint(tmp_path):
    watched(tmp_path)
    with (tmp_path / LINES).open("a") as stream:
        stream.write('{"cut')
    Log(tmp_path, until=10)
    assert [row.indicators.version for row in read_log(tmp_path / LINES)] == [0, 0, 10]
    watched(tmp_path)
    assert len(read_log(tmp_path / LINES)) == 4


def test_rows_survive_a_failure_to_rewrite_them(tmp_path):
    watched(tmp_path)
    (tmp_path / TABLE).unlink()
    (tmp_path / TABLE).mkdir()
    with pytest.raises(OutputError):
        Log(tmp_path, until=10)
    assert [row.indicators.version for row in read_log(tmp_path / LINES)] == [0, 0, 10]


def test_no_file_stays_open(tmp_path):
    watched(tmp_path)
    log = Log(tmp_path, until=10)
    log.add(log.kept[-1])
    linked = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    opened = {os.readlink(link) for link in linked if os.path.lexists(link)}
    assert not {path for path in opened if path.startswith(str(tmp_path))}


def test_the_monitor_of_a_resumed_run_continues(tmp_path):
    values = [1.0, 15.0, 3.0, 3.0, 20.0, 2.0, 1.0, 1.0, 1.0]
    seen = [Indicators(i, float(i), kl_max=value) for i, value in enumerate(values)]
    strategy = KlMax(14, patience=3)
    whole = Monitor(strategy, CHAIN)
    wanted = [whole.decide(one) for one in seen]

    log = Log(tmp_path)
    first = Monitor(strategy, CHAIN, log)
    for one in seen[:7]:
        first.decide(one)
    first.failed(seen[6], "no layer")
    log = Log(tmp_path, until=5)
    again = Monitor(strategy, CHAIN, log)
    assert again.decision == wanted[5] and again.measurements == whole.measurements[:6]
    assert [again.decide(one) for one in seen[6:]] == wanted[6:]
    assert [row.decision for row in read_log(tmp_path / LINES) if row.looked] == wanted


def test_a_failure_is_written_too(tmp_path):
    log = Log(tmp_path)
    Monitor(KlMax(14), CHAIN, log).failed(Indicators(4, 1.0), "no layer")
    _, row = read_log(tmp_path / LINES)
    assert row.failed and row.decision.reason == "failed, the last policy acts: no layer"


def test_a_continued_run_remembers_refused_decisions(tmp_path):
    seen = [Indicators(i, float(i), kl_max=20.0) for i in range(3)]
    log = Log(tmp_path)
    first = Monitor(KlMax(14), CHAIN, log)
    good = first.decision
    left = first.decide(seen[0])
    first.failed(seen[1], "no layer", good, for_good=True)
    assert left.compressor != good.compressor
    again = Monitor(KlMax(14), CHAIN, Log(tmp_path, until=1))
    assert again.refused == first.refused == (left.compressor,)
    assert again.decision.compressor == good.compressor
    assert again.decide(seen[2]).reason == "KL max 20 > 14: 8 -> 32 bits"


def test_a_strategy_that_fails_is_a_look_at_what_stays(tmp_path):
    """It was live already; a run that continues has the same looks."""
    seen = [Indicators(i, float(i), kl_max=20.0) for i in range(4)]
    log = Log(tmp_path)
    first = Monitor(parse_strategy("tests.helpers.plain_links.FailsToDecide:1"), CHAIN, log)
    for one in seen[:3]:
        first.decide(one)
    _, fine, *failed = read_log(tmp_path / LINES)
    assert fine.decision.reason == "fine"
    for row in failed:
        assert row.looked and not row.failed and row.decision.compressor == CHAIN
        told = "stays, the strategy failed: key 'a mistake of its author' is missing"
        assert row.decision.reason == told
    again = Monitor(first.strategy, CHAIN, Log(tmp_path, until=2))
    assert again.measurements == first.measurements and len(again.measurements) == 3
    assert again.decision == first.decision and again.worked == first.worked


def test_the_first_of_a_bandits_settings_that_failed_stays_refused(tmp_path):
    log, seen = Log(tmp_path), Indicators(0, 0.0)
    first = Monitor(Growth("quantize(4);quantize(8)"), CHAIN, log)
    first.failed(seen, "no layer", for_good=True)
    again = Monitor(first.strategy, CHAIN, Log(tmp_path, until=0))
    assert again.decision == first.decision and str(again.decision.compressor) == "quantize(8)"
    assert (
        again.refused == (Compressor().quantize(4),)
        and again.measurements == first.measurements == []
    )


def test_places_and_files_that_are_not_there(tmp_path):
    with pytest.raises(OutputError, match="cannot be written"):
        Log(tmp_path / "nowhere")
    with pytest.raises(LoadError, match="cannot be read"):
        read_log(tmp_path / LINES)
    (tmp_path / LINES).write_text("{}\n")
    with pytest.raises(LoadError, match="cannot be read"):
        read_log(tmp_path / LINES)


def test_a_figure(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `figures`")
    from qgraph.rl.monitor.plots import plot

    watched(tmp_path)
    assert plot(tmp_path).read_bytes().startswith(b"\x89PNG")
