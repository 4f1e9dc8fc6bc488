"""An algorithm is a folder and one line of the registry: nothing else in the product names it."""

import ast
import inspect
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from qgraph.rl.agents import AGENTS, RunConfig, config_class
from tests.helpers.cli import run as qgraph

ROOT = Path(__file__).parents[3]
AGENTS_FOLDER = ROOT / "qgraph/rl/agents"
# What is allowed to know an algorithm by name, beside its folder. stable-baselines3 has algorithms
# of the same names that are not ours.
ELSEWHERE = {AGENTS_FOLDER / "registry.py"}
OTHERS = ROOT / "qgraph/rl/sb3"


def product_files():
    for folder in ("qgraph", "transforms", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if OTHERS not in path.parents:
                yield path


def names_in(path):
    """Every identifier and every string of a module that is a word, but docstrings."""
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
    assert present >= {"__init__.py", "config.py", "learner.py", "README.md"}
    named = {path for path in product_files() if algorithm in names_in(path)}
    assert {path for path in named if folder not in path.parents} == ELSEWHERE
    lines = (AGENTS_FOLDER / "registry.py").read_text().splitlines()
    assert sum(f'"{algorithm}' in line for line in lines) == 1


def test_every_folder_is_registered():
    folders = {path.parent.name for path in AGENTS_FOLDER.glob("*/config.py")}
    assert folders == set(AGENTS)


@pytest.mark.parametrize("algorithm", AGENTS)
def test_configs_are_frozen_dataclasses_that_name_their_algorithm(algorithm):
    kind = config_class(algorithm)
    assert is_dataclass(kind) and issubclass(kind, RunConfig)
    assert kind.__dataclass_params__.frozen and kind.algorithm == algorithm
    assert kind.__name__ == f"{algorithm.capitalize()}Config" and inspect.getdoc(kind)


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
