"""Pass lists: text and back, what is wrong in one, and what is left of a recipe."""

import importlib
import json
import pkgutil
import re
import textwrap
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qgraph.transforms as transforms
from qgraph.errors import PassError, QGraphError, UsageError
from qgraph.ir.graph import Graph
from qgraph.pass_text import PASSES, parse_passes, print_passes
from qgraph.passes import Pass, PassManager
from qgraph.pipelines import USUAL, Pipeline, check_facts, pipeline_of
from qgraph.quant.exponents import parse_exponents
from qgraph.quant.plan import PLAIN, Plan, everything, parse_plan
from qgraph.quant.profile import Bits, Override, Profile, builtin_profiles, load_profile
from qgraph.recipes import CLEAN, FLOAT, FOLD, OPTIONAL, RECIPES, insert, prepare, static
from qgraph.rewrite.trace import Trace
from qgraph.transforms.absorb_biases import AbsorbBiases
from qgraph.transforms.equalize_channels import EqualizeChannels
from qgraph.transforms.fix_input_shape import FixInputShape
from qgraph.transforms.fold_constant_channels import FoldConstantChannels
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from qgraph.transforms.scale_inputs import ScaleInputs
from qgraph.transforms.wrap_accumulators import WrapAccumulators
from tests.helpers.own_passes import OfCodes, Picky, Rename

OWN = "tests.helpers.own_passes"
INT8 = load_profile("graffitist-int8")
shapes = st.lists(st.none() | st.integers(1, 500)).map(tuple)
sizes = st.floats(0, 1e6)
built_in = st.one_of(
    st.sampled_from([*FLOAT, *insert(INT8), *insert(Profile("mine", bits=Bits(weight=4)))]),
    st.builds(EqualizeChannels, st.booleans(), st.booleans()),
    st.builds(FoldConstantChannels, sizes, sizes),
    st.builds(AbsorbBiases, sizes),
    st.builds(FixInputShape, st.lists(st.tuples(st.text(), shapes)).map(tuple)),
    st.builds(ScaleInputs, st.dictionaries(st.text(), st.lists(st.integers(-99, 99)).map(tuple))),
    st.builds(WrapAccumulators, st.integers(2, 64)),
    st.builds(Rename, st.text(), st.sampled_from(["all", "first"])),
    st.builds(Picky, st.integers(0, 3)),
)


# -- text ----------------------------------------------------------------------------------------


@given(st.lists(built_in, min_size=1))
def test_a_printed_list_parses_back(passes):
    assert parse_passes(print_passes(passes)) == tuple(passes)


@pytest.mark.parametrize("recipe", [*RECIPES.values(), OPTIONAL], ids=[*RECIPES, "optional"])
def test_every_recipe_parses_back(recipe):
    assert parse_passes(print_passes(recipe)) == recipe


@pytest.mark.parametrize("name", builtin_profiles())
def test_a_built_in_profile_is_written_by_its_name(name):
    text = print_passes(insert(load_profile(name)))
    assert text == f"insert-quantizers{{profile={name}}},hoist-quantizers,mark-scale-groups"


def test_a_profile_of_ones_own_is_written_out():
    mine = Profile("a b", bits=Bits(weight=4, internal=None), overrides=(Override("x/*", 2),))
    text = print_passes(insert(mine))
    assert 'name="a b"' in text and "overrides=[{match=x/*, weight=2}]" in text
    assert parse_passes(text) == insert(mine)


def test_recipes_stand_for_their_passes_and_space_does_not_count():
    found = parse_passes(" float ,\n equalize-channels { powers_of_two = true } ")
    assert found == (*FLOAT, EqualizeChannels(powers_of_two=True))
    assert parse_passes("static", INT8) == static(INT8)


def test_every_pass_in_transforms_has_a_name_in_lists():
    kinds = set()
    for module in pkgutil.iter_modules(transforms.__path__):
        inside = vars(importlib.import_module(f"qgraph.transforms.{module.name}")).values()
        kinds |= {
            k
            for k in inside
            if isinstance(k, type) and issubclass(k, Pass) and k.__module__.endswith(module.name)
        }
    assert kinds == set(PASSES.values())


