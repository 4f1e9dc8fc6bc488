"""Topics of static quantization: networks, efforts, bits and policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars, Lines
from benchmarks.topics.topic import Topic, first_table

# The heading of agreement with float in each network's table.
AGREEMENT = {
    "cifar_10_model": "as float",
    "MobileNetV1, static": "as float, CIFAR-10",
    "face-mask": "as float",
    "basic-pitch": "notes in common",
}
SAME = "differ from reference"


def _plain(result: Result) -> Table:
    made = Table(
        "Plain calibration", {"network": "", "profile": "", "agreement with float": ".1%", SAME: ""}
    )
    for network, heading in AGREEMENT.items():
        for row in result.table(network).where(method="kl_j").rows:
            made.add(network.removesuffix(", static"), row["profile"], row[heading], row[SAME])
    return made


REAL_NETWORKS = Topic(
    "real_networks",
    "Real networks, plain calibration",
    lambda result: (
        f"{_share(result, 'per-channel')} of the decisions of float on MobileNetV1 with "
        f"a scale for each channel, {_share(result, 'graffitist-int8')} with one scale per tensor; "
        "no code differs from the integer reference"
    ),
    "thresholds by KL-J, no search, no retraining; 200 enlarged CIFAR-10 images",
    _plain,
    lambda result: _plain(result).pivot("network", "profile", "agreement with float"),
    Bars("outputs that agree with float", percent=True),
)


def _share(result: Result, profile: str) -> str:
    row = result.table("MobileNetV1, static").row(profile=profile, method="kl_j")
    return f"{row['as float, CIFAR-10']:.0%}"


def _efforts(result: Result) -> Table:
    return result.table("Static quantization by effort").only(
        "network", "profile", "effort", "right", "as float", "SQNR, dB", "seconds", "float runs"
    )


def _steps(result: Result) -> Table:
    steps = result.table("What each step of the plan brings").where(network="cifar_10_model")
    return steps.pivot("step", "profile", "as float")


def _effort_headline(result: Result) -> str:
    rows = {
        row["effort"]: row for row in _efforts(result).where(profile="graffitist-int8").rows[:4]
    }
    return (
        f"cifar_10_model at 8 bits: {rows['default']['right']:.2%} right with the default effort, "
        f"{rows['plain']['right']:.2%} with plain calibration"
    )


EFFORTS = Topic(
    "efforts",
    "Static mode by effort",
    _effort_headline,
    "graffitist-int8, one power-of-two scale per tensor, 512 images without labels, 10,000 test "
    "images (float: 80.14%)",
    _efforts,
    _steps,
    Bars("agreement with float; each step is added to those above", percent=True),
)

OURS = "qgraph, `constant-channels=0.1,method=mse,reconstruct`"

PHOTOS = Topic(
    "photos",
    "MobileNetV1 on photos",
    lambda result: "{0[0]:.1f} ± {0[1]:.1f} % of the decisions of float; "
    "LiteRT {1[0]:.1f} ± {1[1]:.1f} %".format(
        *(_photo(result, name)["as float"] for name in (OURS, "LiteRT"))
    ),
    "640 views of 20 photos; calibrated on 64 enlarged CIFAR-10 images; qgraph has one "
    "power-of-two scale per tensor, LiteRT free scales for each channel",
    lambda result: result.table("MobileNetV1 on 640 views").only(
        "what", "photos right", "views right", "as float", "SQNR dB", "other photos, as float",
        "CIFAR-10, as float",
    ),
    lambda result: result.table("MobileNetV1 on 640 views").only(
        "what", "views right", "as float", "other photos, as float"
    ),
    Bars("% of views, ± one standard error"),
)  # fmt: skip


def _photo(result: Result, name: str) -> dict[str, object]:
    return result.table("MobileNetV1 on 640 views").row(what=name)


def _bits(result: Result) -> Table:
    """Bits and accuracy, without the column of SQNR and its mention in a note."""
    table = result.table("cifar_10_model: bits of weights").only(
        "steps", "budget", "mean bits", "weight bytes", "bits by layer", "accuracy", "as float"
    )
    return replace(table, notes=[n.removesuffix(", which the column shows") for n in table.notes])


def _by_mean_bits(result: Result) -> Table:
    rows = sorted(_bits(result).rows, key=lambda row: float(row["mean bits"]))
    made = Table("", {"mean bits": ".2f", "way": "", "accuracy": ".2%"})
    for row in rows:
        place = "everywhere" if "everywhere" in row["budget"] else "by layer"
        made.add(row["mean bits"], f"{row['steps']}; bits {place}", row["accuracy"])
    return made.pivot("mean bits", "way", "accuracy")


MIXED_PRECISION = Topic(
    "mixed_precision",
    "Bits layer by layer",
    lambda result: "{:.2%} with 3 bits on average, {:.2%} with 4 everywhere".format(
        *(
            _bits(result).row(steps="weights reconstructed, biases corrected", budget=b)["accuracy"]
            for b in ("3 on average", "4 everywhere")
        )
    ),
    "cifar_10_model, bits of weights; activations have 8 bits; weights reconstructed",
    _bits,
    _by_mean_bits,
    Lines("mean bits of weights", "accuracy", percent=True),
)


def _families(result: Result) -> Table:
    table = result.table("Six families, static, 10,000").only(
        "network", "profile", "effort", "accuracy", "as float", "quantize s"
    )
    networks = {row["network"] for row in table.rows}
    plans = [note for note in table.notes if note.partition(",")[0] in networks]
    others = [note for note in table.notes if note not in plans]
    return replace(table, notes=[*others, "\n    - ".join(["plans of effort `default`:", *plans])])


def _lost(result: Result) -> Table:
    rows = _families(result).rows
    ways = [(p, e) for p in ("graffitist-int8", "graffitist-int4") for e in ("plain", "default")]
    table = Table("", {"network": "", **{f"{p[11:]}, {e}": ".2f" for p, e in ways}})
    for network in dict.fromkeys(row["network"] for row in rows):
        known = {
            (r["profile"], r["effort"]): r["accuracy"] for r in rows if r["network"] == network
        }
        table.add(network, *(100 * (known["float32", None] - known[way]) for way in ways))
    return table


FAMILIES = Topic(
    "families",
    "Six families, static",
    lambda result: (
        "at 4 bits at most {:.2f} points below float with the default effort, up to "
        "{:.0f} with plain calibration".format(
            *(max(row[f"int4, {e}"] for row in _lost(result).rows) for e in ("default", "plain"))
        )
    ),
    "networks of 24,000 to 63,000 parameters on Fashion-MNIST; no labels, no training",
    _families,
    _lost,
    Bars("points of accuracy below float"),
)


def _quantized(result: Result) -> list[dict[str, Any]]:
    """The rows of networks that were not refused."""
    return [row for row in result.tables[0].rows if not row["refused"]]


def _distances(result: Result) -> Table:
    libraries = ("keras", "tf_keras")
    made = Table("", {"network": "", **dict.fromkeys(libraries, ".1f")})
    found = {(row["network"], row["library"]): row["SQNR dB"] for row in _quantized(result)}
    for network in dict.fromkeys(network for network, _ in found):
        made.add(network, *(found.get((network, library)) for library in libraries))
    return made


APPLICATIONS = Topic(
    "applications",
    "Networks of keras.applications",
    lambda result: (
        f"{len(_quantized(result))} of {len(result.tables[0].rows)} networks are integers and "
        f"verified; SQNR of {min(row['SQNR dB'] for row in _quantized(result)):.0f} dB or more"
    ),
    "random weights, small images, 8 bits, plain calibration",
    first_table,
    _distances,
    Bars("SQNR of the outputs, dB"),
)

TOPICS = (REAL_NETWORKS, EFFORTS, PHOTOS, MIXED_PRECISION, FAMILIES, APPLICATIONS)
