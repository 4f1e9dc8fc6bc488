"""Settings of a run: each is declared once, and wrong values are refused by name."""

import ast
import inspect
import json
import math
import re
import string
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer

from qgraph import rl
from qgraph.cli.rl import app
from qgraph.cli.rl.train import train as command
from qgraph.cli.rl.train_options import flags_of, settings_from
from qgraph.errors import LoadError, UsageError
from qgraph.rl.agents import AGENTS, LearnerPrecision, config_class, config_for
from qgraph.rl.agents.dqn.config import DqnConfig
from qgraph.rl.agents.registry import check_fits, config_classes, config_from_json
from qgraph.rl.agents.sac.config import SacConfig
from qgraph.rl.agents.setting import Panel
from qgraph.rl.environments import Actions
from qgraph.rl.half.methods import METHODS
from qgraph.rl.setting_text import SettingText
from tests.helpers.cli import run as qgraph

ALGORITHMS = list(AGENTS)
# What an earlier version wrote for `--algo impala --env CartPole-v1 --actor-bits 8 --spi 1`: the
# settings of all algorithms, under other names.
EARLIER = {
    "algorithm": "impala", "environment": "CartPole-v1", "steps": 200000, "actors": 1,
    "actor_bits": 8, "broadcast_bits": 8, "first_bits": None, "last_bits": None, "spi": 1.0,
    "least": 1000, "capacity": 1000000, "actor_update_period": 5, "publish_every": 1,
    "synchronous": False, "on_demand": False, "quantizer": True, "in_process": False, "ray": "",
    "nodes": 1, "double": True, "dueling": False, "alpha": 0.0, "n": 5, "gamma": 0.99,
    "correct": "vtrace,is", "entropy": 0.005, "value": 0.25, "replicas": 1, "reward_scale": 0.05,
    "reward_clip": 0.0, "hidden": [64, 64], "layer_norm": True, "critic": [512, 512, 256],
    "atoms": 51, "value_limit": 150.0, "rate": 0.0003, "batch": 160, "target_period": 100,
    "tau": 0.005, "explore": 0.05, "explore_steps": 0, "explore_hold": 1, "half": False,
    "precision": "float32", "methods": [], "significand": None, "evaluate_every": 250,
    "episodes": 10, "energy": False, "compress": "", "monitor": "", "monitor_every": 10, "seed": 0,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_field_is_a_setting_with_an_option(algorithm):
    kind = config_class(algorithm)
    own = kind.fields()
    assert [*own] == [part.name for part in fields(kind) if part.name != "environment"]
    parameters = inspect.signature(command).parameters
    for name, each in own.items():
        assert name in parameters and (each.setting.former_name or name) in parameters
        assert each.setting.help.endswith(".") and each.setting.panel in Panel
        assert each.read(each.default) == each.default  # which is in its own range


# What issue after issue asked for, by the names of today.
ASKED_FOR = {
    "dqn": "discount replay_capacity target_update_period epsilon epsilon_steps epsilon_hold",
    "d4pg": "critic_hidden_sizes discount replay_capacity atoms v_max target_update_period sigma",
    "sac": "critic_hidden_sizes discount replay_capacity tau target_update_period",
    "impala": "discount entropy_cost value_cost",
}
OTHER_VALUES = {
    "country": "FRA",
    "ray": "auto", "compress": "quantize(8)", "monitor": "watch", "correction": "vtrace",
    "float16_methods": "all", "significand": 5, "precision": "float16", "broadcast_bits": 4,
    "first_bits": 4, "last_bits": 4, "actor_bits": 4, "train_bits": 4, "train_bits_delay": 5,
    "recurrent": "lstm",
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_setting_can_be_set_on_the_command_line(algorithm):
    command = typer.main.get_command(app).commands["train"]
    own = config_class(algorithm).fields()
    assert set(ASKED_FOR.get(algorithm, "").split()) <= own.keys()
    for name, each in own.items():
        other = OTHER_VALUES[name] if name in OTHER_VALUES else _other(each.default)
        on, _, off = flags_of(each).partition("/")
        words = [on if other else off] if each.kind is bool else [on, _typed(other)]
        given = command.make_context("train", ["--algo", algorithm, *words]).params
        found = settings_from({key: v for key, v in given.items() if key in (*own, "half")})
        assert found.keys() == {name}
        assert each.read(found[name]) == each.read(other) != each.default


def _other(default):
    if isinstance(default, bool):
        return not default
    if isinstance(default, tuple):
        return (*default, 7)
    return default + 1 if isinstance(default, int) else default / 2 or 0.25


def _typed(value):
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_a_setting_has_one_type_in_all_algorithms():
    kinds = {}
    for kind in config_classes():
        for name, each in kind.fields().items():
            assert kinds.setdefault(name, (each.kind, each.several)) == (each.kind, each.several)


def test_the_command_takes_earlier_names_and_the_shorthands():
    given = {"n": 3, "hidden": "8,4", "discount": 0.9, "tau": None, "prioritized": True}
    found = settings_from(given)
    assert found == {"n": 3, "hidden": "8,4", "discount": 0.9, "priority_exponent": 0.6}
    config = config_for("dqn", "Any-v0", **found)
    assert (config.n_step, config.hidden_sizes, config.priority_exponent) == (3, (8, 4), 0.6)
    assert settings_from({"prioritized": False}) == {"priority_exponent": 0.0}
    assert settings_from({"mixed_bfloat16": False}) == {"precision": LearnerPrecision.FLOAT32}
    assert settings_from({"half": "mixed,softplus-fix"}) == {
        "precision": LearnerPrecision.MIXED_FLOAT16,
        "float16_methods": ("loss-scaling", "softplus-fix"),
    }


@pytest.mark.parametrize(
    ("algorithm", "earlier", "today"),
    [
        ("dqn", {"explore": 0.3, "explore_hold": 2, "n": 4, "half": True},
         {"epsilon": 0.3, "epsilon_hold": 2, "n_step": 4, "precision": "mixed_bfloat16"}),
        ("d4pg", {"explore": 0.3, "value_limit": 7.0, "critic": (8,)},
         {"sigma": 0.3, "v_max": 7.0, "critic_hidden_sizes": (8,)}),
        ("sac", {"rate": 0.1, "precision": "mixed", "methods": ("loss-scaling",)},
         {"learning_rate": 0.1, "precision": "mixed_float16", "float16_methods": "loss-scaling"}),
        ("impala", {"n": 4, "correct": "vtrace", "spi": 1.0, "double": True},
         {"unroll_length": 4, "correction": "vtrace"}),
    ],
)  # fmt: skip
def test_earlier_names_and_values_mean_the_same(algorithm, earlier, today):
    assert config_for(algorithm, "Any-v0", **earlier) == config_for(algorithm, "Any-v0", **today)


def test_two_names_of_one_setting_exclude_each_other():
    with pytest.raises(UsageError, match="discount is given twice, also as `discount`"):
        config_for("dqn", "Any-v0", gamma=0.9, discount=0.9)
    with pytest.raises(UsageError, match="precision is float16, but bfloat16 was requested too"):
        config_for("sac", "Any-v0", half=True, precision="float16")


def test_options_json_of_earlier_versions_is_read():
    assert config_from_json(EARLIER) == config_for("impala", "CartPole-v1", actor_bits=8)
    bfloat16 = config_from_json({**EARLIER, "half": True, "algorithm": "d4pg", "explore": 0.2})
    assert bfloat16.precision is LearnerPrecision.MIXED_BFLOAT16 and bfloat16.sigma == 0.2
    with pytest.raises(LoadError, match="unknown setting `warp`"):
        config_from_json({**EARLIER, "warp": 9})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "ALE/Pong-v5", "Any-v0"])
