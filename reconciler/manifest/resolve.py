"""Rule R2: from what a source shows now, and what was in force, to what is in force.

Every file of the listing is *taken* as it is, or it *counts as it was* in the applied set (a file
that was not in it is then left out). The rules, until none applies any more:

    bad (unreadable, empty, invalid, lost its last manifest)  counts as it was
    gone from the listing                                     deleted
    clashes with another                                      the changed ones count as they were
    would drop a model that a file which is not taken names   counts as it was: a model moves
                                                              only when both files can be taken
    gone, while a new file cannot be read to its end          counts as it was: it may be a rename

Each step only turns a file back to what was applied, so the steps end, at the latest there. Files
are judged all at once in each step, so that their order does not matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.manifest.parse import ParsedFile, Skipped, parse_file, unreadable
from reconciler.manifest.problem import Problem, position
from reconciler.manifest.union import Manifest, clashing_files, file_clashes, union
from reconciler.plan.ids import Place

Parses = Mapping[tuple[str, bytes], ParsedFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInput:
    """A file of the listing. Exactly one of `content` and `error` is set."""

    name: str
    content: bytes | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What is in force now.

    `manifest` None: nothing was ever applied, and nothing can be now; stop and start nothing.
    `in_force`: the bytes behind it, to be kept across restarts and given back as `applied`.
    `kept`: the files that count as they were, new ones that were left out included.
    `whole`: the listing was taken as it is, in every file.
    `parses`: for the next call, which then parses only what changed.
    """

    manifest: Manifest | None
    in_force: Mapping[str, bytes]
    problems: tuple[Problem, ...] = ()
    kept: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    whole: bool = False
    parses: Parses = field(default_factory=dict, repr=False)


def resolve(
    files: Sequence[FileInput] | None,
    applied: Mapping[str, bytes],
    *,
    parses: Parses | None = None,
) -> Resolution:
    """What is in force, given the listing (None: it could not be had) and the last applied set."""
    reader = _Reader(known=parses or {})
    was = {name: reader.read(name, content) for name, content in applied.items()}
    if files is None:
        return _as_it_was(applied, was, _Settled(listed={}, was=was), (), reader)
    contents = {file.name: file.content for file in files if file.content is not None}
    listed = {
        file.name: reader.read(file.name, file.content)
        if file.content is not None
        else unreadable(file.name, file.error or "no content")
        for file in files
    }
    settled = _settle(listed, was)
    if not any(_usable(file) for file in listed.values()):
        return _as_it_was(applied, was, settled, (no_manifest(len(listed)),), reader)
    manifest = union(settled.candidates().values())
    if not manifest.models and not manifest.allow_empty:
        return _as_it_was(applied, was, settled, (NO_MODELS,), reader)
    return Resolution(
        manifest=manifest,
        in_force={
            name: contents[name] if name in settled.taken else applied[name]
            for name in sorted(settled.taken | (settled.kept & applied.keys()))
        },
        problems=settled.problems(),
        kept=tuple(sorted(settled.kept)),
        skipped=settled.skipped(),
        whole=not settled.kept,
        parses=reader.used,
    )


