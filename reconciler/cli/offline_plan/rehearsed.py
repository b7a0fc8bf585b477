"""What a manifest would change on a node on which another one has come true (PURE).

old manifest ─▶ judge ─▶ what runs ┐
new manifest ────────────────────▶ rehearse: judge, plan, let it come true ─▶ changes
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.cli.offline_plan.judge import NO_VERDICT, Judge, Judgement, Verdict
from reconciler.cli.offline_plan.node import OfflineNode
from reconciler.loop.comparison import Figures, Present, Reckoned, compared
from reconciler.loop.downloads import files_key
from reconciler.loop.promises import Promises
from reconciler.loop.unheld import awaited, held_reasons, unheld
from reconciler.plan.actions import Action
from reconciler.plan.changes import NodeChanges
from reconciler.plan.desired import Desired, DesiredModel, ModelSpec
from reconciler.plan.downtime import downtime
from reconciler.plan.durations import Expected
from reconciler.plan.gpu_holdings import Holding
from reconciler.plan.ids import FilesDigest, ModelName, Nonce
from reconciler.plan.memory import HOST, Pool, pool_of
from reconciler.plan.observed import FilesMissing, FilesState, Observed, ObservedModel
from reconciler.plan.phase import State
from reconciler.plan.planner import plan
from reconciler.plan.rails import excess, running_models
from reconciler.plan.rehearsal import Rehearsal, Thought, files_of, rehearse
from reconciler.plan.wording import amount

_NOW = 0.0
_MANY = 10_000
"""Loads at a time: their order is not what is asked."""
_WRITTEN = "as written: "
_UNTIMED = Expected(seconds=None, why="no agent was asked")
_PID = 0
"""Of every process of the old manifest: reasons name it in words instead."""
_OLD = re.compile(rf"\bpids? {_PID}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class _There:
    """What is taken to be there. `cached`: what files, by the fields that say which."""

    observed: Observed
    present: Mapping[ModelName, Present]
    cached: frozenset[str]


def rehearsed(
    node: OfflineNode, judge: Judge, wanted: Desired, before: Desired | None
) -> NodeChanges:
    """`before`: what the old manifest has for this node; None: nothing runs."""
    there = _there(node, judge, before)
    mind = _Mind(judge=judge, wanted=unheld(wanted), cached=there.cached)
    ahead = rehearse(there.observed, mind.think, _NOW)
    waiting = excess(wanted, running_models(there.observed), before=before)
    as_held = plan(wanted, ahead.first.observed, _NOW)
    notes = (*as_held.notes, *_notes(node, judge, wanted, mind.verdicts), *_idle(there))
    made = compared(
        wanted,
        ahead,
        there.present,
        Reckoned(
            figures={name: mind.figures(name, ahead) for name in mind.verdicts},
            indexes={pool_of(gpu): gpu.index for gpu in (node.roll.devices if node.roll else ())},
            held=held_reasons(as_held, wanted),
            notes=notes,
        ),
    )
    if as_held.held:
        mind = _Mind(judge=judge, wanted=wanted, cached=there.cached)
        as_is = rehearse(there.observed, mind.think, _NOW)
        made = replace(made, order=compared(wanted, as_is, there.present).order)
    unknown = _unknown_pools(ahead)
    made = replace(
        made,
        gpus=tuple(each for each in made.gpus if each.gpu not in unknown),
        host=made.host if made.host is not None and HOST not in unknown else None,
    )
    return _worded(made if waiting is None else replace(awaited(made, waiting), order=()))


def _unknown_pools(ahead: Rehearsal) -> frozenset[Pool]:
    """Memories of which somebody takes nobody knows how much, now or then."""
    found: set[Pool] = set()
    for thought in (ahead.first, ahead.last):
        for seen in thought.observed.models.values():
            pools = {Pool(gpu) for each in seen.processes for gpu in each.gpus}
            found |= {pool for pool in (*pools, HOST) if seen.processes and pool not in seen.needs}
    return frozenset(found)


class _Mind:
    """The planner with the judge, who is asked anew whenever something has come true. `cached`:
    None: every file is there."""

    def __init__(self, *, judge: Judge, wanted: Desired, cached: frozenset[str] | None) -> None:
        self._judge = judge
        self._wanted = wanted
        self._cached = cached
        self._staying: frozenset[ModelName] = frozenset()
        self._promises = Promises()
        self._specs: Mapping[ModelName, ModelSpec] = {}
        self.verdicts: Mapping[ModelName, Verdict] = {}

    def think(self, observed: Observed, _done: tuple[Action, ...]) -> Thought:
        held = _held(observed)
        while True:
            promised = self._promises.of_now(held, _NOW)
            firm = {name: each for name, each in promised.items() if not each.idle}
            judgement = self._judge.judge(self._wanted, held, self._staying, firm)
            models = judgement.desired.models
            self._promises.note(models, judgement.claims, judgement.idle, held, _NOW)
            self.verdicts = judgement.verdicts
            self._specs = {model.name: model.spec for model in models}
            seen = self._seen(observed, judgement)
            made = plan(judgement.desired, seen, _NOW)
            staying = self._staying | {name for name, _ in made.staying}
            if staying == self._staying:
                return Thought(desired=judgement.desired, observed=seen, plan=made)
            self._staying = staying

    def figures(self, name: ModelName, ahead: Rehearsal) -> Figures:
        """How long anything takes only an agent knows; that there is no gap, can be told."""
        verdict, there = self.verdicts[name], ahead.first.observed.models.get(name)
        serving = there.processes[0].nonce if there is not None and there.processes else None
        gap = downtime(ahead.of(name), serving=serving, load=_UNTIMED, stop=_UNTIMED)
        spec = self._specs[name]
        return Figures(
            download_bytes=None if self._has(spec) else verdict.size_bytes,
            files=files_key(spec, verdict.offer),
            downtime_seconds=gap.seconds,
            engine=verdict.engine,
        )

    def _seen(self, observed: Observed, judgement: Judgement) -> Observed:
        models = dict(observed.models)
        for model in judgement.desired.models:
            seen = models.get(model.name) or ObservedModel(name=model.name)
            verdict = judgement.verdicts.get(model.name, NO_VERDICT)
            models[model.name] = replace(
                seen,
                files=self._files(model, seen.files),
                refusal=verdict.refusal or (None if self._has(model.spec) else verdict.missing),
                needs=verdict.needs,
            )
        return replace(observed, models=models)

    def _files(self, model: DesiredModel, now: FilesState) -> FilesState:
        if not isinstance(now, FilesMissing) and not now.digest.startswith(_WRITTEN):
            return now  # a rehearsed download has brought them
        return files_of(_digest_of(model.spec)) if self._has(model.spec) else FilesMissing()

    def _has(self, spec: ModelSpec) -> bool:
        if self._cached is None or spec.source.startswith("file://"):
            return True
        return _which_files(spec) in self._cached


def _which_files(spec: ModelSpec) -> str:
    pinned = (spec.digest or "").removeprefix("sha256:")
    return "\0".join((spec.source, spec.file or "", pinned, spec.format))


def _digest_of(spec: ModelSpec) -> FilesDigest:
    """Stands for that of its files: the same for the same ones."""
    return FilesDigest(f"{_WRITTEN}{_which_files(spec)}")


def _there(node: OfflineNode, judge: Judge, before: Desired | None) -> _There:
    """What the old manifest comes to on a node that has every file and where nothing runs."""
    nothing = Observed(processes_read=True, max_parallel_loads=_MANY, rooms=node.rooms)
    if before is None:
        return _There(observed=nothing, present={}, cached=frozenset())
    mind = _Mind(judge=judge, wanted=unheld(before), cached=None)
    last = rehearse(nothing, mind.think, _NOW).last
    settled = {model.name: model for model in last.desired.models} if last.desired else {}
    there = replace(
        last.observed,
        models={name: _of_old(seen) for name, seen in last.observed.models.items()},
    )
    return _There(
        observed=there,
        present={
            each.model: Present(
                state=each.state,
                reason="taken to run" if each.state is State.LOADED else each.reason,
                desired=settled.get(each.model),
                running=settled[each.model].spec if there.models[each.model].processes else None,
            )
            for each in last.plan.outlook
        },
        cached=frozenset(_which_files(model.spec) for model in settled.values()),
    )


def _of_old(seen: ObservedModel) -> ObservedModel:
    """Without what was found of the old spec, which says nothing of the new one."""
    return ObservedModel(
        name=seen.name,
        processes=tuple(
            replace(each, pid=_PID, nonce=Nonce(f"old-{seen.name}-{number}"))
            for number, each in enumerate(seen.processes)
        ),
        files=seen.files,
        needs=seen.needs,
    )


def _held(observed: Observed) -> Mapping[ModelName, Sequence[Holding]]:
    return {
        name: tuple(
            Holding(
                spec_hash=each.instance.spec_hash,
                gpus=each.gpus,
                share=each.gpu_share,
                serves=each.loaded_at is not None,
            )
            for each in seen.processes
        )
        for name, seen in observed.models.items()
        if seen.processes
    }


def _idle(there: _There) -> Iterator[str]:
    """Of the old manifest's models that do not run by all that is told of the node."""
    why: dict[str, list[ModelName]] = {}
    for name, now in there.present.items():
        if now.state is State.BLOCKED:
            why.setdefault(now.reason, []).append(name)
    for reason, names in why.items():
        yield (
            f"of the old manifest {', '.join(sorted(names))} could not run here either, so no stop "
            f"is shown: {reason}"
        )


