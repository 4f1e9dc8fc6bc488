"""Target profiles: the number formats of the hardware, read from YAML and checked.

Each key is declared in its field (`qgraph/quant/keys.py`); docs/profiles.md lists them and
`qgraph profiles` explains them. Every key is optional; defaults are those of `graffitist-int8`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

import yaml
from yaml.error import MarkedYAMLError

from qgraph.errors import ProfileError, first_line
from qgraph.ir.types import OVERFLOWS, ROUNDINGS, Overflow, Role, Rounding
from qgraph.names import path_text
from qgraph.quant.key_types import ChoiceType, SpanType, SwitchType, TextType, WholeType
from qgraph.quant.keys import (
    Declared,
    ListType,
    SectionType,
    check,
    documented,
    key,
    leaves,
    read,
    required_key,
    write,
)

MAX_BYTES = 1 << 20  # bytes of a profile
MAX_DEPTH = 20
WIDTH = WholeType(2, 16)
AS_LAYERS = ChoiceType(ROUNDINGS, unset="as layers")
AS_ACTIVATIONS = WholeType(2, 16, unset="as many as activations have")


@documented
@dataclass(frozen=True)
class Bits:
    """Width of each class of tensor.

    Raises:
        ProfileError: A value is not legal.

    Examples:
        >>> Bits(weight=4).activation
        8
    """

    input: int = key(8, WIDTH, "inputs of the network, and floats that enter its integer part")
    activation: int = key(8, WIDTH, "results of layers and of other integer ops")
    weight: int = key(8, WIDTH, "weights of layers")
    weight_ends: int = key(8, WIDTH, "weights of the first and the last layers")
    bias: int = key(16, WholeType(2, 32), "biases")
    internal: int | None = key(
        16,
        WholeType(2, 32, unset="no such stage: biases are added at the accumulator's scale"),
        "the stage inside a layer, between its accumulator and its bias; layer norms use at most "
        "16 bits",
    )
    scale: int = key(16, WIDTH, "constant factors, and multipliers that remain of a batch norm")
    constant: int = key(8, WIDTH, "reciprocals of average pools")
    slope: int = key(16, WIDTH, "slopes of leaky ReLU")
    output: int | None = key(
        None, AS_ACTIVATIONS, "outputs of the network, and inputs of float ops"
    )
    table: int | None = key(None, AS_ACTIVATIONS, "indices of tables")
    norm: int | None = key(None, AS_ACTIVATIONS, "results of layer norms and their activations")

    def __post_init__(self) -> None:
        check(self)


USUAL_BITS = Bits()


@documented
@dataclass(frozen=True)
class Override:
    """Bits of the layers whose names match a shell pattern.

    Raises:
        ProfileError: A value is not legal.

    Examples:
        >>> Override("conv*", weight=4).weight
        4
    """

    match: str = required_key(
        TextType(example="a layer name or pattern"),
        "a layer's name, or a shell pattern of names; the first matching override applies",
    )
    weight: int | None = key(None, WIDTH, "bits of the weights of these layers")
    activation: int | None = key(None, WIDTH, "bits of the results of these layers")

    def __post_init__(self) -> None:
        check(self)


@documented
@dataclass(frozen=True)
class Profile:
    """The number formats of a fixed-point target.

    Raises:
        ProfileError: A value is not legal.

    Examples:
        >>> Profile("narrow", bits=Bits(weight=4)).bits.weight
        4
        >>> load_profile("graffitist-int8").rounding
        'half_even'
    """

    name: str = required_key(TextType(), "name of the target; the file's name by default")
    description: str = key("", TextType(), "one line about the target")
    bits: Bits = key(USUAL_BITS, SectionType(Bits), "width of each class of tensor")
    per_channel: bool = key(
        False,
        SwitchType(),
        "weights have one scale for each output channel, not one for each tensor",
    )
    scaled_inputs: bool = key(
        False, SwitchType(), "each feature of an input may have its own power of two"
    )
    signed_activations: bool = key(
        False,
        SwitchType(),
        "inputs and results have signed codes even if they are never negative, as after ReLU",
    )
    rounding: Rounding = key(
        Rounding.HALF_EVEN,
        ChoiceType(ROUNDINGS),
        "rounding of results of layers and of all ops that are not listed below; short form: "
        "`rounding: floor`",
        path="rounding.layers",
        short=True,
    )
    rounding_additions: Rounding | None = key(
        None,
        AS_LAYERS,
        "rounding of sums and differences of two tensors",
        path="rounding.additions",
    )
    rounding_products: Rounding | None = key(
        None,
        AS_LAYERS,
        "rounding of products of two tensors, or of a tensor and constant factors, element by "
        "element",
        path="rounding.products",
    )
    rounding_constants: Rounding | None = key(
        None,
        AS_LAYERS,
        "rounding of weights, biases, other constants and entries of tables",
        path="rounding.constants",
    )
    rounding_inputs: Rounding | None = key(
        None,
        AS_LAYERS,
        "rounding of floats that enter the integer part, which the host computes",
        path="rounding.inputs",
    )
    overflow: Overflow = key(
        Overflow.SATURATE,
        ChoiceType(OVERFLOWS),
        "behaviour of activations outside their range",
    )
    accumulator_bits: int = key(
        32, WholeType(8, 64), "width of the sums of a layer", path="accumulator.bits"
    )
    accumulator_wraps: bool = key(
        False,
        SwitchType(words=("error", "wrap")),
        "behaviour of a layer whose sums can exceed the accumulator",
        path="accumulator.overflow",
    )
    shift: tuple[int, int] = key(
        (-31, 62), SpanType(-62, 62), "legal right shifts of a requantization, from least to most"
    )
    overrides: tuple[Override, ...] = key(
        (), ListType(SectionType(Override)), "bits of single layers"
    )

    def __post_init__(self) -> None:
        check(self)

    def rounding_of(
        self, role: Role, *, addition: bool = False, product: bool = False, table: bool = False
    ) -> Rounding:
        """The rounding of a quantizer.

        Args:
            role: The role of the quantizer.
            addition: Whether it follows a sum or difference of two tensors.
            product: Whether it follows a product, element by element.
            table: Whether it rounds the entries of a table.

        Returns:
            The rounding.
        """
        if role.of_constant or table:
            chosen = self.rounding_constants
        elif role in (Role.INPUT, Role.INDEX):
            chosen = self.rounding_inputs
        elif addition:
            chosen = self.rounding_additions
        else:
            chosen = self.rounding_products if product else None
        return chosen or self.rounding

    def override(self, layer: str) -> Override:
        """The first override that matches a layer.

        Args:
            layer: Name of the layer.

        Returns:
            The override; one without bits if none matches.
        """
        found = (o for o in self.overrides if fnmatchcase(layer, o.match))
        return next(found, Override(layer))


def profile_keys() -> Iterator[Declared]:
    """Every key of a profile.

    Returns:
        The declarations, each with its path in YAML.

    Examples:
        >>> next(key.path for key in profile_keys() if key.name == "weight")
        'bits.weight'
    """
    return leaves(Profile)


def builtin_profiles() -> tuple[str, ...]:
    """Names of the built-in profiles.

    Returns:
        The names, sorted.

    Examples:
        >>> "graffitist-int8" in builtin_profiles()
        True
    """
    folder = resources.files("qgraph.quant") / "profiles"
    return tuple(
        sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))
    )


def load_profile(name_or_path: str | Path) -> Profile:
    """Load a profile.

    Args:
        name_or_path: Name of a built-in profile, or path of a YAML file.

    Returns:
        The profile.

    Raises:
        ProfileError: The profile or a key is unknown, or a value is not legal.

    Examples:
        >>> load_profile("graffitist-int8").bits.bias
        16
    """
    text = str(name_or_path)
    if text in builtin_profiles():
        source = (resources.files("qgraph.quant") / "profiles" / f"{text}.yaml").read_text("utf-8")
    else:
        source = _source(name_or_path)
    try:
        data = yaml.load(source, _Loader)
    except Exception as error:  # malformed dates and numbers, besides errors of yaml itself
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = first_line(getattr(error, "problem", None) or error)
        raise ProfileError(f"not YAML{where}: {problem}", node=text) from None
    return parse_profile(data, text)


def _source(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            source = file.read(MAX_BYTES + 1)
        if len(source) > MAX_BYTES:
            raise ProfileError(f"larger than {MAX_BYTES:,} bytes: not a profile", node=str(path))
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
    """Loads YAML without aliases, which can expand to billions of values, and without deep nesting.

    A duplicate key is an error: YAML would use the last one.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise MarkedYAMLError(problem="profiles cannot have aliases", problem_mark=mark)
        if self.depth >= MAX_DEPTH:
            raise MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=mark)
        self.depth += 1
        try:
            node = super().compose_node(parent, index)
        finally:
            self.depth -= 1
        _check_keys(node)
        return node


