"""Topics of actors: the time of a step, of weight updates, and of small machines."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table, written
from benchmarks.topics.figures import Bars, Lines
from benchmarks.topics.topic import Topic, first_table

RATIO, TIME = "best peer's time over it", "us an observation"
OURS = ("qgraph, int8", "qgraph, int4", "qgraph, float32", "qgraph, static int8")


def _steps(result: Result) -> Table:
    """Times and ratios without a learner, a column for each batch."""
    made = Table("", {"policy": "", "batch": "", "cell": ""})
    made.notes = list(result.table("A step of an actor").notes)
    for row in result.table("A step of an actor").where(beside="alone").rows:
        cell = f"{written(row[TIME], '.3g')} ({row[RATIO]:.2f})"
        made.add(f"{row['network']}: {row['runtime']}", f"batch {row['batch']}", cell)
    return made.pivot("policy", "batch", "cell")


def _ratios(result: Result) -> Table:
    rows = result.table("A step of an actor").where(beside="alone", runtime=OURS).rows
    made = Table("", {"case": "", "runtime": "", "ratio": ".2f"})
    for row in rows:
        made.add(f"{row['network']}, batch {row['batch']}", row["runtime"], row[RATIO])
    return made.pivot("case", "runtime", "ratio")


def _span(result: Result, runtime: str, batch: int) -> str:
    found = result.table("A step of an actor").where(beside="alone", runtime=runtime, batch=batch)
    ratios = [row[RATIO] for row in found.rows]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


ACTOR_SPEED = Topic(
    "actor_speed",
    "A step of an actor",
    lambda result: (
        f"int8: {_span(result, OURS[0], 1)} times as quick as the quickest peer with "
        f"one observation, {_span(result, OURS[0], 32)} in batches of 32; "
        f"int4: {_span(result, OURS[1], 1)} with one observation"
    ),
    "one thread, from Python and back, five policies, no learner beside it; peers: LiteRT, ONNX "
    "Runtime, PyTorch, TensorFlow",
    _steps,
    _ratios,
    Bars("time of the quickest peer / time of qgraph: above 1, qgraph is quicker", line=1.0),
)


def _updates(result: Result) -> Table:
    made = Table("", {"path": "", "bits": "", "ms": ".2f"})
    for row in result.tables[0].rows:
        made.add(row["path"], f"{row['bits']} bits", row["ms"])
    return made.pivot("path", "bits", "ms")


def _update(result: Result, path: str, bits: int) -> float:
    return float(result.tables[0].row(path=path, bits=bits)["ms"])


ACTORQ = "ActorQ's, in PyTorch"
WEIGHT_UPDATE = Topic(
    "weight_update",
    "A weight update",
    lambda result: (
        f"{_update(result, 'qgraph, the learner packs', 8):.1f} ms where the learner "
        f"packs, {_update(result, 'qgraph', 8):.1f} ms with a quantizer process; "
        f"ActorQ's path {_update(result, ACTORQ, 8):.0f} ms"
    ),
    "8 bits, a policy of three layers of 2048 (34 MB in float32), from the learner's step to the "
    "first action by it, two cores",
    first_table,
    _updates,
    Bars("ms from the learner's step to the first action", log=True),
)

TRANSPORT = Topic(
    "transport",
    "Carriers of a block",
    lambda result: "{:.2f} ms by shared memory, {:.2f} ms by ZeroMQ".format(
        *(
            result.tables[0].row(carrier=c)["read, all of it"]
            for c in ("shared memory (Channel)", "ZeroMQ")
        )
    ),
    "a block of 8.4 MB to two processes on one machine, until all of it is read",
    first_table,
    first_table,
    Bars("ms"),
)

PARTS = ("act", "pull", "deserialise", "load", "environment")


def _parts(result: Result) -> Table:
    made = Table("", {"actor": "", **dict.fromkeys(PARTS, ".1f")})
    for row in result.tables[0].where({"looks every": "30 steps"}).rows:
        made.add(f"{row['actor']}, {row['bits']} bits", *(row[part] for part in PARTS))
    return made


def _whole(result: Result, actor: str, bits: int) -> float:
    found = result.tables[0].row({"looks every": "30 steps", "actor": actor, "bits": bits})
    return float(found["in all"])


ACTOR_TIME = Topic(
    "actor_time",
    "What an actor's time goes into",
    lambda result: (
        f"1000 steps take {_whole(result, 'qgraph', 8):.0f} ms with 8 bits; "
        f"PyTorch {_whole(result, 'PyTorch, as ActorQ', 8):.0f} ms with 8 bits, "
        f"{_whole(result, 'PyTorch, as ActorQ', 32):.0f} ms in float32"
    ),
    "CartPole with a policy of three layers of 2048, a look for new weights every 30 steps",
    first_table,
    _parts,
    Bars("ms of 1000 steps, a look every 30 steps", stacked=True),
)


def _by_actors(result: Result) -> Table:
    table = result.table("Actors beside each other")
    made = Table("", {"actors": "d", "bits": "", "rate": ",.0f"})
    for row in table.rows:
        made.add(row["actors"], f"{row['bits']} bits", row["steps/s, all"])
    return made.pivot("actors", "bits", "rate")


MORE_ACTORS = Topic(
    "more_actors",
    "More actors than processors",
    lambda result: "4 actors make {:,.0f} steps/s with 8 bits, {:,.0f} in float32".format(
        *(result.tables[0].row(actors=4, bits=bits)["steps/s, all"] for bits in (8, 32))
    ),
    "two processors, CartPole with a policy of three layers of 2048",
    first_table,
    _by_actors,
    Lines("actors", "steps a second, all actors"),
)


def _ages(result: Result) -> Table:
    made = Table("", {"actors": "d", "series": "", "ms": ".0f"})
    rows = result.table("Prediction").where({"Gbit/s": 10, "bits": (32, 8)}).rows
    for name, heading in (("", "age, ms"), (", tree", "age in a tree, ms")):
        for row in rows:
            made.add(row["actors"], f"{row['bits']} bits{name}", row[heading])
    return made.pivot("actors", "series", "ms")


def _most(result: Result, heading: str) -> float:
    rows = result.table("Prediction")
    return float(rows.row({"Gbit/s": 10, "actors": 10_000, "bits": 8})[heading])


RL_MODEL = Topic(
    "rl_model",
    "A model of many actors",
    lambda result: (
        f"predicted, not measured: {_most(result, 'million steps/s'):.1f} million steps/s with "
        f"weights {_most(result, 'age, ms'):.0f} ms old, "
        f"{_most(result, 'age in a tree, ms'):.0f} ms if nodes pass blocks on"
    ),
    "10,000 actors with 8 bits, three layers of 1024, links of 10 Gbit/s",
    lambda result: result.table("Prediction"),
    _ages,
    Lines("actors", "ms since the weights of an action were published", log_x=True, log_y=True),
)


def _checked(result: Result) -> Table:
    return result.table("Steps a second")


def _errors(result: Result) -> list[float]:
    return [abs(row["error"]) for row in _checked(result).rows]


def _rates(result: Result) -> Table:
    made = Table("", {"actors": "d", "series": "", "steps/s": ".0f"})
    for row in _checked(result).rows:
        made.add(row["actors"], f"{row['bits']} bits, measured", row["real"])
        made.add(row["actors"], f"{row['bits']} bits, model", row["model"])
    return made.pivot("actors", "series", "steps/s")


RL_MODEL_CHECK = Topic(
    "rl_model_check",
    "The model of actors against real runs",
    lambda result: (
        f"steps a second of 1 to 8 actors: the model is {min(_errors(result)):.0%} to "
        f"{max(_errors(result)):.0%} off"
    ),
    "one machine, IMPALA in CartPole, three layers of 1024",
    _checked,
    _rates,
    Lines("actors", "steps a second, all actors"),
)

FEWER = ("int8", "int4")
NETWORKS = ("I (64, 64, 64)", "II (256, 256, 256)", "III (4096, 512, 1024)")


def _deployed(result: Result) -> Table:
    return result.tables[0].pivot("policy", "form", "times float32")


POLICIES_DEPLOYED = Topic(
    "policies_deployed",
    "Policies on small machines",
    lambda result: (
        "policy III: int8 {:.1f}, int4 {:.1f} times as quick as float32, in {:.1f} and "
        "{:.1f} MB instead of {:.1f}".format(
            *(result.tables[0].row(policy=NETWORKS[2], form=f)["times float32"] for f in FEWER),
            *(
                result.tables[0].row(policy=NETWORKS[2], form=f)["file, kB"] / 1000
                for f in (*FEWER, "float32")
            ),
        )
    ),
    "layers of 4096, 512 and 1024, batch 1, one thread, weights in memory",
    first_table,
    _deployed,
    Bars("times as quick as qgraph in float32", line=1.0),
)


def _sum(result: Result, heading: str) -> int:
    return sum(int(row[heading]) for row in result.tables[0].rows)


POLICIES_C = Topic(
    "policies_c",
    "Trained policies in C",
    lambda result: (
        f"{len(result.tables[0].rows)} policies: {_sum(result, 'different')} of "
        f"{_sum(result, 'actions'):,} actions in C differ from Python's, bit for bit"
    ),
    "static policies of 8 bits that act in their environments, compiled for x86-64",
    first_table,
    lambda result: result.tables[0].only("policy", "action in C, us", "in Python, us"),
    Bars("us an action", log=True),
)

COMPRESSION_NETWORKS = Topic(
    "compression_networks",
    "Networks of AcceRL's table 6",
    lambda result: "the original with int8: {:.1f} times as quick as qgraph in float32, "
    "{:.1f} times as quick as ONNX Runtime in float32".format(
        *(
            result.tables[0].row(network="original")[heading]
            for heading in ("int8, times", "int8, times of the peer")
        )
    ),
    "one observation of 84 x 84 x 4, one thread",
    lambda result: result.tables[0].only(
        "network", "float32, us", "int8, us", "int4, us", "ONNX Runtime fp32, us", "int8, times",
        "int4, times", "int8, times of the peer", "the paper's times",
    ),
    lambda result: result.tables[0].only(
        "network", "float32, us", "int8, us", "int4, us", "ONNX Runtime fp32, us"
    ),
    Bars("us an observation", log=True),
)  # fmt: skip

TOPICS = (
    ACTOR_SPEED, WEIGHT_UPDATE, TRANSPORT, ACTOR_TIME, MORE_ACTORS, RL_MODEL, RL_MODEL_CHECK,
    POLICIES_DEPLOYED, POLICIES_C, COMPRESSION_NETWORKS,
)  # fmt: skip
