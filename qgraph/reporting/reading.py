"""The facts of a report, read from an output directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from qgraph.archives import read_json, reading
from qgraph.errors import LoadError
from qgraph.evaluation.record import stored
from qgraph.files import sha256_of
from qgraph.ir.types import Role
from qgraph.records import from_json
from qgraph.reporting.advice import next_steps, verdict
from qgraph.reporting.facts import (
    CertificateShown,
    ForcedBy,
    GroupFacts,
    InputFacts,
    LayerFacts,
    MemberFacts,
    PassShown,
    RefusalShown,
    ReportFacts,
    RewriteShown,
    Summary,
    TensorFacts,
    TrialShown,
)
from qgraph.rewrite.trace import Refusal, Rewrite, TraceRecord, without_numbers
from qgraph.runtime.part_times import part_times
from qgraph.static.facts import PartFacts
from qgraph.stored import inference_folder
from qgraph.stored.manifest import (
    GroupEntry,
    LayerEntry,
    Manifest,
    StatisticsEntry,
    StatisticsRecord,
    TensorEntry,
    read_manifest,
    record_in,
)
from qgraph.stored.write import CERTIFICATE
from qgraph.verification.certificate import Certificate

T = TypeVar("T")


def read_facts(folder: Path) -> ReportFacts:
    """The facts of a network that `qgraph quantize` wrote. Raises LoadError."""
    folder = inference_folder(folder)
    with reading(folder, "was changed or damaged", "quantize the model again"):
        return _facts(folder, read_manifest(folder))


def _facts(folder: Path, manifest: Manifest) -> ReportFacts:
    statistics = _read(StatisticsRecord, folder, "statistics.json", manifest)
    log = _read(TraceRecord, folder, "rewrites.json", manifest)
    tensors = {t.name: _tensor(t, statistics.tensors.get(t.name)) for t in manifest.tensors}
    known = {part.layer: part for part in manifest.facts.sensitivity or ()}
    makers = {layer.output: i for i, layer in enumerate(manifest.layers)}
    facts = ReportFacts(
        _summary(manifest, statistics),
        [
            _layer(i, layer, known.get(layer.name), tensors, makers)
            for i, layer in enumerate(manifest.layers)
        ],
        _groups(manifest.scale_groups, tensors, log.rewrites),
        manifest.float_ops,
        manifest.facts.sensitivity,
        manifest.facts.choice.mixed,
        [
            TrialShown(trial.agreement, str(trial.plan), trial.plan.spec())
            for trial in manifest.facts.choice.trials
        ],
        _by_pass(log.rewrites),
        _alike(log.refusals),
        _certificate(folder, manifest),
        stored(folder, manifest),
        part_times(folder, manifest),
    )
    return replace(facts, verdict=verdict(facts), next=next_steps(facts))


def _read(kind: type[T], folder: Path, name: str, manifest: Manifest) -> T:
    path = folder / name
    if not path.is_file() or sha256_of(path) != manifest.files.get(name):
        raise LoadError(
            "missing, or changed since it was written",
            node=str(path),
            hint="quantize the model again",
        )
    return from_json(kind, read_json(path))


def _summary(manifest: Manifest, statistics: StatisticsRecord) -> Summary:
    facts, samples, choice = manifest.facts, manifest.facts.samples, manifest.facts.choice
    return Summary(
        model=facts.model,
        model_sha256=facts.model_sha256,
        calibration_samples=facts.calibration_samples,
        calibration_method=manifest.calibration_method,
        versions=manifest.versions,
        profile=manifest.profile.name,
        profile_description=manifest.profile.description,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        measured_samples=statistics.samples,
        outputs_sqnr_db=statistics.outputs_sqnr_db,
        agreement=facts.agreement,
        effort=choice.effort,
        warnings=facts.warnings,
        notes=facts.notes,
        data_free=samples.data_free,
        domain=samples.domain,
        inputs_seen=samples.inputs_seen,
        input_doubts=samples.input_doubts,
        training=facts.training,
        plan=str(choice.plan),
        biases_corrected=choice.plan.correct_bias,
        plan_spec=choice.plan.spec(),
    )


def _certificate(folder: Path, manifest: Manifest) -> CertificateShown | None:
    """Result of `qgraph verify` for this network; None if it was not run."""
    found = record_in(Certificate, folder / CERTIFICATE)
    if found is None or found.hashes.graph != manifest.files.get("graph.txt"):
        return None
    return CertificateShown(found.equal, found.cases, found.forms)


def _tensor(entry: TensorEntry, found: StatisticsEntry | None) -> TensorFacts:
    clipped = None
    if found is not None and found.elements:
        clipped = (found.clipped_below + found.clipped_above) / found.elements
    return TensorFacts(entry, 0 if found is None else found.elements, found, clipped)


def _layer(
    index: int,
    layer: LayerEntry,
    sensitivity: PartFacts | None,
    tensors: Mapping[str, TensorFacts],
    makers: Mapping[str | None, int],
) -> LayerFacts:
    output = tensors.get(layer.output or "")
    inputs = [
        InputFacts(tensors[name], f"layer-{makers[name] + 1}" if name in makers else None)
        for name in layer.input_scales
    ]
    before = [x.tensor.entry.sqnr_db for x in inputs if x.tensor.entry.sqnr_db is not None]
    return LayerFacts(
        entry=layer,
        reasons=sensitivity.reasons if sensitivity else None,
        so_far_sqnr_db=sensitivity.so_far_sqnr_db if sensitivity else None,
        so_far_top1=sensitivity.so_far_top1 if sensitivity else None,
        id=f"layer-{index + 1}",
        clipped=output.clipped if output else None,
        input_sqnr_db=min(before, default=None),
        input_tensors=inputs,
        weight_tensor=tensors.get(layer.weight),
        output_tensor=output,
    )


# -- scale groups ---------------------------------------------------------------------------


def _groups(
    groups: Mapping[str, GroupEntry],
    tensors: Mapping[str, TensorFacts],
    rewrites: Sequence[Rewrite],
) -> list[GroupFacts]:
    forced_by: dict[str | None, list[ForcedBy]] = {}
    for rewrite in rewrites:
        shared = rewrite.shared_scale
        if shared is not None:
            members = sorted(shared.members)
            group = next((tensors[n].entry.group for n in members if n in tensors), None)
            found = ForcedBy(rewrite.node, shared.op, members)
            forced_by.setdefault(group, []).append(found)
    return [
        _group(name, group, [tensors[m] for m in group.members], forced_by.get(name, []))
        for name, group in groups.items()
    ]


def _group(
    name: str, group: GroupEntry, tensors: Sequence[TensorFacts], forced_by: Sequence[ForcedBy]
) -> GroupFacts:
    members = [_member(t) for t in tensors]
    known = {m.name: m.max_exponent for m in members if m.max_exponent is not None}
    return GroupFacts(
        name=name,
        id=f"group-{name}",
        exponent=group.exponent,
        inside_layer=all(m.role not in (Role.INPUT, Role.ACTIVATION) for m in members),
        widest=min(known, key=lambda m: known[m], default=None),
        forced_by=forced_by,
        members=members,
        lost_bits=max((m.lost_bits for m in members), default=0),
    )


def _member(tensor: TensorFacts) -> MemberFacts:
    """The scale that a tensor would have alone without clipping, and the cost of sharing one."""
    entry, found = tensor.entry, tensor.statistics
    own = found.max_exponent if found else None
    shared = entry.exponent
    lost = max(own - shared, 0) if own is not None and isinstance(shared, int) else 0
    alone, cost = found.alone if found else None, None
    if lost and alone and alone.sqnr_alone_db is not None and alone.sqnr_max_db is not None:
        cost = round(max(alone.sqnr_max_db - alone.sqnr_alone_db, 0.0), 2)
    return MemberFacts(entry.name, entry.role, entry.bits, shared, entry.sqnr_db, own, lost, cost)


# -- the log --------------------------------------------------------------------------------


def _by_pass(rewrites: Sequence[Rewrite]) -> list[PassShown]:
    found: dict[str, list[RewriteShown]] = {}
    for rewrite in rewrites:
        texts = (rewrite.rule, rewrite.node, rewrite.before, rewrite.after)
        shown = RewriteShown(*map(without_numbers, texts))
        found.setdefault(rewrite.pass_name, []).append(shown)
    return [PassShown(name, len(shown), shown) for name, shown in found.items()]


def _alike(refusals: Sequence[Refusal]) -> list[RefusalShown]:
    found: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        found.setdefault((refusal.pass_name, refusal.reason), []).append(refusal.node)
    return [RefusalShown(name, reason, nodes) for (name, reason), nodes in found.items()]