def test_a_config_comes_back_from_json(algorithm, environment):
    config = config_for(algorithm, environment, hidden_sizes=(9, 7), actor_bits=8)
    text = json.dumps(config.as_json())
    assert config_from_json(json.loads(text)) == config and config.broadcast_bits == 8


def test_tasks_have_defaults_that_a_config_made_directly_has_not():
    assert config_for("dqn", "ALE/Pong-v5").reward_clip == 1
    assert config_for("dqn", "ALE/Pong-v5", reward_clip=0.0).reward_clip == 0
    assert config_for("impala", "ALE/Breakout-v5").reward_clip == 1
    assert DqnConfig("ALE/Pong-v5").reward_clip == config_for("dqn", "Pong").reward_clip == 0
    assert config_for("sac", "dm_control:cheetah-run:pixels").reward_scale == 0.1
    assert config_for("sac", "dm_control:cheetah-run").reward_scale == 1
    for kind in config_classes():
        for task in kind.tasks:
            kind.for_task(task)  # its names and values are legal


NONSENSE = [
    ("dqn", {"discount": 1.5}, "discount must be in (0, 1], not 1.5"),
    ("dqn", {"discount": 0.0}, "discount must be in (0, 1], not 0"),
    ("dqn", {"discount": math.nan}, "discount must be in (0, 1], not nan"),
    ("dqn", {"learning_rate": 0.0}, "learning_rate must be a finite number above 0, not 0"),
    ("dqn", {"learning_rate": -1e-4}, "learning_rate must be"),
    ("dqn", {"learning_rate": math.inf}, "learning_rate must be"),
    ("dqn", {"samples_per_insert": 0.0}, "samples_per_insert must be"),
    ("dqn", {"epsilon": 1.5}, "epsilon must be in [0, 1], not 1.5"),
    ("dqn", {"epsilon_steps": -1}, "epsilon_steps must be at least 0, not -1"),
    ("dqn", {"epsilon_hold": 0}, "epsilon_hold must be at least 1"),
    ("dqn", {"priority_exponent": 2.0}, "priority_exponent must be"),
    ("dqn", {"reward_clip": -1.0}, "reward_clip must be"),
    ("dqn", {"hidden_sizes": (16, 0)}, "hidden_sizes must be at least 1, not 0"),
    ("dqn", {"hidden_sizes": "16,x"}, "hidden_sizes must be a list of whole numbers"),
    ("dqn", {"hidden_sizes": 16}, "hidden_sizes must be a list, not 16"),
    ("dqn", {"seed": -1}, "seed must be"), ("dqn", {"steps": 0}, "steps must be"),
    ("dqn", {"actors": 0}, "actors must be"), ("dqn", {"nodes": 0}, "nodes must be"),
    ("dqn", {"batch_size": True}, "batch_size must be a whole number"),
    ("dqn", {"steps": 2000.5}, "steps must be a whole number, not 2000.5"),
    ("dqn", {"steps": "2000"}, "steps must be a whole number, not `2000`"),
    ("dqn", {"double_q": 1}, "double_q must be true or false"),
    ("dqn", {"actor_bits": 9}, "actor_bits must be one of 32, 16, 8, 7, 6, 5, 4, 3, 2, not 9"),
    ("dqn", {"first_bits": 1}, "first_bits must be one of"),
    ("dqn", {"last_bits": True}, "last_bits must be one of"),
    ("dqn", {"min_replay_size": 50_000, "replay_capacity": 9, "steps": 99_000},
     "min_replay_size is 50000, but replay_capacity is only 9"),
    ("dqn", {"steps": 900}, "steps 900 is too few: learning starts after 1000 steps"),
    ("dqn", {"nodes": 2}, "nodes 2 needs ray"),
    ("dqn", {"nodes": 2, "ray": "auto"}, "nodes is 2, but actors is only 1"),
    ("dqn", {"monitor_every": 3}, "monitor and monitor_every need compression"),
    ("dqn", {"compress": " "}, "compress is empty"),
    ("d4pg", {"atoms": 1}, "atoms must be at least 2, not 1"),
    ("d4pg", {"v_max": math.inf}, "v_max must be a finite number above 0"),
    ("d4pg", {"critic_hidden_sizes": (0,)}, "critic_hidden_sizes must be"),
    ("sac", {"tau": 0.0}, "tau must be in (0, 1], not 0"),
    ("sac", {"significand": 11}, "significand must be in [1, 10], not 11"),
    ("sac", {"float16_methods": "hadm"}, "unknown method of float16 `hadm`"),
    ("impala", {"reward_scale": math.nan}, "reward_scale must be"),
    ("impala", {"entropy_cost": -1.0}, "entropy_cost must be"),
    ("impala", {"unroll_length": 7}, "batch_size 160 is not a multiple of trajectories of 7"),
    ("impala", {"correction": "vtrace,"}, "is not a list of correctors"),
    # of another algorithm
    ("dqn", {"critic_hidden_sizes": (8,)}, "dqn has no setting critic_hidden_sizes"),
    ("dqn", {"entropy": 0.5}, "dqn has no setting entropy_cost\n  it is for impala, ppo"),
    ("impala", {"replay_capacity": 10}, "impala has no setting replay_capacity"),
    ("impala", {"samples_per_insert": 2.0}, "impala has no setting samples_per_insert"),
    ("sac", {"v_max": 3.0}, "sac has no setting v_max\n  it is for d4pg"),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "given", "said"), NONSENSE, ids=str)