def _notes(
    node: OfflineNode, judge: Judge, wanted: Desired, verdicts: Mapping[ModelName, Verdict]
) -> Iterator[str]:
    yield from node.unknown(wanted)
    yield from judge.unplaced(wanted)
    if wanted.windows:
        yield "what serves is stopped in a maintenance window only"
    sizes = {
        files_key(model.spec, verdict.offer): verdict.size_bytes
        for model in wanted.models
        if (verdict := verdicts.get(model.name)) is not None and verdict.missing is None
    }
    if node.rooms and sizes and set(sizes.values()) == {None}:
        cure = "" if judge.asks_hub else " (--hub)"
        yield f"how large its models are is not known, so neither is whether they fit{cure}"
    known = sum(size for size in sizes.values() if size is not None)
    budget = node.cache_budget_bytes
    if budget is not None and known > budget:
        least = "at least " if None in sizes.values() else ""
        yield (
            f"the files of its models take {least}{amount(known)}, and its cache may have "
            f"{amount(budget)}"
        )


def _worded(made: NodeChanges) -> NodeChanges:
    """No process has a pid yet."""
    return replace(
        made,
        changes=tuple(
            replace(
                change,
                reason=_said(change.reason),
                held=_said(change.held) if change.held is not None else None,
            )
            for change in made.changes
        ),
        order=tuple(replace(each, reason=_said(each.reason)) for each in made.order),
        notes=tuple(map(_said, made.notes)),
    )


def _said(reason: str) -> str:
    return _OLD.sub("the old process", reason)
