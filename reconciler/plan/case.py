"""One model's case: what is wanted of it, beside what is there of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.ids import GpuUuid, Instance, ModelName
from reconciler.plan.observed import (
    EffectKind,
    FilesCached,
    Leftover,
    Observed,
    ObservedModel,
    ObservedProcess,
)

_READS_REMOVED = (
    "a file of it was damaged or removed after it was loaded; it still reads the old one"
)


DIED = "what is left of it is being ended; the next try is planned then"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the planner weighs for one model.

    `desired`: None: this node's manifest does not have it. `wanted`: the same, unless disabled.
    `instance`: what should run; None while its files are not known, or nothing is wanted.
    `process` speaks for the model; `coming` is to take its place, and loads; `surplus` should not
    be there (R6). `stopping`: the stop of `process` is under way.
    """

    name: ModelName
    desired: DesiredModel | None
    seen: ObservedModel
    leftovers: tuple[Leftover, ...] = ()
    wanted: DesiredModel | None
    instance: Instance | None
    process: ObservedProcess | None
    coming: ObservedProcess | None = None
    surplus: tuple[ObservedProcess, ...]
    stopping: bool

    @property
    def processes(self) -> tuple[ObservedProcess, ...]:
        first = (each for each in (self.process, self.coming) if each is not None)
        return (*first, *self.surplus)

    @property
    def successor(self) -> ObservedProcess | None:
        """The process of what is wanted, if there is one."""
        if self.coming is not None:
            return self.coming
        process = self.process
        return process if process is not None and process.instance == self.instance else None

    @property
    def gpus(self) -> tuple[GpuUuid, ...]:
        """The devices this model claims. A resolution holds while its process lives (R4)."""
        if self.wanted is None:
            return ()
        return self.successor.gpus if self.successor is not None else self.wanted.gpus

    @property
    def gpu_share(self) -> float | None:
        """Of each of them; None: the whole."""
        if self.successor is not None:
            return self.successor.gpu_share
        return self.wanted.gpu_share if self.wanted is not None else None

    @property
    def runs_as_wanted(self) -> bool:
        """Whether `process` is what should run, with the files that are there."""
        process = self.process
        return (
            process is not None
            and process.instance == self.instance
            and not process.reads_removed_files
        )

    @property
    def obsolete_because(self) -> str | None:
        """Why `process` is not what is wanted; None: it is, as far as one can know."""
        if self.wanted is None or self.process is None or self.runs_as_wanted:
            return None
        running = self.process.instance
        same = running.spec_hash == self.wanted.spec_hash
        if same and self.process.reads_removed_files and self.instance in (None, running):
            later = "; it is started anew once the file is here again"
            return f"{_READS_REMOVED}{later if self.instance is None else ''}"
        return self.difference(self.process)

    def difference(self, process: ObservedProcess) -> str | None:
        """How the instance of a process differs from what is wanted; None: in nothing known."""
        running = process.instance
        if self.wanted is None or running == self.instance:
            return None
        if running.spec_hash != self.wanted.spec_hash:
            return f"spec changed ({running.spec_hash} → {self.wanted.spec_hash})"
        if self.instance is None:
            return None
        return f"files changed ({running.files_digest[:12]} → {self.instance.files_digest[:12]})"

    @property
    def ending(self) -> ObservedProcess | None:
        """Whose stop is under way."""
        return next((each for each in self.processes if is_stopping(self.seen, each)), None)

    @property
    def stranded(self) -> ObservedProcess | None:
        """Of a surge whose new process has failed: the old one, if it drains still and is sound."""
        effect, old = self.seen.in_flight, self.ending
        if self.wanted is None or effect is None or not effect.revocable or old is None:
            return None
        others = [each for each in self.processes if each is not old]
        return old if old.is_sound and not any(each.is_sound for each in others) else None

    def stands_by(self, process: ObservedProcess) -> bool:
        """Whether it may be needed still: an earlier agent had it serve, or drain, beside the one
        that speaks for the model, which has not answered this agent yet."""
        speaker = self.process
        return (
            self.wanted is not None
            and speaker is not None
            and speaker is not process
            and speaker.is_asked
            and speaker.is_sound
            and not process.loads
            and process.is_sound
            and not is_stopping(self.seen, process)
        )

    def stops_because(self, process: ObservedProcess) -> str | None:
        """What its stop was ordered for; None: no stop of it is under way."""
        effect = self.seen.in_flight
        if effect is None or not is_stopping(self.seen, process):
            return None
        return effect.detail or None

    def surplus_cause(self, ends: ObservedProcess) -> str:
        """Why a process should not be there: what made it so, and stays true while it ends."""
        process, ordered = self.process, self.stops_because(ends)
        if ordered is not None:
            return ordered
        if self.wanted is None or process is None:
            why = "removed from the manifest" if self.desired is None else "enabled: false"
            return f"{why} during its load" if ends.loads else why
        changed = self.difference(ends)
        if changed is None or ends.instance == process.instance:
            return "a second process of the model"
        if not ends.loads and not process.loads:
            return changed
        if not self.runs_as_wanted or process.loads:
            return f"{changed} during its load"
        return f"{changed}, which pid {process.pid} serves"

    def surplus_because(self, ends: ObservedProcess) -> str:
        """The same, and what is there instead just now."""
        process = self.process
        if ends.died and self.stops_because(ends) is None:
            return f"{ends.doing}; {DIED}"
        cause = self.surplus_cause(ends)
        if self.wanted is None or process is None:
            return cause
        if self.stands_by(ends):
            why = self.difference(ends) or "a second process of the model"
            return f"{why}; it stays until pid {process.pid} has answered"
        if process.died:
            return f"{cause}; pid {process.pid} has died"
        if self.difference(ends) is None or ends.instance == process.instance:
            return f"{cause}; pid {process.pid} stays"
        if not ends.loads and not process.loads:
            return f"{cause}; pid {process.pid} serves in its place"
        return cause