def test_nonsense_is_refused_by_name(algorithm, given, said):
    with pytest.raises(UsageError) as caught:
        config_for(algorithm, "Any-v0", **given)
    assert said in str(caught.value)


def test_a_setting_of_others_that_changes_nothing_is_taken():
    plain = config_for("impala", "Any-v0")
    given = {"samples_per_insert": 1.0, "dueling": False, "priority_exponent": 0.0, "double": True}
    assert config_for("impala", "Any-v0", **given) == plain


@pytest.mark.parametrize("wrong", ["bfloat16", "half", "fp16", "mixed"])
def test_number_formats_have_one_name_each(wrong):
    for kind in config_classes():
        with pytest.raises(UsageError, match=f"precision must be one of float32.*, not `{wrong}`"):
            kind("Any-v0", precision=wrong)


def test_learners_without_bfloat16_or_float16_refuse_them():
    with pytest.raises(UsageError, match="precision float16 is not supported by DQN") as caught:
        DqnConfig("Any-v0", precision="float16")
    assert caught.value.hint == "choose float32 or mixed_bfloat16"
    with pytest.raises(UsageError, match="precision mixed_bfloat16 is not supported by SAC"):
        SacConfig("Any-v0", precision="mixed_bfloat16")
    with pytest.raises(UsageError, match="significand needs precision float16"):
        SacConfig("Any-v0", precision="mixed_float16", significand=5)
    whole = SacConfig("Any-v0", precision="float16", float16_methods="all")
    assert whole.precision is LearnerPrecision.FLOAT16 and whole.float16_methods == METHODS
    assert replace(whole, float16_methods=("none",)).float16_methods == ()


