"""An algorithm is a folder and one line of the registry: nothing else in the product names it."""

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from qgraph.quant.key_tables import with_tables
from qgraph.rl.agents import AGENTS, LearnerPrecision, RunConfig, config_class
from qgraph.rl.agents.registry import check_fits, learner_for
from qgraph.rl.head import Head
from tests.helpers.agent_tables import TABLES
from tests.helpers.cli import run as qgraph
from tests.helpers.doc_tables import pages
from tests.helpers.rl_records import World
from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[3]
AGENTS_FOLDER = ROOT / "qgraph/rl/agents"
# What is allowed to know an algorithm by name, beside its folder. stable-baselines3 and RLlib have
# algorithms of the same names that are not ours.
ELSEWHERE = {AGENTS_FOLDER / "registry.py"}
OTHERS = {ROOT / "qgraph/rl/sb3", ROOT / "qgraph/rl/rllib", ROOT / "qgraph/rl/policy/about.py"}


# Each algorithm with discrete or continuous actions, or both.
KINDS = [
    (name, discrete)
    for name in AGENTS
    for discrete in (True, False)
    if (config_class(name).discrete_actions if discrete else config_class(name).continuous_actions)
]


def product_files():
    """Python files of the product, except those for algorithms of others."""
    for folder in ("qgraph", "transforms", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not OTHERS & {path, *path.parents}:
                yield path


@cache
def names_in(path):
    """Every identifier of a module, every string, and the parts of what it imports from."""
    return frozenset(_names_in(path))


def _names_in(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")


@pytest.mark.parametrize("algorithm", AGENTS)
def test_an_algorithm_is_its_folder_and_a_line_of_the_registry(algorithm):
    folder = AGENTS_FOLDER / algorithm
    present = {path.name for path in folder.iterdir()}
    missing = {"__init__.py", "config.py", "learner.py", "README.md"} - present
    assert not missing
    named = {path for path in product_files() if algorithm in names_in(path)}
    assert {path for path in named if folder not in path.parents} == ELSEWHERE
    lines = (AGENTS_FOLDER / "registry.py").read_text().splitlines()
    assert sum(f'"{algorithm}' in line for line in lines) == 1


def test_every_folder_is_registered():
    folders = {path.parent.name for path in AGENTS_FOLDER.glob("*/config.py")}
    assert not folders - set(AGENTS), "a folder without its line in registry.py"
    assert not set(AGENTS) - folders, "a line in registry.py without its folder"


@pytest.mark.parametrize("algorithm", AGENTS)
def test_configs_are_frozen_dataclasses_that_name_their_algorithm(algorithm):
    kind = config_class(algorithm)
    assert is_dataclass(kind) and issubclass(kind, RunConfig)
    assert kind.__dataclass_params__.frozen and kind.algorithm == algorithm
    assert kind.__name__ == f"{algorithm.capitalize()}Config"
    assert "__dataclass_fields__" in vars(kind), "without @dataclass(frozen=True)"
    written = inspect.getdoc(kind) or ""  # a dataclass makes one of its own else
    assert written and not written.startswith(f"{kind.__name__}("), "without a docstring"


@pytest.mark.parametrize(("algorithm", "discrete"), KINDS)
def test_learners_have_what_a_run_needs(algorithm, discrete):
    """As the protocol `Learner` declares it; actors' exploration fits the head."""
    kind = config_class(algorithm)
    config, world = kind("Any-v0"), World((4,), actions=2, count=3 if discrete else 0)
    check_fits(config, world)
    learner = learner_for(config, world)
    assert learner.policy.keys() == learner.program.weight_shapes.keys()
    kept = {id(variable) for variable in learner.state.values()}
    assert not [name for name, v in learner.policy.items() if id(v) not in kept], "not in `parts`"
    assert isinstance(learner.head, Head) and learner.head.discrete == discrete
    assert learner.teacher is None or learner.teacher.spec.program.shape == (4,)
    acting = learner.acting.spec.program
    assert learner.acting.weights.keys() == acting.weight_shapes.keys()
    outputs = np.zeros(acting.size(acting.outputs[0]), np.float32)
    for actor in range(2):
        explore = kind("Any-v0", actors=2).exploration(actor, learner.head)
        assert np.shape(explore.choose(outputs, 0, np.random.default_rng(0)).sent) == (
            () if discrete else (2,)
        )


def readme_of(algorithm):
    return (AGENTS_FOLDER / algorithm / "README.md").read_text()


@pytest.mark.parametrize("algorithm", AGENTS)
def test_a_readme_has_source_usage_equations_and_settings(algorithm):
    text, kind = readme_of(algorithm), config_class(algorithm)
    headings = re.findall(r"^#+ .*", text, re.M)
    assert headings[:3] == [f"# {kind.title}", "## Equations", "## Settings"]
    intro, equations = text.split("## ")[:2]
    assert re.search(r"(19|20)\d\d", intro), "the source and its year"
    assert f"qgraph rl train --algo {algorithm} " in intro, "a command to run it"
    named = set(re.findall(r"`([a-z_0-9]+)`", equations))
    assert len(named) > 3, "the equations name few settings"
    assert not named - kind.fields().keys(), "the equations name an unknown setting"
    own = {each.name for each in kind.fields().values() if each.setting.panel == ""}
    assert not [name for name in own if f"| `{name}` |" not in text], "run make golden"


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_algorithms_in_the_documentation_are_up_to_date(name):
    found = [page for page in pages() if f"<!-- table: {name} -->" in page.read_text()]
    assert len(found) == 1, f"pages with `<!-- table: {name} -->`"
    text = found[0].read_text()
    assert with_tables(text, TABLES) == text, "run make golden"
    algorithm = name.removeprefix("settings of ")
    if algorithm in AGENTS:
        assert found[0].parent.name == algorithm
    else:
        assert all(f"agents/{each}/README.md" in text for each in AGENTS)


def test_number_formats_are_those_that_learners_compute_in():
    """bfloat16 is the format of products in most, float16 that of numbers in SAC."""
    for algorithm in AGENTS:
        for precision in config_class(algorithm).precisions:
            assert isinstance(precision, LearnerPrecision)
            assert f"`{precision}`" in TABLES["algorithms"]()
    texts = [str(precision) for precision in LearnerPrecision]
    assert not {"half", "mixed", "bfloat", "fp16"} & set(texts) and len(set(texts)) == len(texts)


def test_help_lists_every_setting_without_tensorflow_or_numpy():
    code = (
        "import sys; import qgraph.cli.main\n"
        "from qgraph.cli.rl.train_options import config_classes, generated_options\n"
        "generated_options(config_classes())\n"
        "assert not {'tensorflow', 'numpy', 'gymnasium'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("algorithm", AGENTS)
def test_help_of_one_algorithm_lists_its_settings_only(algorithm, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    every = qgraph("rl", "train", "--help").out
    own = qgraph("rl", "train", "--algo", algorithm, "--help").out
    fields = {name for each in AGENTS for name in config_class(each).fields()}
    for name in fields - {"synchronous", "on_demand"}:
        flag = f"--{name.replace('_', '-')} "
        assert flag in every
        assert (flag in own) == (name in config_class(algorithm).fields())
    for earlier in ("--gamma", "--spi", "--half", "--mixed-bfloat16"):
        assert earlier not in every