def cases(desired: Desired, observed: Observed) -> list[Case]:
    """A case for each model that is desired or of which something is there, sorted by name."""
    models = {model.name: model for model in desired.models}
    leftovers: dict[ModelName, list[Leftover]] = {}
    for leftover in sorted(observed.leftovers, key=lambda each: (each.pid, each.nonce)):
        leftovers.setdefault(leftover.model, []).append(leftover)
    there = {
        name
        for name, seen in observed.models.items()
        if seen.processes or seen.in_flight is not None
    }
    return [
        _case(
            models.get(name),
            observed.models.get(name) or ObservedModel(name=name),
            leftovers.get(name, ()),
        )
        for name in sorted(models.keys() | there | leftovers.keys())
    ]


def _case(desired: DesiredModel | None, seen: ObservedModel, leftovers: Sequence[Leftover]) -> Case:
    wanted = desired if desired is not None and desired.enabled else None
    instance = None
    if wanted is not None and isinstance(seen.files, FilesCached):
        instance = Instance(spec_hash=wanted.spec_hash, files_digest=seen.files.digest)
    ranked = seen.processes
    if len(ranked) > 1:
        ranked = _ranked(seen, wanted, instance)
    process, coming = (ranked[0] if ranked else None), _coming(seen, ranked, wanted, instance)
    return Case(
        name=seen.name,
        desired=desired,
        seen=seen,
        leftovers=tuple(leftovers),
        wanted=wanted,
        instance=instance,
        process=process,
        coming=coming,
        surplus=tuple(each for each in ranked[1:] if each is not coming),
        stopping=process is not None and is_stopping(seen, process),
    )


def unclaimed(observed: Observed) -> list[Case]:
    """Of each model that lives, sorted by name, while nobody can say what is wanted."""
    return [_case(None, seen, ()) for _, seen in sorted(observed.models.items()) if seen.processes]


def at_ease(case: Case) -> Case:
    """The same case, were nothing under way."""
    return _case(case.desired, replace(case.seen, in_flight=None), case.leftovers)


def _ranked(
    seen: ObservedModel, wanted: DesiredModel | None, instance: Instance | None
) -> tuple[ObservedProcess, ...]:
    """Who speaks for the model first: what serves, or did so before this agent, and is sound; what
    has answered this one; of the desired instance; the oldest."""
    return tuple(
        sorted(
            seen.processes,
            key=lambda process: (
                is_stopping(seen, process) or process.died,
                process.loads,
                process.hung is not None or process.misplaced is not None,
                process.is_asked,
                not _is_wanted(process, wanted, instance),
                process.started_at,
                process.nonce,
            ),
        )
    )


def _coming(
    seen: ObservedModel,
    ranked: Sequence[ObservedProcess],
    wanted: DesiredModel | None,
    instance: Instance | None,
) -> ObservedProcess | None:
    """What loads beside one that serves and is not what is wanted."""
    if not ranked or ranked[0].loads or _is_wanted(ranked[0], wanted, instance):
        return None
    return next(
        (
            each
            for each in ranked[1:]
            if _is_wanted(each, wanted, instance)
            and not (each.reads_removed_files and instance is not None)
            and not is_stopping(seen, each)
            and not each.died
        ),
        None,
    )


def _is_wanted(
    process: ObservedProcess, wanted: DesiredModel | None, instance: Instance | None
) -> bool:
    """Whether it is what should run, for all that is known of the files."""
    if instance is not None:
        return process.instance == instance
    return wanted is not None and process.instance.spec_hash == wanted.spec_hash


def is_stopping(seen: ObservedModel, process: ObservedProcess) -> bool:
    """Whether the stop of this process is under way, and is not taken back."""
    effect = seen.in_flight
    if effect is None or effect.kind is not EffectKind.STOP or effect.aborting:
        return False
    if effect.nonce is not None:
        return effect.nonce == process.nonce
    return effect.spec_hash == process.instance.spec_hash
