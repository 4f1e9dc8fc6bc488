"""Topics of the integer engine and of its arithmetic."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.result import Result
from benchmarks.tables import Table, written
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

ENGINE, BEST_PEER = "integer engine, graffitist-int8", "ONNX Runtime int8 (QDQ, u8s8)"


def _calls(result: Result) -> Table:
    """The times, with the note about the columns that pages show."""
    table = result.table("Time of a call")
    notes = [note.partition(", with its quartiles")[0] for note in table.notes]
    return replace(table, notes=notes)


def _ratios(result: Result) -> Table:
    made = Table("", {"case": "", "runtime": "", "ratio": ".2f"})
    for row in _calls(result).rows:
        case = f"{row['network']}, batch {row['batch']}, {row['threads']} threads"
        made.add(case.replace("1 threads", "1 thread"), row["runtime"], row["ratio"])
    return made.pivot("case", "runtime", "ratio")


def _engine_table(result: Result) -> Table:
    made = Table(
        "", {"network": "", "runtime": "", "setting": "", "cell": ""}, notes=[*_calls(result).notes]
    )
    for row in _calls(result).rows:
        setting = f"batch {row['batch']}, {row['threads']} thread{'s' * (row['threads'] > 1)}"
        cell = f"{written(row['ms'], '.3g')} ms, {row['ratio']:.2f}"
        made.add(f"{row['network']}: {row['runtime']}", row["runtime"], setting, cell)
    return made.pivot("network", "setting", "cell")


def _engine_headline(result: Result) -> str:
    def of(runtime: str) -> str:
        found = [
            row["ratio"]
            for row in _calls(result).where(runtime=runtime, threads=1).rows
            if row["network"] != "ResNet50"
        ]
        return f"{min(found):.2f} to {max(found):.2f}"

    return f"{of(ENGINE)} of ONNX Runtime's fp32 time; its int8 {of(BEST_PEER)}"


ENGINE_SPEED = Topic(
    "engine_speed",
    "Speed of the integer engine",
    _engine_headline,
    "MobileNetV1 and cifar_10_model, one thread; the page also has ResNet50 with random weights",
    _engine_table,
    _ratios,
    Bars("time, as a multiple of ONNX Runtime fp32 in the same turn", line=1.0),
)

PROCESSOR = "processor ratio"


def _busy(result: Result) -> Table:
    return _calls(result).only("runtime", "batch", "threads", "ms", "ratio", PROCESSOR)


def _busy_ratios(result: Result) -> Table:
    made = Table("", {"case": "", "runtime": "", PROCESSOR: ".2f"})
    for row in _busy(result).where(threads=1).rows:
        made.add(f"batch {row['batch']}, 1 thread", row["runtime"], row[PROCESSOR])
    return made.pivot("case", "runtime", PROCESSOR)


def _busy_headline(result: Result) -> str:
    rows = _busy(result).where(batch=1, threads=1)
    ours, litert, peer = (
        rows.row(runtime=runtime)[PROCESSOR] for runtime in (ENGINE, "LiteRT int8", BEST_PEER)
    )
    return (
        f"{ours:.2f} of ONNX Runtime's fp32 processor time; LiteRT {litert:.2f}, "
        f"ONNX Runtime's int8 {peer:.2f}"
    )


ENGINE_SPEED_VNNI = Topic(
    "engine_speed_vnni",
    "The integer engine with AVX-512 VNNI",
    _busy_headline,
    "cifar_10_model, batch 1, one thread, on a machine that other programs kept busy",
    _busy,
    _busy_ratios,
    Bars("processor time, as a multiple of ONNX Runtime fp32", line=1.0),
)


def _accumulators(result: Result) -> Table:
    """The bits of each layer, under the short name that the figure has."""
    table = result.table("MobileNetV1").only(
        "layer", "terms", "lowest", "highest", "bits", "bits by channel", "bits with any weights"
    )
    rows = [{**row, "layer": row["layer"].split("/")[-2]} for row in table.rows]
    return replace(table, rows=rows)


def _widths(result: Result) -> Table:
    made = Table("", {"layer": "", "with the real weights": "d", "with any weights": "d"})
    for row in _accumulators(result).rows:
        made.add(row["layer"], row["bits"], row["bits with any weights"])
    return made


ACCUMULATORS = Topic(
    "accumulators",
    "Bits of accumulators",
    lambda result: "{} to {} bits with the real weights, up to {} with any weights".format(
        min(row["bits"] for table in result.tables for row in table.rows),
        max(row["bits"] for table in result.tables for row in table.rows),
        max(row["bits with any weights"] for table in result.tables for row in table.rows),
    ),
    "MobileNetV1 and cifar_10_model, profile int32-bias, the bias added in the accumulator",
    _accumulators,
    _widths,
    Bars("bits of the accumulator"),
)

DOUBLE, TASKS = "double, ratio", ("engine", "training")


def _double(result: Result, task: str) -> str:
    ratios = [row[DOUBLE] for row in result.tables[0].where(task=task).rows]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _roundings(result: Result) -> Table:
    made = Table("", {"case": "", "half_away": ".2f", "double": ".2f"})
    for row in result.tables[0].rows:
        case = f"{row['network']}, {row['profile']}, {row['task']}"
        made.add(case, row["half_away, ratio"], row[DOUBLE])
    return made


ROUNDINGS = Topic(
    "roundings",
    "The cost of rounding `double`",
    lambda result: (
        f"an engine run takes {_double(result, TASKS[0])} times as long as with `half_even`, "
        f"a training step {_double(result, TASKS[1])} times"
    ),
    "digits and a network like those for CIFAR-10, processor time, engine on one thread",
    first_table,
    _roundings,
    Bars("processor time, as a multiple of half_even", line=1.0),
)

TOPICS = (ENGINE_SPEED, ENGINE_SPEED_VNNI, ACCUMULATORS, ROUNDINGS)
