"""Plans as text: what is written is read back, what is wrong is named with what is there."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.quant.plan import PLAIN, Plan, everything, parse_plan, step_name


def values(step):
    """Values of a field of a plan, from its default and choices alone."""
    if isinstance(step.default, bool):
        return st.booleans()
    if isinstance(step.default, float):
        return st.floats(0, allow_infinity=False)
    return st.sampled_from(step.metadata["key"].type.choices)


PLANS = st.builds(Plan, **{step.name: values(step) for step in fields(Plan)})


@given(PLANS)
def test_what_is_written_is_read_back(plan):
    assert parse_plan(plan.spec()) == plan


@given(PLANS, st.randoms())
def test_order_and_spaces_do_not_count(plan, random):
    steps = plan.spec().split(",")
    random.shuffle(steps)
    assert parse_plan(" , ".join(steps)) == plan


@given(PLANS)
def test_every_step_can_be_written_as_text(plan):
    """Also those that are the default."""
    said = []
    for step in fields(plan):
        value = getattr(plan, step.name)
        words = {True: "yes", False: "no"} if isinstance(value, bool) else {}
        said.append(f"{step_name(step)}={words.get(value, value) or 'no'}")
    assert parse_plan(",".join(said)) == plan


def test_examples():
    text = "constant-channels=0.1,equalize=biases,method=mse,reconstruct,correct-bias"
    plan = Plan(0.1, "biases", method="mse", reconstruct=True, correct_bias=True)
    assert parse_plan(text) == plan and plan.spec() == text
    assert PLAIN.spec() == "plain" and parse_plan(" plain ") == PLAIN
    assert parse_plan("equalize=no,reconstruct=no,constant-channels=no") == PLAIN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan: `` lacks a step"),
        ("reconstruct,", "lacks a step"),
        ("plain,reconstruct", "unknown step `plain`"),
        ("equalise=biases", "unknown step `equalise`"),
        ("constant_channels=0.1", "unknown step `constant_channels`"),
        ("equalize", "`equalize` needs a value"),
        ("equalize=", "`equalize` needs a value"),
        ("equalize=bias", "`equalize` cannot be `bias`"),
        ("method=no", "`method` cannot be `no`"),
        ("constant-channels", "`constant-channels` needs a value"),
        ("constant-channels=few", "`constant-channels` cannot be `few`"),
        ("constant-channels=-1", "`constant-channels` cannot be `-1.0`"),
        ("constant-channels=nan", "`constant-channels` cannot be `nan`"),
        ("reconstruct=2", "`reconstruct` cannot be `2`"),
        ("reconstruct,reconstruct", "`reconstruct` occurs twice"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(UsageError) as error:
        parse_plan(text)
    assert message in error.value.message


def test_hints_list_what_is_there():
    with pytest.raises(UsageError) as error:
        parse_plan("smooth")
    assert all(step_name(step) in error.value.hint for step in fields(Plan))
    assert (
        "equalize=no|noise|measured|weights|biases" in error.value.hint
        and "plain" in error.value.hint
    )
    with pytest.raises(UsageError) as error:
        parse_plan("method=mean")
    assert error.value.hint == "like method=kl_j|max|percentile|mse|output"


def test_a_plan_in_python_is_checked_too():
    with pytest.raises(UsageError, match="equalize"):
        Plan(equalize="bias")


def test_everything_leaves_no_step_out():
    assert len(everything().spec().split(",")) == len(fields(Plan))
