"""Write a policy in another form, with its normalization, its states and its head."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qgraph.backends.c.c_form import refused
from qgraph.backends.c.header import header
from qgraph.backends.c.source import unit
from qgraph.backends.network_forms import CautiousForm
from qgraph.choices import ExportFormat, chosen
from qgraph.errors import UnsupportedError, UsageError
from qgraph.exports import form as form_of
from qgraph.exports import written_files
from qgraph.files import sha256_of, whole_directory
from qgraph.ir.reading import kind_of
from qgraph.names import file_stem
from qgraph.program.islands import islands
from qgraph.records import to_json
from qgraph.rl.deploy.c_facts import CPolicyFacts
from qgraph.rl.deploy.deployment_record import INDEX, record_of
from qgraph.rl.deploy.example_source import example_source, readme
from qgraph.rl.deploy.network_policy import NetworkPolicy, PolicyParts, parts_of
from qgraph.rl.deploy.policy_source import policy_source
from qgraph.rl.policy import Policy

README = "README.md"
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


@dataclass(frozen=True)
class Deployment:
    """A policy that was written.

    Attributes:
        folder: The directory with its files.
        files: Bytes by file.
        facts: Sizes and types of a policy in C; None for other formats.
        warnings: What the files lack, and why.

    Examples:
        >>> from qgraph.rl.deploy import deploy
        >>> from qgraph.rl.policy import load_policy
        >>> deploy(load_policy("static.qpol"), "device").facts.action_size
        1
    """

    folder: Path
    files: Mapping[str, int]
    facts: CPolicyFacts | None
    warnings: tuple[str, ...] = ()


def deploy(
    policy: Policy | NetworkPolicy,
    path: str | Path,
    *,
    form: str = ExportFormat.C,
    name: str = "policy",
    force: bool = False,
) -> Deployment:
    """Write a policy for a device.

    In C99, it takes raw observations and returns actions: normalization, states and head are
    inside. In other formats, it is the network as `qgraph.export` writes it, and `deployment.json`
    describes the rest.

    Args:
        policy: A static policy, or a network with states.
        path: A directory, new or empty.
        form: A format, by its value in `qgraph.choices.ExportFormat`.
        name: For C: beginning of the names of files, functions and macros, in lower-case letters,
            digits and underscores.
        force: Whether to replace the files of an earlier deployment. Other files are never
            replaced.

    Returns:
        The deployment.

    Raises:
        UsageError: The policy is dynamic, or the name is not one of C.
        UnsupportedError: The format lacks an op of the policy. The error names the node.
        OutputError: The path contains other files, or cannot be written.

    Examples:
        >>> from qgraph.rl.deploy import deploy
        >>> from qgraph.rl.policy import load_policy
        >>> made = deploy(load_policy("static.qpol"), "device", name="pilot")
        >>> sorted(made.files)[1:4]
        ['pilot.c', 'pilot.h', 'pilot_example.c']
    """
    path, parts = Path(path), parts_of(policy)
    kind = chosen(ExportFormat, form, "format")
    facts, texts, warnings = None, dict[str, str](), list[str]()
    other = None if kind is ExportFormat.C else form_of(kind)
    if other is None:
        facts, texts = _in_c(parts, name)
    elif (reason := other.refusal(policy.network)) is not None:
        raise UnsupportedError(f"{kind} does not support this policy: {reason}")
    if isinstance(other, CautiousForm):
        warnings = other.warnings(policy.network)
    with whole_directory(path, written_files(path, INDEX), force=force) as draft:
        for file, text in texts.items():
            (draft / file).write_text(text, "ascii")
        if other is not None:
            other.write(policy.network, draft)
        made = sorted(file for file in draft.rglob("*") if file.is_file())
        names = [file.relative_to(draft).as_posix() for file in made]
        hashes = {name: sha256_of(file) for name, file in zip(names, made, strict=True)}
        record = replace(record_of(parts, kind, warnings), files=hashes)
        (draft / INDEX).write_text(json.dumps(to_json(record), indent=1) + "\n", "utf-8")
        sizes = {name: file.stat().st_size for name, file in zip(names, made, strict=True)}
    return Deployment(path, sizes, facts, tuple(warnings))


def _in_c(parts: PolicyParts, name: str) -> tuple[CPolicyFacts, dict[str, str]]:
    """The texts of the files in C by name, and what they state."""
    if not NAME.fullmatch(name) or file_stem(name) != name:
        raise UsageError(
            f"`{name}` cannot begin names of C",
            hint="use lower-case letters, digits and single underscores, first a letter",
        )
    why = refused(parts.program)
    if why is not None:
        raise UnsupportedError(why, hint="deploy the policy in another format")
    for island in islands(parts.graph, parts.program):
        raise UnsupportedError(
            f"`{kind_of(island.nodes[0])}` is computed in float between integer layers",
            node=island.nodes[0].name,
            hint="leave the op out of the policy",
        )
    net = unit(parts.program, f"{name}_network")
    written = policy_source(parts, net, name)
    texts = {
        f"{name}.h": written.header,
        f"{name}.c": written.source,
        f"{net.net}.h": header(net),
        f"{net.net}.c": net.text,
        f"{name}_example.c": example_source(written.facts),
        README: readme(written.facts, INDEX),
    }
    return written.facts, texts