WRONG = {
    "fold-batchnorm": "unknown pass `fold-batchnorm`\n  did you mean `fold-batch-norm` or",
    "FOLD_BATCH_NORM": "did you mean `fold-batch-norm`",
    "xyzzy": "unknown pass `xyzzy`\n  `qgraph passes` lists all",
    "": "the pass list is empty",
    "float float": "pass list: expected `,` at character 7, found `float`",
    "float,{a=1}": "pass list: expected the name of a pass",
    "float{a=1}": "`float` is a recipe and has no options",
    "strip-unused{a=1}": "pass `strip-unused` has no option `a`\n  it takes no options",
    "equalize-channels{bias=true}": "pass `equalize-channels` has no option `bias`\n"
    "  did you mean `biases`? it takes biases (true or false), powers-of-two (true or false)",
    "equalize-channels{biases=yes}": "pass `equalize-channels`: option `biases` cannot be `yes`\n"
    "  legal: true or false",
    "equalize-channels{powers-of-two=true, powers_of_two=true}": "is given twice",
    "fold-constant-channels{ratio=-1}": "pass `fold-constant-channels`: option `ratio` cannot be "
    "-1.0\n  legal: at least 0",
    "fold-constant-channels{ratio=nan}": "option `ratio` cannot be nan",
    "fix-input-shape{shapes=[[x, 3]]}": "pass `fix-input-shape`: option `shapes` cannot be "
    "`[[x, 3]]`",
    "wrap-accumulators": "pass `wrap-accumulators`: option `bits` is missing\n"
    "  Bits of an accumulator. Legal: a whole number",
    "wrap-accumulators{bits=65}": "option `bits` cannot be 65\n  legal: 2 to 64",
    "insert-quantizers{profile=int9}": "int9: no such profile",
    "no.such.module:X": "pass `no.such.module:X` cannot be imported: No module named 'no'",
    f"{OWN}:Gone": "cannot be imported: module 'tests.helpers.own_passes' has no attribute 'Gone'",
    f"{OWN}:NotAPass": f"`{OWN}:NotAPass` is not a pass",
    f"{OWN}:Nameless": f"pass `{OWN}:Nameless` does not define `name`",
    "qgraph.passes:Pass": "pass `qgraph.passes:Pass` does not define `apply`",
    f"{OWN}:Rename{{only=last}}": "pass `rename`: option `only` cannot be `last`\n"
    "  legal: one of all, first",
    f"{OWN}:Picky{{size=9}}": "pass `picky` cannot be created: size is too large",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_a_list_is_named(text):
    with pytest.raises(QGraphError) as error:
        parse_passes(text)
    assert WRONG[text] in str(error.value)


@given(st.text())
def test_any_text_is_a_list_or_an_error_of_ours(text):
    with suppress(QGraphError):
        parse_passes(text)


def test_options_are_checked_in_python_too():
    with pytest.raises(UsageError, match="option `bits` cannot be 1"):
        WrapAccumulators(1)


# -- facts ---------------------------------------------------------------------------------------

UNFIT = {
    "equalize-channels": "pass `equalize-channels`, number 1 of the list, requires "
    "`batch-norm-folded`, which no pass before it ensures\n  add `fold-batch-norm` or "
    "`lower-batch-norm` before it",
    "fold-batch-norm,insert-quantizers": "pass `insert-quantizers`, number 2 of the "
    "list, requires `batch-norm-lowered`, which no pass before it ensures\n  add "
    "`lower-batch-norm` before it",
    "strip-unused,equalize-channels,lower-batch-norm": "number 2 of the list, requires "
    "`batch-norm-folded`, which no pass before it ensures\n  `lower-batch-norm` ensures it, but "
    "comes later: put it before this pass",
    "static,fold-batch-norm": "is for float graphs, and comes after `insert-quantizers`",
    "float,wrap-accumulators{bits=32}": "requires `calibrated`, which no pass before it ensures\n"
    "  calibration does",
    f"float,{OWN}:OfCodes": "requires `quantized`, which no pass before it ensures\n"
    "  `insert-quantizers` ensures it, but comes later: put it before this pass",
    "float,insert-quantizers": "the pass list ends without `scale-groups`\n"
    "  add `mark-scale-groups` before it",
}


@pytest.mark.parametrize("text", UNFIT)
def test_an_inconsistent_list_names_the_missing_pass(text):
    with pytest.raises(PassError) as error:
        pipeline_of(text, profile=INT8).check(INT8)
    assert UNFIT[text] in str(error.value)


def test_every_recipe_fits_together():
    for plan in (PLAIN, everything()):
        Pipeline().check(INT8)
        check_facts(static(INT8, plan), ("quantized", "scale-groups"))


def test_facts_of_the_graph_count():
    with pytest.raises(PassError):
        check_facts([EqualizeChannels()])
    check_facts([EqualizeChannels()], facts={"batch-norm-folded"})


def test_a_pass_on_quantized_graphs_may_stand_behind_them():
    made = pipeline_of(f"static,{OWN}:OfCodes", profile=INT8)
    made.check(INT8)
    assert made.static(INT8) == (*static(INT8), OfCodes())


# -- pipelines -----------------------------------------------------------------------------------


def test_the_usual_pipeline_is_the_recipe():
    for plan in (PLAIN, everything()):
        assert Pipeline().static(INT8, plan) == static(INT8, plan)
        assert Pipeline().reduced(plan) == plan


def test_quantizers_are_inserted_after_a_list_without_them():
    made = pipeline_of("float,equalize-channels")
    assert made.prepare(PLAIN) == (*FLOAT, EqualizeChannels())
    assert made.insert(INT8) == insert(INT8)


def test_what_quantizers_require_follows_a_list():
    listed = parse_passes("fold-batch-norm,equalize-channels{biases=true}")
    made = pipeline_of(listed)
    made.check(INT8)
    assert made.floating(PLAIN) == listed and made.added() == (LowerBatchNorm(),)
    assert made.static(INT8) == (*listed, LowerBatchNorm(), *insert(INT8))
    assert made.notes() == ["quantizers require `lower-batch-norm`, added to the pass list"]
    for complete in (
        USUAL,
        pipeline_of("float"),
        pipeline_of("static"),
        pipeline_of(without="fold-flattens"),
    ):
        assert complete.added() == () and complete.notes() == []


def test_a_pass_that_is_left_out_is_not_added():
    left_out = pipeline_of("fold-batch-norm", "lower-batch-norm")
    assert left_out.added() == ()
    with pytest.raises(PassError, match="requires `batch-norm-lowered`"):
        left_out.check(INT8)


def test_a_pass_that_is_left_out_is_left_out_everywhere():
    made = pipeline_of(without="recognize-activations, hoist-quantizers")
    kept = [s.name for s in made.static(INT8)]
    wanted = [s.name for s in static(INT8)]
    assert kept == [n for n in wanted if n not in ("recognize-activations", "hoist-quantizers")]
    assert made.kept(CLEAN) + made.kept(FOLD) == made.prepare(PLAIN)
    with pytest.raises(UsageError, match="unknown pass `recognise-activations`") as error:
        pipeline_of(without="recognise-activations")
    assert "`recognize-activations`" in str(error.value)


def test_the_profile_of_the_run_is_that_of_the_list():
    other = load_profile("graffitist-int4")
    made = pipeline_of("static", profile=INT8)
    assert made.insert(other) == insert(other)  # as when bits are chosen layer by layer
    with pytest.raises(UsageError, match="pass `insert-quantizers` has another profile"):
        pipeline_of("float,insert-quantizers{profile=graffitist-int4}", profile=INT8)


PASS_STEPS = {"constant_channels", "equalize", "absorb", "scale_inputs"}


def test_a_list_leaves_a_plan_the_steps_that_are_no_passes():
    made, whole = pipeline_of("float"), everything()
    kept = made.reduced(whole)
    changed = {f.name for f in fields(Plan) if getattr(kept, f.name) != getattr(whole, f.name)}
    assert changed == PASS_STEPS and made.allows(kept)
    assert prepare(kept) == FLOAT


@pytest.mark.parametrize(
    ("plan", "pipeline"),
    [
        ("equalize=biases", pipeline_of("float")),
        ("scale-inputs", pipeline_of("float")),
        ("absorb", pipeline_of(without="absorb-biases")),
        ("constant-channels=0.1", pipeline_of(without="prune-constant-channels")),
        ("scale-inputs", pipeline_of(without="scale-inputs")),
    ],
    ids=str,
)
def test_a_plan_that_asks_for_what_is_left_out_is_refused(plan, pipeline):
    step = re.match(r"[\w-]+", plan)[0]
    with pytest.raises(UsageError, match=f"plan: `{step}` adds passes that are"):
        pipeline.check_plan(parse_plan(plan))
    pipeline.check_plan(replace(PLAIN, method="mse", reconstruct=True))


# -- custom passes -------------------------------------------------------------------------------


def relus() -> Graph:
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    g.outputs["y"] = g.add("relu", g.add("relu", x, name="a"), name="b")
    return g


def test_a_pass_of_ones_own_runs_and_is_logged():
    g, trace = relus(), Trace()
    PassManager(parse_passes(f'{OWN}:Rename{{suffix="/mine"}}')).run(g, trace)
    assert g.outputs["y"] == "b/mine" and set(g.nodes) == {"x", "a/mine", "b/mine"}
    assert [(r.pass_name, r.rule, r.node) for r in trace.rewrites] == [
        ("rename", "rename", "a"),
        ("rename", "rename", "b"),
    ]


def test_an_exception_of_a_pass_of_ones_own_is_named_as_its():
    with pytest.raises(PassError, match=r"pass `broken` failed: key 'lost' is missing"):
        PassManager(parse_passes(f"{OWN}:Broken")).run(relus())


# -- the documentation -----------------------------------------------------------------------------

PAGE = (Path(__file__).parents[1] / "docs/pipelines.md").read_text("utf-8")


def test_the_lists_of_the_page_parse_and_fit():
    lists = [text.strip("'") for text in re.findall(r"--passes ([^\s`]+)", PAGE)]
    mine = [text for text in lists if "mine:" in text]
    assert len(lists) == 5 and len(mine) == 1
    for text in {*lists} - {*mine}:
        pipeline_of(text).check(INT8)
    for text in re.findall(r"--without (\S+)", PAGE):
        assert pipeline_of(without=text).without == set(text.split(","))
    text = re.findall(r"^    (fold-batch-norm,.*)$", PAGE, re.M)[0]
    assert parse_passes(text)[1] == EqualizeChannels(biases=True, powers_of_two=False)


def test_the_pass_of_the_page_runs(tmp_path, monkeypatch):
    code = PAGE[PAGE.index("    from dataclasses") : PAGE.index("If this class is in `mine.py`")]
    (tmp_path / "mine_of_the_page.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    g, trace = Graph("net"), Trace()
    w = g.const(np.float32([[0.25, -3], [0.5, 1]]), "w")
    g.outputs["y"] = g.add("matmul", g.input("x", "float32", (None, 2)), w)
    PassManager(parse_passes("mine_of_the_page:ClipWeights{limit=0.5}")).run(g, trace)
    assert g.constant("w").tolist() == [[0.25, -0.5], [0.5, 0.5]]
    assert [(r.pass_name, r.node) for r in trace.rewrites] == [("clip-weights", "w")]


def test_the_exponents_of_the_page_are_read():
    text = textwrap.dedent(PAGE[PAGE.index("    {\n") : PAGE.index("A tensor's value is")])
    assert parse_exponents(json.loads(text)).dump().split() == text.split()
