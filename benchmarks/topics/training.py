"""Topics of training: families retrained, distillation, the time of a step."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

WAYS = ("FP32", "static INT8", "wt FP32", "wt INT8", "wt+th INT8", "wt+th INT4")


def _retrained(result: Result) -> Table:
    return result.table("Test accuracy, static").only(
        "network", *WAYS, "INT8 over wt FP32", "INT4 over wt FP32"
    )


def _below(result: Result) -> Table:
    ways = ("static INT8", "wt INT8", "wt+th INT8", "wt+th INT4")
    made = Table("", {"network": "", **dict.fromkeys(ways, ".2f")})
    for row in _retrained(result).rows:
        if row["network"] != "cifar_10_model":
            made.add(row["network"], *(100 * (row["wt FP32"] - row[way]) for way in ways))
    return made


def _retrained_headline(result: Result) -> str:
    rows = _retrained(result).rows[:6]
    eight, four = (min(row[f"{bits} over wt FP32"] for row in rows) for bits in ("INT8", "INT4"))
    return f"{-eight:.2f} points below retrained float at most with 8 bits, {-four:.2f} with 4"


FAMILIES_RETRAINED = Topic(
    "families_retrained",
    "Six families, retrained",
    _retrained_headline,
    "weights and thresholds trained, one run each; two runs that differ in the order of batches "
    "are 0.05 to 0.1 points apart",
    _retrained,
    _below,
    Bars("points of accuracy below retrained float"),
)


FROM_STATIC = "INT4 from static"
FLOATS = ("wt FP32", "wt FP32 annealed")


def _from_static_headline(result: Result) -> str:
    ends = [[row[f"{FROM_STATIC} over {way}"] for row in result.tables[0].rows] for way in FLOATS]
    low, high = (f"{min(found):+.2f} to {max(found):+.2f}" for found in ends)
    return f"{low} points over retrained float, {high} over float retrained at the same rate"


def _over_floats(result: Result) -> Table:
    columns = {f"over {way}": f"{FROM_STATIC} over {way}" for way in FLOATS}
    made = Table("", {"network": "", **dict.fromkeys(columns, "+.2f")})
    for row in result.tables[0].rows:
        made.add(row["network"], *(row[column] for column in columns.values()))
    return made


FAMILIES_FROM_STATIC = Topic(
    "families_from_static",
    "Six families, 4 bits, trained from the static network",
    _from_static_headline,
    "weights of 4 bits, one run each; 10,000 test images",
    first_table,
    _over_floats,
    Bars("points of accuracy over retrained float", line=0.0),
)


def _distilled(result: Result) -> Table:
    made = Table("", {"": "", "as float, CIFAR-10": ".1%", "as float, views of photos": ".1%"})
    for row in result.tables[0].rows:
        bits = row["profile"].rpartition("-")[2].upper()
        trained = f", {row['loss']} at {row['rate of weights']}" if row["loss"] else ""
        views = row["as float, views of photos"][0] / 100
        made.add(f"{bits}, {row['begins as']}{trained}", row["as float, CIFAR-10"], views)
    return made


def _distilled_headline(result: Result) -> str:
    rows = result.tables[0].where({"profile": "graffitist-int8", "begins as": "search"}).rows
    static, *trained = (row["as float, CIFAR-10"] for row in rows)
    return f"{static:.1%} of the decisions of float from the search, {max(trained):.1%} trained"


DISTILLATION = Topic(
    "distillation",
    "MobileNetV1, trained without labels",
    _distilled_headline,
    "8 bits, enlarged CIFAR-10 images without labels, 250 steps",
    first_table,
    _distilled,
    Bars("agreement with float", percent=True),
)


def _by_loss(result: Result) -> Table:
    """Agreement with float of the static result and of each training, by network."""
    made = Table(result.tables[0].title, result.tables[0].columns)
    for row in result.tables[0].rows:
        cells = {**row, "loss": row["loss"] or row["state"]}
        made.add(*cells.values())
    return made.pivot("network", "loss", "as float")


def _trained_by_float_headline(result: Result) -> str:
    starts = [row for row in result.tables[0].rows if row["loss"] is None]
    return "; ".join(f"{row['network']} {row['as float']:.1%} as float" for row in starts)


TRAINED_BY_FLOAT = Topic(
    "trained_by_float",
    "Networks for text and files, trained without labels",
    _trained_by_float_headline,
    "8 bits, effort `default`, before training",
    first_table,
    _by_loss,
    Bars("agreement with float", percent=True),
)

FOUR = ("static INT4", FROM_STATIC, "static INT4/4", "INT4/4 from static")


def _four_bits(result: Result) -> Table:
    made = Table("", {"": "", "accuracy": ".2%"})
    (row,) = result.tables[0].rows
    for way in ("FP32", *FOUR):
        made.add(way, row[way])
    return made


def _four_bits_headline(result: Result) -> str:
    (row,) = result.tables[0].rows
    shares = ", ".join(f"{way} {row[way]:.2%}" for way in FOUR)
    return f"cifar_10_model: {shares}; float {row['FP32']:.2%}"


CIFAR_4_BITS = Topic(
    "cifar_4_bits",
    "cifar_10_model with 4 bits, static and trained",
    _four_bits_headline,
    "INT4: weights of 4 bits; INT4/4: activations too; one run each; 10,000 test images",
    first_table,
    _four_bits,
    Bars("accuracy", percent=True),
)


MOVING, FROZEN, TFMOT = "qgraph", "qgraph, batch norms frozen", "TFMOT"


def _range(result: Result, step: str) -> str:
    shares = [row["ms, of float"] for row in result.tables[0].where(step=step).rows]
    return f"{min(shares):.2f} to {max(shares):.2f}"


TRAINING_STEP = Topic(
    "training_step",
    "Time and memory of a training step",
    lambda result: (
        f"{_range(result, FROZEN)} times the float step, {_range(result, MOVING)} while batch "
        f"norms move; TFMOT {_range(result, TFMOT)}"
    ),
    "batch norms frozen, two cores; the float step has moving batch norms",
    first_table,
    lambda result: result.tables[0].pivot("network", "step", "ms, of float"),
    Bars("time of a step, as a multiple of the float step", line=1.0),
)


def _quantizers_headline(result: Result) -> str:
    """The difference between TQT and LSQ with 4 bits, over all networks."""
    row = result.table("TQT per tensor over").row({"TQT over": "LSQ"})
    found = [value[0] for name, value in row.items() if name.endswith("INT4") and value]
    places = dict.fromkeys(f"{value:+.2f}" for value in (min(found), max(found)))
    return f"TQT over LSQ with real scales, 4 bits: {' to '.join(places)} points"


def _quantizers(result: Result) -> Table:
    """The accuracy of each kind, and the difference of TQT per tensor from it."""
    found, over = result.table("Test accuracy by kind"), result.table("TQT per tensor over")
    first, ends, *columns = found.columns
    headings: dict[str, str] = {}
    for name in columns:
        headings |= {name: ".2f", f"TQT above it, {name}": "+.2f"}
    made = Table("", {first: "", ends: "", **headings}, notes=[*found.notes, *over.notes])
    for row in found.rows:
        above = over.where({"TQT over": row[first]}).rows
        cells = [v for n in columns for v in (row[n], above[0][n] if above else None)]
        made.add(row[first], row[ends], *cells)
    return made


def _over(result: Result) -> Table:
    """The difference of TQT from the kinds that were trained with 4 bits."""
    table = result.table("TQT per tensor over")
    first, *columns = table.columns
    fours = [heading for heading in columns if heading.endswith("INT4")]
    made = table.only(first, *fours)
    return Table(made.title, made.columns, [r for r in made.rows if all(r[n] for n in fours)])


QUANTIZERS = Topic(
    "quantizers",
    "Quantizers side by side",
    _quantizers_headline,
    "small networks, one short training; ± is the standard error over orders of the batches",
    _quantizers,
    _over,
    Bars("points of accuracy, TQT per tensor over the kind, weights of 4 bits", line=0.0),
)


def _mobilenet_headline(result: Result) -> str:
    right = {row["network"]: row["test accuracy"] for row in result.tables[0].rows}
    static, plain = right["INT4, static"], right["INT4, plain"]
    return (
        f"float {right['float']:.2%}; weights of 4 bits: {plain:.2%} with plain calibration, "
        f"{static:.2%} by effort `default`, {right['INT4, trained']:.2%} trained"
    )


def _over_float(result: Result) -> Table:
    """The differences from float, but those of plain calibration."""
    made = Table("", {"network": "", "over float": "+.2f"})
    for row in result.tables[0].rows:
        if row["over float"] is not None and not row["network"].endswith("plain"):
            made.add(row["network"], [row["over float"], row["standard error"]])
    return made


MOBILENET_V2 = Topic(
    "mobilenet_v2",
    "MobileNetV2 on CIFAR-10, beside other tools",
    _mobilenet_headline,
    "width 0.5, trained here; qgraph has one power-of-two scale per tensor, other tools float "
    "scales, one for each channel of weights",
    first_table,
    _over_float,
    Bars("points of accuracy over float, with standard errors", line=0.0),
)

TOPICS = (
    FAMILIES_RETRAINED, FAMILIES_FROM_STATIC, CIFAR_4_BITS, QUANTIZERS, MOBILENET_V2,
    DISTILLATION, TRAINED_BY_FLOAT, TRAINING_STEP,
)  # fmt: skip