def test_unknown_settings_are_refused_with_near_names():
    with pytest.raises(UsageError, match="unknown setting `discont`\n  did you mean discount"):
        config_for("dqn", "CartPole-v1", discont=0.9)
    with pytest.raises(UsageError, match="unknown algorithm `dqm`; choose dqn, "):
        config_for("dqm", "CartPole-v1")


def test_text_names_settings_as_its_reader_does():
    text = SettingText("{discount} is {value}", value="{odd}")
    assert text == "discount is {odd}"
    assert text.spelled(lambda name: f"--{name}") == "--discount is {odd}"


def test_errors_of_algorithm_and_environment_name_their_flags():
    error = UsageError(SettingText("{algorithm} {environment}"), hint=SettingText("{on_demand}"))
    typer.main.get_command(app).commands["train"].spell_flags(error)
    assert (error.message, error.hint) == ("--algo --env", "--pull")


def test_errors_of_every_verb_name_its_flags():
    error = UsageError(SettingText("{form} {environment}"), hint=SettingText("{input_shapes}"))
    typer.main.get_command(app).commands["quantize"].spell_flags(error)
    assert (error.message, error.hint) == ("--form --env", "--input-shape")


def test_errors_name_settings_that_exist():
    """A name in braces is a value that is given beside the text, or a setting."""
    known = {"algorithm", "environment"} | {n for kind in config_classes() for n in kind.fields()}
    verbs = typer.main.get_command(app).commands.values()
    known |= {parameter.name for verb in verbs for parameter in verb.params}
    count = 0
    for path in Path(rl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if not (called and node.func.id == "SettingText"):
                continue
            if not isinstance(node.args[0], ast.Constant):
                continue
            count += 1
            text, given = node.args[0].value, {word.arg for word in node.keywords}
            named = {name for _, name, _, _ in string.Formatter().parse(text) if name}
            assert named - given <= known and given <= named, (path.name, text)
            assert "--" not in text
    assert count > 20


def _strings(path):
    """Strings of a module except docstrings and the declared flags of settings."""
    tree, apart = ast.parse(path.read_text()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) or (isinstance(node, ast.keyword) and node.arg == "flags"):
            apart |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value


def test_texts_of_the_library_name_no_flags():
    """They name fields, which the command line replaces by its flags."""
    for path in Path(rl.__file__).parent.rglob("*.py"):
        for text in _strings(path):
            assert not re.search(r"--[a-z]", text), (path.name, text)


@pytest.mark.parametrize(
    ("algorithm", "said", "complaint"),
    [
        ("dqn", "--discount 1.5", "--discount must be in (0, 1], not 1.5"),
        ("dqn", "--gamma 0", "--discount must be in (0, 1], not 0"),
        ("dqn", "--entropy 0.5", "dqn has no setting --entropy-cost\n  it is for impala"),
        ("impala", "--prioritized", "impala has no setting --priority-exponent"),
        ("dqn", "--monitor-every 3", "--monitor and --monitor-every need compression"),
        ("dqn", "--steps 1000", "--steps 1000 is too few: learning starts after 1000 steps"),
        ("dqn", "--least 2000 --capacity 1500", "--min-replay-size is 2000, but --replay-capacity"),
        ("dqn", "--hidden x", "--hidden-sizes must be a list of whole numbers"),
        ("dqn", "--prioritized --alpha 0.5", "so does --priority-exponent"),
        ("dqn", "--compress quantize(8) --sync", "--compress cannot be combined with --sync"),
        ("dqn", "--half all", "--precision float16 is not supported by DQN"),
        ("sac", "--half all --mixed-bfloat16", "--half and --mixed-bfloat16 exclude each other"),
        ("sac", "--mixed-bfloat16", "--precision mixed_bfloat16 is not supported by SAC"),
    ],
)
def test_the_command_line_names_flags(tmp_path, algorithm, said, complaint):
    out = tmp_path / "run"
    environment = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    options = ("--algo", algorithm, "--env", environment, "-o", out)
    found = qgraph("rl", "train", *options, *said.split())
    assert found.code == 2 and complaint in found.err
    assert not out.exists()


def test_numbers_of_numpy_and_whole_floats_become_plain_numbers():
    config = config_for(
        "dqn", "CartPole-v1", steps=np.int64(5000), learning_rate=np.float32(0.5),
        hidden_sizes=(np.int32(8),), actor_bits=8.0,
    )  # fmt: skip
    found = config.as_json()
    assert (found["steps"], found["learning_rate"], found["hidden_sizes"]) == (5000, 0.5, [8])
    assert config_from_json(found) == config and type(config.actor_bits) is int


def test_a_seed_that_tensorflow_does_not_take_is_refused():
    assert config_for("td3", "Pendulum-v1", seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(UsageError, match="seed must be in"):
        config_for("td3", "Pendulum-v1", seed=2**63)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", [(), (5, 4), (2, 9, 3), (9, 2, 3), (3, 3, 3, 3)])
def test_observations_without_a_network_are_refused(algorithm, shape):
    kind = config_class(algorithm)
    actions = Actions(count=2) if kind.discrete_actions else Actions(low=(-1.0,), high=(1.0,))
    environment = SimpleNamespace(shape=shape, actions=actions)
    with pytest.raises(UsageError, match=f"{kind.title} takes vectors|does not learn from images"):
        check_fits(config_for(algorithm, "Any-v0"), environment)
    check_fits(config_for(algorithm, "Any-v0"), SimpleNamespace(shape=(4,), actions=actions))
