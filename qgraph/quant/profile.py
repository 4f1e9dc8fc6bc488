"""Target profiles: what the hardware holds, read from YAML and checked.

Every key is optional; what is left out has the value of the `graffitist-int8` profile:

    name: my-dsp
    description: what it is
    bits: {input: 8, activation: 8, weight: 8, weight_ends: 8, bias: 16, internal: 16,
           scale: 16, constant: 8, slope: 16, output: null, table: null, norm: null}
    per_channel: false          # weights only
    scaled_inputs: false        # an input may have a power of two for each of its features
    rounding: half_even         # half_up, half_away, floor
    overflow: saturate          # or wrap
    accumulator: {bits: 32, overflow: error}      # or wrap
    shift: [-31, 62]            # legal right shifts of a requantization
    overrides:                  # the first match counts; names are shell patterns of layer names
      - {match: "head/*", weight: 8}
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from yaml.error import MarkedYAMLError

from qgraph.errors import ProfileError, first_line
from qgraph.ir.types import OVERFLOWS, ROUNDINGS
from qgraph.names import path_text

LARGEST = 1 << 20  # bytes of a profile
DEEPEST = 20


@dataclass(frozen=True)
class Bits:
    """Width of each class of tensor. `internal` None means no stage between accumulator and bias.

    `weight_ends` is for the weights of the first and last layers, `scale` for multipliers that
    are left of a batch norm, `constant` for average-pool reciprocals, `slope` for leaky ReLU.
    `output` is for what leaves the network, `table` for what a table is looked up by, `norm` for
    what comes out of a layer norm: None where they are as wide as any activation.
    """

    input: int = 8
    activation: int = 8
    weight: int = 8
    weight_ends: int = 8
    bias: int = 16
    internal: int | None = 16
    scale: int = 16
    constant: int = 8
    slope: int = 16
    output: int | None = None
    table: int | None = None
    norm: int | None = None


@dataclass(frozen=True)
class Override:
    """Bits for the layers whose name matches a shell pattern."""

    match: str
    weight: int | None = None
    activation: int | None = None


@dataclass(frozen=True)
class Profile:
    """A fixed-point target."""

    name: str
    description: str = ""
    bits: Bits = Bits()
    per_channel: bool = False
    scaled_inputs: bool = False
    rounding: str = "half_even"
    overflow: str = "saturate"
    accumulator_bits: int = 32
    accumulator_wraps: bool = False
    shift: tuple[int, int] = (-31, 62)
    overrides: tuple[Override, ...] = ()

    def override(self, layer: str) -> Override:
        """The override for a layer, or an empty one."""
        found = (o for o in self.overrides if fnmatchcase(layer, o.match))
        return next(found, Override(layer))


def builtin_profiles() -> tuple[str, ...]:
    folder = resources.files("qgraph.quant") / "profiles"
    return tuple(
        sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))
    )


def load_profile(name_or_path: str | Path) -> Profile:
    """A built-in profile by name, or a YAML file by path. Raises ProfileError."""
    text = str(name_or_path)
    if text in builtin_profiles():
        source = (resources.files("qgraph.quant") / "profiles" / f"{text}.yaml").read_text("utf-8")
    else:
        source = _source(name_or_path)
    try:
        data = yaml.load(source, _Loader)
    except Exception as error:  # dates and numbers that are none, beside what yaml itself raises
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = first_line(getattr(error, "problem", None) or error)
        raise ProfileError(f"not YAML{where}: {problem}", node=text) from None
    return parse_profile(data, text)


def _source(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            source = file.read(LARGEST + 1)
        if len(source) > LARGEST:
            raise ProfileError(f"larger than {LARGEST:,} bytes: not a profile", node=str(path))
        return source.decode()
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise ProfileError("not YAML, not even text", node=str(path)) from None
        raise ProfileError(
            f"no such profile: {getattr(error, 'strerror', None) or error}",
            node=str(path),
            hint=f"built in: {', '.join(builtin_profiles())}; or give a YAML file",
        ) from None


class _Loader(yaml.SafeLoader):
    """YAML without aliases, which can stand for billions of values, and not deeply nested."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise MarkedYAMLError(problem="aliases are not read in profiles", problem_mark=mark)
        if self.depth >= DEEPEST:
            raise MarkedYAMLError(problem=f"nested more than {DEEPEST} deep", problem_mark=mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def dump_profile(profile: Profile) -> str:
    """The YAML that `load_profile` reads back as the same profile."""
    wraps = "wrap" if profile.accumulator_wraps else "error"
    data = {
        "name": profile.name,
        "description": profile.description,
        "bits": asdict(profile.bits),
        "per_channel": profile.per_channel,
        "scaled_inputs": profile.scaled_inputs,
        "rounding": profile.rounding,
        "overflow": profile.overflow,
        "accumulator": {"bits": profile.accumulator_bits, "overflow": wraps},
        "shift": list(profile.shift),
        "overrides": [
            {key: value for key, value in asdict(o).items() if value is not None}
            for o in profile.overrides
        ],
    }
    text: str = yaml.safe_dump(data, sort_keys=False, width=100)
    return text


def parse_profile(data: Any, where: str = "profile") -> Profile:
    """A profile from plain data. Raises ProfileError naming the key that is wrong."""
    top = _mapping(data, where, "the profile")
    check = _Checker(where)
    check.known(top, {"name", "description", "bits", "per_channel", "scaled_inputs", "rounding",
                      "overflow", "accumulator", "shift", "overrides"}, "")  # fmt: skip
    accumulator = _mapping(top.get("accumulator", {}), where, "accumulator")
    check.known(accumulator, {"bits", "overflow"}, "accumulator.")
    wraps = check.choice(
        accumulator.get("overflow", "error"), ("error", "wrap"), "accumulator.overflow"
    )
    return Profile(
        name=check.text(top.get("name", path_text(Path(where).stem)), "name"),
        description=check.text(top.get("description", ""), "description"),
        bits=check.bits(_mapping(top.get("bits", {}), where, "bits")),
        per_channel=check.flag(top.get("per_channel", False), "per_channel"),
        scaled_inputs=check.flag(top.get("scaled_inputs", False), "scaled_inputs"),
        rounding=check.choice(top.get("rounding", "half_even"), ROUNDINGS, "rounding"),
        overflow=check.choice(top.get("overflow", "saturate"), OVERFLOWS, "overflow"),
        accumulator_bits=check.integer(accumulator.get("bits", 32), 8, 64, "accumulator.bits"),
        accumulator_wraps=wraps == "wrap",
        shift=check.shift(top.get("shift", (-31, 62))),
        overrides=tuple(
            check.override(o, i) for i, o in enumerate(check.items(top.get("overrides", [])))
        ),
    )


def _short(value: Any) -> str:
    """`value` as Python writes it, cut to a length that a message can have."""
    text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _mapping(value: Any, where: str, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ProfileError(f"{what} must be a mapping, found {_short(value)}", node=where)
    return value


@dataclass(frozen=True)
class _Checker:
    where: str

    def fail(self, key: str, expected: str, found: Any) -> ProfileError:
        return ProfileError(f"`{key}` must be {expected}, found {_short(found)}", node=self.where)

    def known(self, data: Mapping[str, Any], keys: set[str], prefix: str) -> None:
        unknown = [k for k in data if k not in keys]
        if unknown:
            raise ProfileError(
                f"unknown key `{prefix}{str(unknown[0])[:60]}`",
                node=self.where,
                hint=f"known: {', '.join(sorted(keys))}",
            )

    def text(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise self.fail(key, "text", value)
        return value

    def flag(self, value: Any, key: str) -> bool:
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def choice(self, value: Any, choices: tuple[str, ...], key: str) -> str:
        if value not in choices:
            raise self.fail(key, f"one of {', '.join(choices)}", value)
        return str(value)

    def integer(self, value: Any, low: int, high: int, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(key, f"a whole number from {low} to {high}", value)
        return value

    def items(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail("overrides", "a list", value)
        return value

    def bits(self, data: Mapping[str, Any]) -> Bits:
        self.known(data, {f.name for f in fields(Bits)}, "bits.")
        checked: dict[str, Any] = {}
        for key, value in data.items():
            if key in ("internal", "output", "table", "norm") and value is None:
                checked[key] = None
            else:
                checked[key] = self.integer(value, 2, 32 if key == "bias" else 16, f"bits.{key}")
        return Bits(**checked)

    def shift(self, value: Any) -> tuple[int, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise self.fail("shift", "two numbers, [least, most]", value)
        least, most = (self.integer(v, -62, 62, "shift") for v in value)
        if least > most:
            raise self.fail("shift", "[least, most] in rising order", value)
        return least, most

    def override(self, value: Any, index: int) -> Override:
        key = f"overrides[{index}]"
        data = _mapping(value, self.where, key)
        self.known(data, {f.name for f in fields(Override)}, f"{key}.")
        if "match" not in data:
            raise self.fail(f"{key}.match", "a layer name or pattern", None)
        bits = {k: self.integer(v, 2, 16, f"{key}.{k}") for k, v in data.items() if k != "match"}
        return Override(self.text(data["match"], f"{key}.match"), **bits)
