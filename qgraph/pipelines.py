"""Pass lists as text and as values, and the changes that they make to a recipe.

    fold-batch-norm,equalize-channels{biases=true, powers-of-two=false}
    float,my_package.passes:MyPass{strength=0.5}

A list names passes by their names, recipes by theirs (all of their passes), and custom passes
by `module:Class`. Options are the fields of a pass's dataclass (`qgraph.option_text`).
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass, replace
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import get_type_hints

from qgraph.errors import PassError, QGraphError, UsageError, reason_of
from qgraph.option_text import (
    Codec,
    Mismatch,
    TextCursor,
    Tree,
    default_of,
    legal,
    option_name,
    options_of,
)
from qgraph.passes import Pass, declared
from qgraph.quant.plan import PLAIN, Plan, plan_steps, step_name
from qgraph.quant.profile import Profile, builtin_profiles, load_profile
from qgraph.recipes import FLOAT, OPTIONAL, RECIPES, insert, prepare
from qgraph.transforms.insert_quantizers import InsertQuantizers
from qgraph.transforms.scale_inputs import ScaleInputs

QUANTIZED, SCALED = "quantized", "scale-groups"
# Facts that no pass of a list establishes, and the step that does.
ELSEWHERE = MappingProxyType({"calibrated": "calibration does, after all passes of a list"})

PASSES: Mapping[str, type[Pass]] = MappingProxyType(
    {step.name: type(step) for recipe in (*RECIPES.values(), OPTIONAL) for step in recipe}
)


@cache
def _builtin_profile(name: str) -> Profile:
    return load_profile(name)


def _profile_name(profile: Profile) -> str | None:
    known = profile.name in builtin_profiles() and _builtin_profile(profile.name) == profile
    return profile.name if known else None


CODEC = Codec(loaders={Profile: load_profile}, names={Profile: _profile_name})


def legal_values(kind: object) -> str:
    """The legal values of an option of a pass, in words.

    Args:
        kind: The type of the option.

    Returns:
        The words.

    Examples:
        >>> legal_values(bool)
        'true or false'
    """
    if kind is Profile:
        return f"{', '.join(builtin_profiles())}, a YAML file, or the keys in braces"
    return legal(kind)


# -- values to text -------------------------------------------------------------------------


def print_passes(passes: Iterable[Pass]) -> str:
    """Write passes as text.

    Args:
        passes: The passes.

    Returns:
        Text that `parse_passes` reads as the same passes.

    Raises:
        UsageError: An option has a type that text does not have.

    Examples:
        >>> print_passes(parse_passes("fold-batch-norm,strip-unused"))
        'fold-batch-norm,strip-unused'
    """
    return ",".join(map(print_pass, passes))


def describe_passes(passes: Iterable[Pass]) -> str:
    """Describe passes for messages: as `print_passes`, without options that text cannot express.

    Args:
        passes: The passes.

    Returns:
        The text.

    Examples:
        >>> describe_passes(parse_passes("fold-batch-norm"))
        'fold-batch-norm'
    """
    return ",".join(_described(step) for step in passes)


def _described(step: Pass) -> str:
    try:
        return print_pass(step)
    except UsageError:
        return str(step)


def print_pass(step: Pass) -> str:
    """Write one pass as text.

    Args:
        step: The pass.

    Returns:
        Text that `parse_passes` reads.

    Raises:
        UsageError: An option has a type that text does not have.

    Examples:
        >>> print_pass(parse_passes("fold-batch-norm")[0])
        'fold-batch-norm'
    """
    kind = type(step)
    own = PASSES.get(step.name) is not kind
    name = f"{kind.__module__}:{kind.__qualname__}" if own else step.name
    try:
        return name + CODEC.write_fields(step)
    except Mismatch as error:
        raise UsageError(f"pass `{step.name}`: {error}") from None


# -- text to values -------------------------------------------------------------------------


def parse_passes(text: str, profile: Profile | None = None) -> tuple[Pass, ...]:
    """Read a list of passes from text.

    A class named by `module:Class` is imported, which runs its module.

    Args:
        text: Names of passes and recipes, with options in braces.
        profile: The value of options that are profiles and are not given.

    Returns:
        The passes.

    Raises:
        UsageError: A pass or an option is unknown, or a value is not legal.

    Examples:
        >>> [step.name for step in parse_passes("fold-batch-norm,equalize-channels{biases=true}")]
        ['fold-batch-norm', 'equalize-channels']
    """
    reader, said = TextCursor(text, "pass list"), list[tuple[str, dict[str, Tree] | None]]()
    while not reader.ended:
        name = reader.word("the name of a pass").text
        said.append((name, reader.options() if reader.takes("{") else None))
        if not reader.takes(",") and not reader.ended:
            raise reader.error("`,`")
    if not said:
        raise UsageError("the pass list is empty", hint=f"like {print_passes(FLOAT[:3])}")
    return tuple(step for name, given in said for step in _named(name, given, profile))


def _named(name: str, given: Mapping[str, Tree] | None, profile: Profile | None) -> Sequence[Pass]:
    if name in RECIPES:
        if given is not None:
            raise UsageError(f"`{name}` is a recipe and has no options")
        quantizes = name == "static" and profile is not None
        return (*FLOAT, *insert(profile)) if quantizes and profile else RECIPES[name]
    kind = _own_class(name) if ":" in name else PASSES.get(name)
    if kind is None:
        raise _unknown(name, [*PASSES, *RECIPES])
    return [_made(kind, given or {}, profile)]


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}? " if near else ""
    return UsageError(
        f"unknown pass `{name}`",
        hint=f"{hint}`qgraph passes` lists all; module:Class is a pass of your own",
    )


def _own_class(name: str) -> type[Pass]:
    module, _, inside = name.partition(":")
    try:
        found: object = import_module(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except QGraphError:
        raise
    except Exception as error:  # of the module, which may do anything
        raise UsageError(
            f"pass `{name}` cannot be imported: {reason_of(error)}",
            hint="give module:Class; the module must be on Python's path or in this directory",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Pass) and is_dataclass(found)):
        raise UsageError(
            f"`{name}` is not a pass",
            hint="a pass is a frozen dataclass that inherits from qgraph.passes.Pass",
        )
    if inspect.isabstract(found) or not isinstance(getattr(found, "name", None), str):
        lacks = sorted(found.__abstractmethods__) or ["name"]
        raise UsageError(f"pass `{name}` does not define {', '.join(f'`{x}`' for x in lacks)}")
    return found


def _made(kind: type[Pass], given: Mapping[str, Tree], profile: Profile | None) -> Pass:
    """A pass with options from text. Raises UsageError naming the option."""
    options = {field.name: field for field in options_of(kind)}
    types, values = _types_of(kind), dict[str, object]()
    for name, tree in given.items():
        own = name.replace("-", "_")
        if own not in options:
            raise _no_option(kind, name, types)
        if own in values:
            raise UsageError(f"pass `{kind.name}`: option `{name}` is given twice")
        try:
            values[own] = CODEC.read(tree, types[own])
        except Mismatch as error:
            raise UsageError(
                f"pass `{kind.name}`: option `{name}` cannot be `{_shown(tree)}`",
                hint=f"legal: {error}",
            ) from None
    for name, field in options.items():
        if profile is not None and types[name] is Profile and name not in values:
            values[name] = profile
        elif name not in values and default_of(field) is MISSING:
            raise UsageError(
                f"pass `{kind.name}`: option `{option_name(name)}` is missing",
                hint=f"{declared(field).meaning} Legal: {legal_values(types[name])}".strip(),
            )
    try:
        return kind(**values)
    except QGraphError:
        raise
    except Exception as error:  # of a custom pass
        raise UsageError(f"pass `{kind.name}` cannot be created: {reason_of(error)}") from error


def _types_of(kind: type[Pass]) -> Mapping[str, object]:
    try:
        return get_type_hints(kind)
    except Exception as error:  # names that are imported for type checkers only, for one
        raise UsageError(f"pass `{kind.name}`: the types of its options: {error}") from error


def _no_option(kind: type[Pass], name: str, types: Mapping[str, object]) -> UsageError:
    known = [option_name(field.name) for field in options_of(kind)]
    takes = ", ".join(f"{n} ({legal_values(types[n.replace('-', '_')])})" for n in known)
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"did you mean `{near[0]}`? it takes {takes}" if near else f"it takes {takes}"
    return UsageError(
        f"pass `{kind.name}` has no option `{name}`",
        hint=hint if known else "it takes no options",
    )


def _shown(tree: Tree) -> str:
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{k}={_shown(v)}' for k, v in tree.items())}}}"
    return f"[{', '.join(map(_shown, tree))}]" if isinstance(tree, list) else str(tree)


# -- what a list may be ---------------------------------------------------------------------


def check_facts(
    passes: Sequence[Pass], wanted: Iterable[str] = (), facts: Iterable[str] = ()
) -> None:
    """Check that each pass finds the facts that it requires.

    A pass for float graphs must not follow a pass that quantizes. Passes for quantized graphs
    require the fact `quantized`.

    Args:
        passes: The passes, in order.
        wanted: Facts that must hold at the end.
        facts: Facts of the graph at the beginning.

    Raises:
        PassError: A fact is missing. It names the pass and what ensures the fact.

    Examples:
        >>> check_facts(parse_passes("float"))
    """
    facts = set(facts)
    for i, step in enumerate(passes):
        for fact in sorted(step.requires - facts):
            raise PassError(
                f"pass `{step.title}`, number {i + 1} of the list, requires `{fact}`, "
                "which no pass before it ensures",
                hint=_who_ensures(fact, passes[i:]),
            )
        if QUANTIZED in facts and QUANTIZED not in step.requires | step.ensures:
            first = next(p for p in passes if QUANTIZED in p.ensures)
            raise PassError(
                f"pass `{step.title}`, number {i + 1} of the list, is for float graphs, and comes "
                f"after `{first.title}`",
                hint=f"put it before `{first.title}`; a custom pass for quantized graphs has "
                f"`{QUANTIZED}` in its `requires`",
            )
        facts |= step.ensures
    for fact in sorted(set(wanted) - facts):
        raise PassError(f"the pass list ends without `{fact}`", hint=_who_ensures(fact, ()))


def _who_ensures(fact: str, later: Sequence[Pass]) -> str:
    if fact in ELSEWHERE:
        return f"{ELSEWHERE[fact]}: leave the pass out"
    names = [name for name, kind in PASSES.items() if fact in kind.ensures]
    late = [step.title for step in later if fact in step.ensures]
    if late:
        return f"`{late[0]}` ensures it, but comes later: put it before this pass"
    listed = " or ".join(f"`{name}`" for name in names)
    return f"add {listed} before it" if names else "no pass ensures it"


@dataclass(frozen=True)
class Pipeline:
    """Changes that a user makes to the recipe.

    Passes that quantizers require are added to a list of passes that does not quantize (`added`).

    Attributes:
        passes: Passes instead of the float recipe and of the passes that a plan adds; if one of
            them quantizes, they replace the whole recipe. None for the recipe.
        without: Names of passes to leave out.

    Examples:
        >>> [step.name for step in Pipeline(parse_passes("strip-unused")).floating(Plan())]
        ['strip-unused']
    """

    passes: tuple[Pass, ...] | None = None
    without: frozenset[str] = frozenset()

    def kept(self, recipe: Iterable[Pass]) -> tuple[Pass, ...]:
        """The passes that are not left out.

        Args:
            recipe: Passes.

        Returns:
            Those that stay.
        """
        return tuple(step for step in recipe if step.name not in self.without)

    def floating(self, plan: Plan) -> tuple[Pass, ...]:
        """The passes on float graphs: those of the list, else those of the recipe.

        Args:
            plan: The plan, whose passes are part of the recipe.

        Returns:
            The passes.
        """
        steps = self.kept(prepare(plan) if self.passes is None else self.passes)
        return steps[: _first_quantizing(steps)]

    def added(self) -> tuple[Pass, ...]:
        """The passes of the float recipe that quantizers require and the list does not have.

        Returns:
            The passes.
        """
        steps = self.kept(self.passes or ())
        if self.passes is None or _first_quantizing(steps) < len(steps):
            return ()
        facts = frozenset[str]().union(*(step.ensures for step in steps))
        lacking = InsertQuantizers.requires - facts
        return self.kept(step for step in FLOAT if step.ensures & lacking)

    def prepare(self, plan: Plan) -> tuple[Pass, ...]:
        """The passes before quantizers.

        Args:
            plan: As in `floating`.

        Returns:
            The passes.
        """
        return (*self.floating(plan), *self.added())

    def notes(self) -> list[str]:
        """Notes for the user, about passes that were added to the list.

        Returns:
            The notes.
        """
        names = [f"`{step.name}`" for step in self.added()]
        return [f"quantizers require {', '.join(names)}, added to the pass list"] if names else []

    def insert(self, profile: Profile) -> tuple[Pass, ...]:
        """The passes that quantize, and those after them.

        Args:
            profile: The profile of the quantizers.

        Returns:
            The passes.
        """
        steps = self.kept(self.passes or ())
        own = steps[_first_quantizing(steps) :]
        return tuple(_for_profile(s, profile) for s in own) or self.kept(insert(profile))

    def static(self, profile: Profile, plan: Plan = PLAIN) -> tuple[Pass, ...]:
        """All passes.

        Args:
            profile: As in `insert`.
            plan: As in `floating`.

        Returns:
            The passes.
        """
        return (*self.prepare(plan), *self.insert(profile))

    def check(self, profile: Profile, facts: Iterable[str] = ()) -> None:
        """Check that each pass finds the facts that it requires.

        Args:
            profile: As in `insert`.
            facts: Facts of the graph at the beginning.

        Raises:
            PassError: A fact is missing.
        """
        if self.added():  # errors must not name passes that the user did not list
            check_facts(self.floating(PLAIN), facts=facts)
        check_facts(self.static(profile), (QUANTIZED, SCALED), facts)

    def allows(self, plan: Plan) -> bool:
        """Whether a plan adds only allowed passes: none that is left out, none to a given list.

        Args:
            plan: The plan.

        Returns:
            Whether it does.
        """
        added = {step.name for step in prepare(plan) if step not in FLOAT}
        if plan.scale_inputs:
            added.add(ScaleInputs.name)
        return not (added if self.passes is not None else added & self.without)

    def reduced(self, plan: Plan) -> Plan:
        """A plan without the steps that are not allowed.

        Args:
            plan: The plan.

        Returns:
            The plan with the allowed steps.
        """
        for step in plan_steps():
            alone = replace(PLAIN, **{step.name: getattr(plan, step.name)})
            if not self.allows(alone):
                plan = replace(plan, **{step.name: getattr(PLAIN, step.name)})
        return plan

    def check_plan(self, plan: Plan) -> None:
        """Check a plan that the user gave.

        Args:
            plan: The plan.

        Raises:
            UsageError: A step is not allowed.
        """
        kept = self.reduced(plan)
        for step in plan_steps():
            if getattr(kept, step.name) != getattr(plan, step.name):
                listed = self.passes is not None
                raise UsageError(
                    f"plan: `{step_name(step)}` adds passes that "
                    + ("are not in the pass list" if listed else "are left out"),
                    hint="write the passes themselves into the list (`qgraph passes`)"
                    if listed
                    else "leave the step out of the plan, or the pass out of --without",
                )


USUAL = Pipeline()


def pipeline_of(
    passes: str | Sequence[Pass] | None = None,
    without: str | Sequence[str] = (),
    profile: Profile | None = None,
) -> Pipeline:
    """A pipeline from text or values.

    Args:
        passes: A list of passes, or text for `parse_passes`; None for the recipe.
        without: Names of passes to leave out; as text, separated by commas.
        profile: The profile of the run.

    Returns:
        The pipeline.

    Raises:
        UsageError: The list cannot be read, a pass has another profile than the run, or a pass to
            leave out is unknown.

    Examples:
        >>> sorted(pipeline_of(without="fold-batch-norm").without)
        ['fold-batch-norm']
    """
    listed = parse_passes(passes, profile) if isinstance(passes, str) else passes
    for step in listed or ():
        if profile is not None and _for_profile(step, profile) != step:
            raise UsageError(
                f"pass `{step.name}` has another profile than the run, which has `{profile.name}`",
                hint="leave the profile out of the pass list, and give it to the run",
            )
    parts = without.split(",") if isinstance(without, str) else without
    names = [part.strip() for part in parts if part.strip()]
    there = [*PASSES, *(step.name for step in listed or ())]
    for name in names:
        if name not in there:
            raise _unknown(name, there)
    return Pipeline(None if listed is None else tuple(listed), frozenset(names))


def _for_profile(step: Pass, profile: Profile) -> Pass:
    """The pass with `profile`, if it has such an option."""
    own = [f.name for f in options_of(type(step)) if isinstance(getattr(step, f.name), Profile)]
    return replace(step, **dict.fromkeys(own, profile)) if own else step


def _first_quantizing(steps: Sequence[Pass]) -> int:
    """The index of the first pass that quantizes; the length if there is none."""
    return next((i for i, step in enumerate(steps) if QUANTIZED in step.ensures), len(steps))
