"""Write a policy in another form, with its normalization, its state and its head."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from qgraph.artifacts import versions
from qgraph.backends.c.c_form import refused
from qgraph.backends.c.header import header
from qgraph.backends.c.source import unit
from qgraph.errors import UnsupportedError, UsageError
from qgraph.exports import written_files
from qgraph.files import sha256_of, whole_directory
from qgraph.ir.reading import kind_of
from qgraph.names import file_stem
from qgraph.program.islands import islands
from qgraph.records import to_json
from qgraph.rl.deploy.c_facts import CPolicyFacts
from qgraph.rl.deploy.example_source import example_source, readme
from qgraph.rl.deploy.network_policy import NetworkPolicy, PolicyParts, parts_of
from qgraph.rl.deploy.policy_source import policy_source
from qgraph.rl.policy import Policy

INDEX = "deployment.json"
README = "README.md"
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


@dataclass(frozen=True)
class Deployment:
    """A policy that was written as C.

    Attributes:
        folder: The directory with its files.
        facts: Sizes and types.
        files: Bytes by file.
    """

    folder: Path
    facts: CPolicyFacts
    files: dict[str, int]


def deploy(
    policy: Policy | NetworkPolicy, path: str | Path, *, name: str = "policy", force: bool = False
) -> Deployment:
    """Write a policy as C99: raw observations in, actions out, states inside.

    Args:
        policy: A static policy, or a network with states.
        path: A directory, new or empty.
        name: Beginning of the names of files, functions and macros: lower-case letters, digits and
            underscores.
        force: Whether to replace the files of an earlier deployment. Other files are never
            replaced.

    Returns:
        The deployment.

    Raises:
        UsageError: The policy is dynamic, or the name is not one of C.
        UnsupportedError: The policy has an op that C lacks. The error names the node.
        OutputError: The path contains other files, or cannot be written.
    """
    path = Path(path)
    if not NAME.fullmatch(name) or file_stem(name) != name:
        raise UsageError(
            f"`{name}` cannot begin names of C",
            hint="use lower-case letters, digits and single underscores, first a letter",
        )
    parts = parts_of(policy)
    program = parts.program
    why = refused(program)
    if why is not None:
        raise UnsupportedError(why, hint="deploy the policy in another format")
    for island in islands(parts.graph, program):
        raise UnsupportedError(
            f"`{kind_of(island.nodes[0])}` is computed in float between integer layers",
            node=island.nodes[0].name,
            hint="leave the op out of the policy",
        )
    net = unit(program, f"{name}_network")
    written = policy_source(parts, net, name)
    facts = written.facts
    texts = {
        f"{name}.h": written.header,
        f"{name}.c": written.source,
        f"{net.net}.h": header(net),
        f"{net.net}.c": net.text,
        f"{name}_example.c": example_source(facts),
        README: readme(facts, INDEX),
    }
    with whole_directory(path, written_files(path, INDEX), force=force) as draft:
        for file, text in texts.items():
            (draft / file).write_text(text, "ascii")
        index = {
            **_described(parts, facts),
            "versions": versions(),
            "files": {file: sha256_of(draft / file) for file in texts},
        }
        (draft / INDEX).write_text(json.dumps(to_json(index), indent=1) + "\n", "utf-8")
        sizes = {file: (draft / file).stat().st_size for file in texts}
    return Deployment(path, facts, sizes)


def _described(parts: PolicyParts, facts: CPolicyFacts) -> dict[str, object]:
    return {
        "format": "c",
        "name": facts.name,
        "shape": facts.shape,
        "observation": facts.observed,
        "head": None if parts.head is None else parts.head.as_json(),
        "states": parts.states,
        "outputs": facts.outputs,
        "action_size": facts.action_size,
        "constant_bytes": facts.constants,
        "memory_bytes": facts.memory,
    }
