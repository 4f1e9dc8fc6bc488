"""The workflows of .github/ are valid YAML and call what the Makefile and pyproject.toml have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.project import project, pyproject

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PYTHONS = {
    one.rpartition(" ")[2] for one in project()["classifiers"] if re.search(r":: 3\.\d+$", one)
}

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="needs .github/, which this copy leaves out")


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text("utf-8"))


def steps(jobs: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_triggers_and_jobs(path: Path) -> None:
    read = workflow(path.name)
    assert read["permissions"] == {"contents": "read"}
    assert True in read  # YAML 1.1 reads the key `on` as true
    jobs = read["jobs"]
    for job in jobs.values():
        assert "runs-on" in job
        needed = job.get("needs", [])
        assert {needed} <= jobs.keys() if isinstance(needed, str) else set(needed) <= jobs.keys()
    for step in steps(jobs):
        assert ("uses" in step) != ("run" in step), step
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step["uses"]), step


def test_ci_calls_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", makefile, re.MULTILINE))
    commands = [step.get("run", "") for step in steps(workflow("ci.yml")["jobs"])]
    plain = "\n".join(re.sub(r"\$\{\{.*?\}\}", "", command) for command in commands)
    words = {word for line in re.findall(r"\bmake (.*)", plain) for word in line.split()}
    called = {word for word in words if "=" not in word}
    assert called <= targets
    assert called >= {"lint", "types", "test-fast", "docs"}


def test_ci_tests_every_python_that_is_supported() -> None:
    assert set(workflow("ci.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]) == PYTHONS


def test_wheels_are_built_for_every_python_that_is_supported() -> None:
    tags = workflow("release.yml")["jobs"]["wheels"]["strategy"]["matrix"]["python"]
    assert set(tags) == {f"cp{version.replace('.', '')}" for version in PYTHONS}
    minors = re.search(r"cp3\{([\d,]+)\}", pyproject()["tool"]["cibuildwheel"]["build"])
    assert minors is not None and {f"3.{m}" for m in minors[1].split(",")} == PYTHONS


def test_both_ways_to_make_wheels_leave_out_the_same_library() -> None:
    command = pyproject()["tool"]["cibuildwheel"]["repair-wheel-command"]
    excluded = re.findall(r"--exclude (\S+)", command)
    assert excluded == re.findall(r"--exclude (\S+)", (ROOT / "Makefile").read_text("utf-8"))
    assert excluded == ["libtensorflow_framework.so.2"]


def test_sources_of_wheel_tests_exist_and_leave_out_the_package() -> None:
    sources = pyproject()["tool"]["cibuildwheel"]["test-sources"]
    assert not [name for name in sources if not (ROOT / name).exists()]
    assert not {"qgraph", "transforms", "cli"} & set(sources)
