"""Topics of single steps of static mode, and of quantization without data."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

SQNR, SAME = "SQNR dB", "as float"


def _thresholds(result: Result) -> Table:
    """A row for each network, a column for each method."""
    made = Table("", {"network": "", "method": "", "cell": ""}, notes=[*result.tables[0].notes])
    for row in result.tables[0].rows:
        made.add(row["network"], row["method"], f"{row[SQNR]:.1f} dB, {row[SAME]:.1%}")
    residual = result.tables[1]
    made.notes += residual.notes
    for row in residual.rows:
        name = f"{residual.title.removeprefix('Thresholds, ')}, {row['activations']}"
        chosen = "" if row["groups"] == "joint" else ", groups by the widest member"
        if row["method"] in ("mse", "output"):
            name += chosen
        made.add(name, row["method"], f"{row['mean SQNR dB']:.1f} dB")
    return made.pivot("network", "method", "cell")


def _sqnr_by_method(result: Result) -> Table:
    made = Table("", {"network": "", "method": "", "sqnr": ".1f"})
    for row in result.tables[0].rows:
        made.add(row["network"], row["method"], row[SQNR])
    return made.pivot("network", "method", "sqnr")


def _span(result: Result, network: str) -> str:
    rows = result.tables[0].where(network=network).rows
    return " to ".join(f"{pick(row[SQNR] for row in rows):.1f}" for pick in (min, max))


THRESHOLDS = Topic(
    "thresholds",
    "Thresholds of activations",
    lambda result: (
        f"MobileNetV1: {_span(result, 'MobileNetV1, 8/8')} dB by method; "
        f"cifar_10_model: {_span(result, 'cifar_10_model, 8/8')} dB"
    ),
    "the same plan except the method; 8 bits, one power-of-two scale per tensor",
    _thresholds,
    _sqnr_by_method,
    Bars("SQNR of the outputs, dB"),
)


def _removed(result: Result) -> Table:
    """The percentage of each network's channels and weights that is removed."""
    made = Table("", {"case": "", "channels": ".2f", "weights": ".2f"})
    whole = {row["network"]: row for row in result.tables[0].where(ratio="off").rows}
    for row in result.tables[0].rows:
        if row["ratio"] != "off":
            was = whole[row["network"]]
            shares = (100 * (1 - row[what] / was[what]) for what in ("channels", "weights"))
            made.add(f"{row['network']}, ratio {row['ratio']}", *shares)
    return made


CONSTANT_CHANNELS = Topic(
    "constant_channels",
    "Constant channels",
    lambda result: "up to {:.2f}% of the channels and {:.2f}% of the weights are removed".format(
        *(max(row[what] for row in _removed(result).rows) for what in ("channels", "weights"))
    ),
    "MobileNetV1 and cifar_10_model, which have few such channels; 8 bits",
    first_table,
    _removed,
    Bars("% removed"),
)


def _by_variant(result: Result) -> Table:
    made = Table("", {"variant": "", "network": "", SQNR: ".1f"})
    for row in result.tables[0].rows:
        made.add(f"{row['question']}: {row['variant']}", row["network"], row[SQNR])
    return made.pivot("variant", "network", SQNR)


def _cost(result: Result, question: str, variants: tuple[str, str]) -> str:
    """How many dB the second variant loses compared with the first, over the networks."""
    rows = result.tables[0].where(question=question)
    networks = dict.fromkeys(row["network"] for row in rows.rows)
    found = [
        float.__sub__(*(float(rows.row(network=n, variant=v)[SQNR]) for v in variants))
        for n in networks
    ]
    return f"{min(found):.1f} to {max(found):.1f}"


PLAN_VARIANTS = Topic(
    "plan_variants",
    "Plans that differ in one step",
    lambda result: (
        "factors that are powers of two cost {} dB (`equalize=weights`), {} dB (`biases`)".format(
            *(
                _cost(result, f"factors of `equalize={by}`", ("free", "powers of two"))
                for by in ("weights", "biases")
            )
        )
    ),
    "MobileNetV1 and cifar_10_model, 8 bits, thresholds by MSE",
    first_table,
    _by_variant,
    Bars("SQNR of the outputs, dB"),
)


