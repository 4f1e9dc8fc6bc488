"""One page of results, and the parts of its data that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date

from benchmarks.result import MEASURED, Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Kind
from qgraph.words import counted

NOT_RECORDED = "processor not recorded"
# The source of tables from a page of an earlier version, as the index of results explains.
TRANSCRIBED = "[transcribed](index.md#transcribed-data)"
TableOf = Callable[[Result], Table]


@dataclass(frozen=True)
class Topic:
    """The page `docs/results/NAME.md` of `benchmarks/results/NAME.json`.

    headline: the figure that the index shows, made from the data; condition: when it holds. table,
    figure: what the page shows of the data; kind: how the figure is drawn.
    """

    name: str
    title: str
    headline: Callable[[Result], str]
    condition: str
    table: TableOf
    figure: TableOf
    kind: Kind

    @property
    def image(self) -> str:
        """The path of the figure, from the repository's root."""
        return f"docs/images/results/{self.name}.svg"

    @property
    def page(self) -> str:
        """The path of the page, from the repository's root."""
        return f"docs/results/{self.name}.md"


def first_table(result: Result) -> Table:
    """The first table of the data, as it is."""
    return result.tables[0]


def generated(topic: Topic, result: Result) -> str:
    """The part of a page that comes from its data: table, figure, and their provenance."""
    table = topic.table(result)
    notes = "".join(f"- {note}\n" for note in (*table.notes, *result.remarks))
    image = f"![{topic.title}](../images/results/{topic.name}.svg)\n"
    parts = (f"{table.markdown()}\n", notes, image, provenance(topic, result))
    return "\n".join(part for part in parts if part)


def provenance(topic: Topic, result: Result) -> str:
    """List the command, the data, the date, the machine, versions and seeds."""
    machine = result.machine
    processor = ", ".join((machine.processor, *machine.instructions))
    place = f"{processor}; {counted(machine.cores, 'core')}"
    if machine.load is not None:
        place += f"; mean load {machine.load}"
    source = MEASURED if result.source == MEASURED else TRANSCRIBED
    lines = [
        f"**Script**: `{result.command}`",
        f"**Data**: `benchmarks/results/{topic.name}.json`, {source}",
        f"**Measured**: {_day(result.date)}, commit {result.commit}",
        f"**Machine**: {place}",
    ]
    if result.versions:
        lines.append(f"**Versions**: {', '.join(f'{k} {v}' for k, v in result.versions.items())}")
    if result.seeds:
        lines.append(f"**Seeds**: {_listed(result.seeds)}")
    return "".join(f"- {line}\n" for line in lines)


def _listed(seeds: tuple[int, ...]) -> str:
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 2 and seeds == tuple(range(first, last + 1)):
        return f"{first} to {last}"
    return ", ".join(map(str, seeds))


def _day(iso: str) -> str:
    found = date.fromisoformat(iso)
    return f"{found.day} {found:%B %Y}"


def index_table(topics: Mapping[Topic, Result]) -> str:
    """A row for each topic: its headline figure, the condition and the machine."""
    table = Table("Topics", dict.fromkeys(("topic", "measured", "condition", "machine"), ""))
    for topic, result in topics.items():
        link = f"[{topic.title}]({topic.name}.md)"
        machine = result.machine
        busy = "" if machine.load is None else f", mean load {machine.load}"
        known = f"{machine.processor}, {counted(machine.cores, 'core')}{busy}"
        place = None if machine.processor == NOT_RECORDED else known
        table.add(link, topic.headline(result), topic.condition, place)
    return table.markdown() + "\n"
