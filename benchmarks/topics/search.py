"""Topics of the search for a plan: whether its choice holds, and its time beside other tools."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from benchmarks.real.file_types import WIDE
from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars, Points
from benchmarks.topics.topic import Topic, first_table
from qgraph.choices import Effort

GAIN, CLOSE = "gain dB", 0.3
SAME = "as float"
INT8 = "graffitist-int8"  # the profile that other tools are compared with
SHOWN_BELOW = 0.98  # networks that have a higher share with every tool are not in the figure
# The names of efforts and tools in the figure.
SERIES = {
    "fast": "qgraph, effort fast",
    "default": "qgraph, effort default",
    "LiteRT": "LiteRT",
    "ONNX Runtime": "ONNX Runtime",
}


def _gains(result: Result) -> list[float]:
    return [row[GAIN] for row in result.tables[0].rows]


def _choices(result: Result) -> Table:
    return replace(result.tables[0], notes=_notes(result))


def _notes(result: Result) -> list[str]:
    """The notes of the first table, one for networks that have the same samples."""
    networks: dict[str, list[str]] = {}
    for note in result.tables[0].notes:
        name, colon, samples = note.partition(": ")
        networks.setdefault(f"{colon}{samples}", []).append(name)
    return [f"{', '.join(names)}{samples}" for samples, names in networks.items()]


PLAN_CHOICE = Topic(
    "plan_choice",
    "Effort default on samples it has not seen",
    lambda result: (
        f"worse than `fast` by more than {CLOSE} dB on "
        f"{sum(gain < -CLOSE for gain in _gains(result))} of {len(_gains(result))} networks; "
        f"{statistics.median(_gains(result)):.1f} dB better at the median"
    ),
    "graffitist-int8; networks with trained and with random weights; SQNR of the outputs",
    _choices,
    lambda result: result.tables[0].only("network", GAIN),
    Bars("SQNR of default above that of fast, dB", line=-CLOSE),
)


def _points(result: Result) -> Table:
    """Seconds, and images with the class of float, of each network with 8 bits, by effort and tool.

    A tool gets a network in two forms; the one that agrees more with float is shown. Networks on
    which all agree with float are left out.
    """
    made = Table("", {"by": "", "network": "", "seconds": "", SAME: ""})
    for row in _best(result).rows:
        by = row["effort"].partition(",")[0]
        if row["profile"] in (None, INT8) and row[SAME] and by in SERIES:
            made.add(SERIES[by], row["network"].partition(" ")[0], row["seconds"], row[SAME])
    differing = {row["network"] for row in made.rows if row[SAME][0] < SHOWN_BELOW}
    made.rows = [row for row in made.rows if row["network"] in differing]
    made.rows.sort(key=lambda row: [*SERIES.values()].index(row["by"]))
    return made


def _best(result: Result) -> Table:
    """The rows without those forms of a network that agree less with float."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in result.tables[0].rows:
        key = (row["network"], row["profile"], row["effort"].partition(",")[0])
        if key not in found or (row["SQNR dB"] or -inf) > (found[key]["SQNR dB"] or -inf):
            found[key] = row
    return replace(result.tables[0], rows=[*found.values()])


def _by_network(result: Result) -> Table:
    """A row for each network and profile, a column for each effort and tool."""
    efforts = [*map(str, Effort), *(name for name in SERIES if name not in tuple(Effort))]
    made = Table("", dict.fromkeys(("network", "profile", *efforts), ""), notes=_notes(result))
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in _best(result).rows:
        of_network = rows.setdefault((row["network"], row["profile"] or INT8), {})
        of_network[row["effort"].partition(",")[0]] = _in_short(row)
    for ends, cells in rows.items():
        made.add(*ends, *(cells.get(effort) for effort in efforts))
    return made


def _in_short(row: Mapping[str, Any]) -> str:
    """Seconds, distance from float and images with its class, in one cell."""
    if row["seconds"] is None:
        return "fails"
    found = f"{row['seconds']:.1f} s, {row['SQNR dB']:.1f} dB"
    return f"{found}, {row[SAME][0]:.1%} ± {row[SAME][1]:.1%}" if row[SAME] else found


def _of_cifar(result: Result, by: str, profile: str | None) -> str:
    (row,) = (
        row
        for row in _best(result).where(network="cifar_10_model", profile=profile).rows
        if row["effort"].partition(",")[0] == by
    )
    return f"{row[SAME][0]:.1%} in {row['seconds']:.0f} s"


EFFORT_PEERS = Topic(
    "effort_peers",
    "Time and agreement of each effort",
    lambda result: (
        f"cifar_10_model at 8 bits: {_of_cifar(result, 'default', INT8)}, "
        f"LiteRT {_of_cifar(result, 'LiteRT', None)}"
    ),
    "the share of images with the class of float; qgraph has one power-of-two scale per tensor, "
    "LiteRT float scales, one for each channel of weights",
    _by_network,
    _points,
    Points("seconds", "images with the class of float", log_x=True, percent=True),
)


EFFORT_STEPS = Topic(
    "effort_steps",
    "Time of effort default by step",
    lambda result: (
        f"rounding of weights takes {_share_of(result, 'MobileNetV1', 'weights'):.0%} of the time "
        "on MobileNetV1"
    ),
    "graffitist-int8; one run under a profiler",
    first_table,
    first_table,
    Bars("seconds", stacked=True),
)