def _networks(result: Result) -> Iterator[tuple[str, Table]]:
    for table in result.tables:
        yield table.title.partition(",")[0], table


def _without_data(result: Result) -> Table:
    """A row for each network, way to calibrate and kind of test images."""
    columns = {"network": "", "calibration": "", "test images": "", "right": ".1%"}
    made = Table("", {**columns, SAME: ".1%", SQNR: ".1f"})
    for network, table in _networks(result):
        made.notes += [f"{network}: {note}" for note in table.notes]
        for row in table.rows:
            for heading in (h for h in table.columns if h.endswith(f": {SAME}")):
                kind = heading.partition(":")[0]
                cells = (row.get(f"{kind}: right"), row[heading], row[f"{kind}: {SQNR}"])
                made.add(network, row["calibration"], kind, *cells)
    return made


def _kinds(result: Result) -> Table:
    made = Table("", {"case": "", "calibration": "", SAME: ".1%"})
    for row in _without_data(result).rows:
        way = row["calibration"]
        way = f"images, {way.partition(', ')[2]}" if way[0].isdigit() else f"no data, {way[6:]}"
        made.add(f"{row['network']}, {row['test images']}", way, row[SAME])
    return made.pivot("case", "calibration", SAME)


def _kept(result: Result, network: str, kind: str) -> str:
    found = _without_data(result).where({"network": network, "test images": kind})
    return f"{found.row(calibration='none, default')[SAME]:.1%}"


DATA_FREE = Topic(
    "data_free",
    "Without data",
    lambda result: (
        f"cifar_10_model without samples keeps {_kept(result, 'cifar_10_model', 'test')} of "
        f"the decisions of float, MobileNetV1 {_kept(result, 'MobileNetV1', 'photos')} on 20 photos"
    ),
    "graffitist-int8, thresholds from batch-norm statistics, no training",
    _without_data,
    _kinds,
    Bars("agreement with float", percent=True),
)

BOUNDS = {"means": 0.15, "deviations": 0.3}


def _exceeded(result: Result) -> Table:
    """The largest of the four numbers, in units of its bound."""
    made = Table("", {"samples": "", "of the bound": ".2f"})
    for row in result.tables[0].rows:
        found = (
            row[f"{what}, {of}"] / BOUNDS[what] for what in BOUNDS for of in ("first", "median")
        )
        made.add(f"{row['network']}: {row['samples']}", max(found))
    return made


def _warned(result: Result) -> str:
    rows = result.tables[0].rows
    warned = sum(row["warned"] == "yes" for row in rows)
    return f"a warning for {warned} of {len(rows)} sets of samples"


FOREIGN_SAMPLES = Topic(
    "foreign_samples",
    "Samples unlike the training data",
    _warned,
    "three networks with batch norms; samples of the training data's kind, of another kind, and "
    "with usual mistakes of preprocessing",
    first_table,
    _exceeded,
    Bars("largest difference, as a multiple of its bound", log=True, line=1.0),
)


def _sqnr_by_bits(result: Result) -> Table:
    made = Table("", {"": "", "factors for": "", "sqnr": ".1f"})
    for row in result.tables[0].rows:
        made.add(f"{row['network']}, {row['profile']}", row["factors for"], row[SQNR])
    return made.pivot("", "factors for", "sqnr")


def _gained(result: Result) -> str:
    by_way = _sqnr_by_bits(result).rows
    # Zero is added because -0.0 would be written with its sign.
    gains = [round(row["target"] - row["8 bits"], 1) + 0.0 for row in by_way]
    return f"factors for the bits of the target: {min(gains):+.1f} to {max(gains):+.1f} dB"


NOISE_BITS = Topic(
    "noise_bits",
    "Channel factors for the target's bits",
    _gained,
    "`equalize=noise,method=mse,reconstruct` on MobileNetV1 and V2, one power-of-two scale per "
    "tensor, against factors for 8 bits everywhere",
    first_table,
    _sqnr_by_bits,
    Bars("SQNR of the outputs, dB"),
)


TOPICS = (THRESHOLDS, CONSTANT_CHANNELS, PLAN_VARIANTS, NOISE_BITS, DATA_FREE, FOREIGN_SAMPLES)