def _check_keys(node: yaml.Node | None) -> None:
    """Raise MarkedYAMLError for a key that occurs twice in a mapping."""
    known: set[str] = set()
    for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key_node, yaml.ScalarNode):
            if key_node.value in known:
                problem = f"`{key_node.value}` is given twice"
                raise MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            known.add(key_node.value)


def dump_profile(profile: Profile) -> str:
    """Write a profile as YAML.

    Args:
        profile: The profile.

    Returns:
        Text that `load_profile` reads as the same profile.

    Examples:
        >>> dump_profile(Profile("mine")).splitlines()[0]
        'name: mine'
    """
    text: str = yaml.safe_dump(write(profile), sort_keys=False, width=100)
    return text


def parse_profile(data: object, where: str = "profile") -> Profile:
    """Read a profile from plain data, such as YAML or JSON has.

    Args:
        data: A mapping of keys to values.
        where: Path or name of the source: for errors, and for the name if `data` has none.

    Returns:
        The profile.

    Raises:
        ProfileError: A key is unknown or has a value that is not legal. It names the key.

    Examples:
        >>> parse_profile({"name": "mine", "bits": {"weight": 4}}).bits.weight
        4
    """
    try:
        return read(Profile, data, what="the profile", name=path_text(Path(where).stem))
    except ProfileError as error:
        raise ProfileError(error.message, node=where, hint=error.hint) from None