def _as_it_was(
    applied: Mapping[str, bytes],
    was: Mapping[str, ParsedFile],
    settled: "_Settled",
    problems: tuple[Problem, ...],
    reader: "_Reader",
) -> Resolution:
    before = _settle(was, was)
    candidates = before.candidates()
    return Resolution(
        manifest=union(candidates.values()) if candidates else None,
        in_force=dict(applied),
        problems=(*problems, *settled.problems(), *(before.extra if not settled.listed else ())),
        kept=tuple(sorted(applied.keys() | settled.kept)),
        skipped=settled.skipped(),
        whole=False,
        parses=reader.used,
    )


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Parses each pair of name and content once, now and in the calls before."""

    known: Parses
    used: dict[tuple[str, bytes], ParsedFile] = field(default_factory=dict)

    def read(self, name: str, content: bytes) -> ParsedFile:
        key = (name, content)
        parsed = self.used.get(key) or self.known.get(key) or parse_file(name, content)
        self.used[key] = parsed
        return parsed


@dataclass(slots=True, kw_only=True)
class _Settled:
    """Which files are taken as listed, and which count as they were.

    A name only ever moves from `taken`, or from gone, to `kept`; to `unusable` only where what was
    applied does not hold by the rules of today (another release's): its bytes stay, unused.
    `extra`: the problems that no single file has.
    """

    listed: Mapping[str, ParsedFile]
    was: Mapping[str, ParsedFile]
    taken: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    unusable: set[str] = field(default_factory=set)
    extra: list[Problem] = field(default_factory=list)

    def candidates(self) -> dict[str, ParsedFile]:
        """What would be in force, as it stands."""
        kept = {name: self.was[name] for name in self.kept & self.was.keys() - self.unusable}
        return kept | {name: self.listed[name] for name in self.taken}

    def problems(self) -> tuple[Problem, ...]:
        own = [problem for file in self.listed.values() for problem in file.problems]
        return tuple(sorted(own, key=position)) + tuple(self.extra)

    def skipped(self) -> tuple[Skipped, ...]:
        files = sorted(self.listed.values(), key=lambda file: file.name)
        return tuple(skip for file in files for skip in file.skipped)

    def gone(self) -> set[str]:
        return self.was.keys() - self.listed.keys() - self.kept

    def keep(self, name: str, problem: Problem | None = None) -> None:
        self.taken.discard(name)
        self.kept.add(name)
        if problem is not None:
            self.extra.append(problem)


def _settle(listed: Mapping[str, ParsedFile], was: Mapping[str, ParsedFile]) -> _Settled:
    settled = _Settled(listed=listed, was=was)
    settled.unusable.update(name for name, file in was.items() if not _usable(file))
    for name in sorted(listed):
        file = listed[name]
        if _usable(file):
            settled.taken.add(name)
        elif not file.valid:
            settled.keep(name)
        elif name in was:
            settled.keep(name, _problem(name, _LOST))
    _keep_renamed(settled)
    while _keep_clashing(settled) or _keep_moving(settled):
        pass
    for name in sorted(settled.kept & settled.unusable):
        settled.extra.append(_problem(name, _UNUSABLE))
    return settled


def _keep_renamed(settled: _Settled) -> None:
    """A new file that cannot be read to its end may be what a gone one is called now."""
    new = sorted(settled.kept - settled.was.keys())
    unread = [name for name in new if not settled.listed[name].complete]
    for name in sorted(settled.gone()) if unread else ():
        settled.keep(name, _problem(name, f"{_GONE}: it may be {unread[0]} now, which is broken"))


def _keep_clashing(settled: _Settled) -> bool:
    problems = file_clashes(settled.candidates().values())
    clashing = clashing_files(problems)
    changed = {
        name
        for name in clashing & settled.taken
        if settled.listed[name] is not settled.was.get(name)
    }
    settled.extra.extend(_with_versions(problem, settled.kept) for problem in problems)
    for name in changed:
        settled.keep(name)
    if clashing and not changed:  # what was applied clashes with itself
        last = max(clashing)
        settled.keep(last)
        settled.unusable.add(last)
    return bool(clashing)


def _keep_moving(settled: _Settled) -> bool:
    """A model moves only when both files can be taken."""
    usable = settled.was.keys() - settled.unusable
    homes = {model: name for name in usable for model in settled.was[name].claims.models}
    there = {model for file in settled.candidates().values() for model in file.claims.models}
    held = False
    for name in sorted(settled.kept & settled.listed.keys()):
        for model in sorted(settled.listed[name].claims.models & (homes.keys() - there)):
            if (home := homes[model]) not in settled.kept:
                why = f"{name} names its model {model!r} and cannot be taken"
                settled.keep(home, _problem(home, f"counts as it was last applied: {why}"))
                held = True
    return held


_LOST = (
    "holds no ModelManifest any more, and counts as it was last applied; to stop its models, "
    "delete the file or say so with an empty list of models"
)
_UNUSABLE = "what was last applied is not valid either, by the rules of this release; not used"
_GONE = "is gone, and counts as it was last applied"
NO_MODELS = Problem(
    place=None,
    path="",
    message="no models are left, and no document says spec.allow_empty: true; nothing changes",
)


def no_manifest(files: int) -> Problem:
    """A listing of so many files holds nothing that could be applied."""
    counted = f"{files} file{'' if files == 1 else 's'}"
    message = f"no valid ModelManifest in the {counted} read; nothing changes"
    return Problem(place=None, path="", message=message)


def _problem(name: str, message: str) -> Problem:
    return Problem(place=Place(file=name, line=1, column=1), path="", message=message)


def _with_versions(problem: Problem, kept: set[str]) -> Problem:
    """Says which of the two places stands in what was applied, not in what is listed."""
    old = sorted(clashing_files([problem]) & kept)
    if not old:
        return problem
    return replace(problem, message=f"{problem.message} ({', '.join(old)} as last applied)")


def _usable(file: ParsedFile) -> bool:
    return file.valid and bool(file.documents)