def _share_of(result: Result, network: str, step: str) -> float:
    row = dict(result.tables[0].row(network=network))
    row.pop("network")
    return float(row[step] / sum(row.values()))


def _of_detection(result: Result, effort: str) -> str:
    row = result.tables[0].row(network="PP-OCR detection", effort=effort)
    return f"{row['SQNR dB']:.1f} dB"


RENDERED_TEXT = Topic(
    "text",
    "Networks for text on rendered text",
    lambda result: (
        f"detection of text: {_of_detection(result, 'plain')} with plain calibration, "
        f"{_of_detection(result, 'default')} by effort `default`"
    ),
    "graffitist-int8; images of random letters in the fonts of matplotlib",
    first_table,
    lambda result: result.tables[0].pivot("network", "effort", "SQNR dB"),
    Bars("SQNR of the outputs, dB"),
)


def _of_magika(result: Result, effort: str, profile: str = "graffitist-int8") -> str:
    row = result.tables[0].row(network="magika", effort=effort, profile=profile)
    return f"{row['as float']:.1%}"


def _types_by_way(result: Result) -> Table:
    """SQNR by effort; rows of the profile with wide activations are named by it."""
    made = Table(result.tables[0].title, result.tables[0].columns)
    for row in result.tables[0].rows:
        made.add(*{**row, "effort": WIDE if row["profile"] == WIDE else row["effort"]}.values())
    return made.pivot("network", "effort", "SQNR dB")


FILE_TYPES = Topic(
    "file_types",
    "Types of files",
    lambda result: (
        f"magika gives the answer of float on {_of_magika(result, 'plain')} of files with plain "
        f"calibration, on {_of_magika(result, 'default')} by effort `default`, on "
        f"{_of_magika(result, 'default', WIDE)} with activations of 16 bits too"
    ),
    "graffitist-int8, tflm-int16x8; files of the machine, some of each suffix",
    first_table,
    _types_by_way,
    Bars("SQNR of the outputs, dB"),
)


def _of_vit(result: Result, network: str) -> str:
    return f"{result.tables[0].row(network=network)['accuracy']:.1%}"


VISION_TRANSFORMER = Topic(
    "vision_transformer",
    "A vision transformer",
    lambda result: (
        f"{_of_vit(result, 'int8, plain')} right with plain calibration, "
        f"{_of_vit(result, 'int8, default')} by effort `default`, "
        f"{_of_vit(result, 'int8, retrained')} retrained, {_of_vit(result, 'float')} in float; "
        "no code differs in any form"
    ),
    "graffitist-int8; handwritten digits of 8 x 8 pixels, 450 to test; a network trained here",
    first_table,
    lambda result: result.tables[0].only("network", "accuracy"),
    Bars("digits that are right", percent=True),
)


def _overlap(result: Result, network: str) -> str:
    return f"{result.tables[0].row(network=network)['IoU']:.1%}"


UNET = Topic(
    "unet",
    "A U-Net",
    lambda result: (
        f"IoU {_overlap(result, 'int8, plain')} with plain calibration, "
        f"{_overlap(result, 'int8, default')} by effort `default`, "
        f"{_overlap(result, 'int8, retrained')} retrained, {_overlap(result, 'float')} in float; "
        "no code differs in any form"
    ),
    "graffitist-int8; handwritten digits in noise, 24 x 24 pixels, 450 to test; a network "
    "trained here",
    first_table,
    lambda result: result.tables[0].only("network", "IoU"),
    Bars("overlap of the ink", percent=True),
)


def _right_digits(result: Result, network: str) -> str:
    row = result.tables[0].row(network=network, effort="default")
    return f"{network} {row['right, 8 bits']:.1%} (float {row['right, float']:.1%})"


RECURRENT = Topic(
    "recurrent",
    "Recurrent networks on rows of digits",
    lambda result: (
        f"right by effort `default`: {_right_digits(result, 'LSTM')}, "
        f"{_right_digits(result, 'GRU')}"
    ),
    "graffitist-int8, cell states in 16 bits; digits of scikit-learn, 8 steps of 8 pixels",
    first_table,
    lambda result: result.tables[0].pivot("network", "effort", "SQNR dB"),
    Bars("SQNR of the outputs, dB"),
)


def _auc(result: Result, profile: str) -> str:
    return f"{result.tables[0].row(profile=profile)['AUC']:.4f}"


SPEECH = Topic(
    "speech",
    "Speech in noise, streamed",
    lambda result: (
        f"Silero VAD, one step with carried states: AUC {_auc(result, 'wide')} with 16 bits at the "
        f"ends, {_auc(result, 'graffitist-int8')} with 8 bits everywhere, {_auc(result, '-')} in "
        "float"
    ),
    "speech of espeak-ng in noise of 0 to 20 dB, sequences of 96 frames; weights reconstructed",
    first_table,
    lambda result: result.tables[0].only("profile", "AUC"),
    Bars("AUC of frames with speech"),
)

TOPICS = (
    EFFORT_PEERS, EFFORT_STEPS, PLAN_CHOICE, RENDERED_TEXT, FILE_TYPES, VISION_TRANSFORMER, UNET,
    RECURRENT, SPEECH,
)  # fmt: skip
