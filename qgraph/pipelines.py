"""Pass lists, and the changes that they make to a recipe (`qgraph.pass_text` has their text)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from qgraph.errors import PassError, UsageError
from qgraph.option_text import options_of
from qgraph.pass_text import PASSES, parse_passes, unknown_pass
from qgraph.passes import Pass
from qgraph.quant.plan import PLAIN, Plan, plan_steps, step_name
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT, insert, prepare
from qgraph.transforms.insert_quantizers import InsertQuantizers
from qgraph.transforms.scale_inputs import ScaleInputs

QUANTIZED, SCALE_GROUPS = "quantized", "scale-groups"
# Facts that no pass of a list establishes, and the step that does.
WITHOUT_PASS = MappingProxyType({"calibrated": "calibration does, after all passes of a list"})


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
                hint=_ensuring_pass_hint(fact, passes[i:]),
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
        raise PassError(f"the pass list ends without `{fact}`", hint=_ensuring_pass_hint(fact, ()))


def _ensuring_pass_hint(fact: str, later: Sequence[Pass]) -> str:
    if fact in WITHOUT_PASS:
        return f"{WITHOUT_PASS[fact]}: leave the pass out"
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
        check_facts(self.static(profile), (QUANTIZED, SCALE_GROUPS), facts)

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
            raise unknown_pass(name, there)
    return Pipeline(None if listed is None else tuple(listed), frozenset(names))


def _for_profile(step: Pass, profile: Profile) -> Pass:
    """The pass with `profile`, if it has such an option."""
    own = [f.name for f in options_of(type(step)) if isinstance(getattr(step, f.name), Profile)]
    return replace(step, **dict.fromkeys(own, profile)) if own else step


def _first_quantizing(steps: Sequence[Pass]) -> int:
    """The index of the first pass that quantizes; the length if there is none."""
    return next((i for i, step in enumerate(steps) if QUANTIZED in step.ensures), len(steps))
