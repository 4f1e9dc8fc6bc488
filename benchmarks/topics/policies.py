"""Topics of trained policies that are quantized statically."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table


def _policies(result: Result) -> Table:
    return result.table("Ten policies, static").only(
        "policy", "profile", "effort", "same action", "return, float", "return, quantized",
        "change", "error of it",
    )  # fmt: skip


def _changes(result: Result) -> Table:
    table = _policies(result)
    for row in table.rows:
        row["how"] = f"{row['profile']}, {row['effort']}"
        row["change"] = [row["change"], row["error of it"]]
    table.columns = {**table.columns, "how": ""}
    return table.pivot("policy", "how", "change")


def _worst(result: Result, profile: str) -> float:
    rows = _policies(result).where(profile=profile).rows
    return float(min(row["change"] for row in rows if "Bipedal" not in row["policy"]))


POLICIES_STATIC = Topic(
    "policies_static",
    "Ten policies, static",
    lambda result: (
        f"at most {-_worst(result, 'policy-int8'):.1%} of the return lost with 8 bits, "
        f"{-_worst(result, 'policy-int4'):.1%} with 4"
    ),
    "profiles policy-int8 and policy-int4 (16 bits at inputs and outputs), 400 episodes each; "
    "without the two of BipedalWalker, which 400 episodes cannot decide",
    _policies,
    _changes,
    Bars("change of the return, ± one standard error", percent=True),
)

POLICIES_RETURNS = Topic(
    "policies_returns",
    "BipedalWalker over 1,600 episodes",
    lambda result: "policy-int8 {:+.1%} ± {:.1%} of the float return".format(
        *(
            result.tables[0].row(what="policy-int8")[heading]
            for heading in ("change", "error of it")
        )
    ),
    "beside float in numpy; float in TensorFlow alone differs by +0.9% ± 0.8%",
    first_table,
    lambda result: _with_errors(result.tables[0]),
    Bars("change of the return, ± one standard error", percent=True),
)


def _with_errors(table: Table) -> Table:
    made = Table(table.title, {"what": "", "change": "+.2%"})
    for row in table.rows:
        made.add(row["what"], [row["change"], row["error of it"]])
    return made


TOPICS = (POLICIES_STATIC, POLICIES_RETURNS)
