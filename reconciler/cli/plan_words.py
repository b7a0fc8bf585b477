"""How a plan is put into words, whatever they are printed on (PURE)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.plan.balance import Balance
from reconciler.plan.changes import CHANGING, STARTING, Change, Evicted, NodeChanges, Verb
from reconciler.plan.memory import HOST
from reconciler.plan.phase import State
from reconciler.plan.wording import amount, span

SIGNS = {
    Verb.START: "+",
    Verb.RESTART: "~",
    Verb.SURGE: "^",
    Verb.REROUTE: ">",
    Verb.STOP: "-",
    Verb.REFUSED: "!",
    Verb.UNCHANGED: "=",
}
MEANINGS = {
    Verb.START: "start",
    Verb.RESTART: "restart: the old process stops first",
    Verb.SURGE: "surge: restart without a gap",
    Verb.REROUTE: "reroute: no restart",
    Verb.STOP: "stop",
    Verb.REFUSED: "refused",
    Verb.UNCHANGED: "unchanged",
}
_NOT_WRITTEN = "(not set)"
_DIGITS = 12
_EXPLAINED = 3
_KINDS = {
    "FetchFiles": "fetch",
    "StartBackend": "start",
    "StopBackend": "stop",
    "KeepBackend": "keep",
    "StopLeftover": "stop what is left of",
    "AbortFetch": "give up the download of",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Over all nodes. `longest_downtime_seconds`: of those that are known; None: none is."""

    download_bytes: int = 0
    downloads_of_unknown_size: int = 0
    evicted_bytes: int = 0
    longest_downtime_seconds: float | None = None
    downtimes_unknown: int = 0

    @property
    def figures(self) -> dict[str, int | float | None]:
        return {
            "download_bytes": self.download_bytes,
            "downloads_of_unknown_size": self.downloads_of_unknown_size,
            "evicted_bytes": self.evicted_bytes,
            "longest_downtime_seconds": self.longest_downtime_seconds,
            "downtimes_unknown": self.downtimes_unknown,
        }


def totals(nodes: Iterable[NodeChanges]) -> Totals:
    nodes = tuple(nodes)
    changes = [change for node in nodes for change in node.changes]
    fetched = [change for change in changes if change.fetch and not is_in_place(change)]
    gaps = [change.downtime_seconds for change in changes if change.verb is Verb.RESTART]
    known = [gap for gap in gaps if gap is not None]
    return Totals(
        download_bytes=sum(change.download_bytes or 0 for change in fetched),
        downloads_of_unknown_size=sum(change.download_bytes is None for change in fetched),
        evicted_bytes=sum(each.size_bytes for node in nodes for each in node.evictions),
        longest_downtime_seconds=max(known, default=None),
        downtimes_unknown=len(gaps) - len(known),
    )


def has_changes(nodes: Iterable[NodeChanges]) -> bool:
    return any(
        change.verb in CHANGING or change.held is not None
        for node in nodes
        for change in node.changes
    )


def count(nodes: Iterable[NodeChanges], verb: Verb) -> int:
    return sum(node.count(verb) for node in nodes)


def summary(nodes: Sequence[NodeChanges]) -> str:
    """`1 to start, 1 to restart, 0 to stop, 3 unchanged; 8.1 GiB to download; …`."""
    said = [f"{count(nodes, verb)} to {verb}" for verb in (Verb.START, Verb.RESTART, Verb.STOP)]
    said += [
        f"{number} to {verb}"
        for verb in (Verb.SURGE, Verb.REROUTE)
        if (number := count(nodes, verb))
    ]
    if refused := count(nodes, Verb.REFUSED):
        said.append(f"{refused} refused")
    if held := sum(change.held is not None for node in nodes for change in node.changes):
        said.append(f"{held} held back")
    counted = ", ".join([*said, f"{count(nodes, Verb.UNCHANGED)} unchanged"])
    unasked = sum(node.unasked is not None for node in nodes)
    missing = [f"{unasked} node{'' if unasked == 1 else 's'} not asked"] if unasked else []
    return "; ".join([counted, *_costs(totals(nodes)), *missing])


def _costs(found: Totals) -> Iterator[str]:
    unknown = found.downloads_of_unknown_size
    if found.download_bytes:
        more = f", and {unknown} of unknown size" if unknown else ""
        yield f"{amount(found.download_bytes)} to download{more}"
    elif unknown:
        yield f"{unknown} download{'' if unknown == 1 else 's'} of unknown size"
    if found.evicted_bytes:
        yield f"{amount(found.evicted_bytes)} leave the cache"
    without = found.downtimes_unknown
    if (longest := found.longest_downtime_seconds) is not None:
        more = f", and {without} not known" if without else ""
        yield f"longest gap about {span(longest)}{more}"
    elif without:
        yield f"{without} gap{'' if without == 1 else 's'} not known"


def gap(change: Change) -> str | None:
    """How long nothing of it serves, or until it does; None: there is nothing to say of that."""
    if change.verb is Verb.SURGE:
        return "no gap (surge)"
    if change.verb is Verb.START and change.ready_seconds is not None:
        return f"ready after about {span(change.ready_seconds)}"
    if change.verb is not Verb.RESTART:
        return None
    if change.downtime_seconds is None:
        # What loads or waits serves nobody.
        serves = change.state in (None, State.LOADED)
        return "gap unknown: no load of it is recorded" if serves else None
    if change.downtime_seconds == 0:
        return "no gap: nothing of it serves now"
    return f"gap about {span(change.downtime_seconds)}"


def is_in_place(change: Change) -> bool:
    return (change.source or "").startswith("file://")


def files(change: Change) -> str:
    """Where its files come from."""
    if is_in_place(change):
        return "used in place"
    if not change.fetch:
        return "already cached"
    if change.download_with is not None:
        return f"with the download of {change.download_with}"
    if change.download_bytes is None and change.cached_bytes is None:
        return "fetched from the hub unless it is cached"
    if change.download_bytes is None:
        return "fetched from the hub, which does not say how large it is"
    here = f", {amount(change.cached_bytes)} are cached" if change.cached_bytes else ""
    return f"download {amount(change.download_bytes)}{here}"


def pools(node: NodeChanges) -> tuple[Balance, ...]:
    """The memories that are told of: each GPU's, and the machine's."""
    return node.gpus if node.host is None else (*node.gpus, node.host)


def needs(change: Change, pools: Sequence[Balance]) -> Iterator[str]:
    """Of each memory, a sentence."""
    names = {each.gpu: f"{each.name}, which has {amount(each.total_bytes)}" for each in pools}
    # What is refused says in its reason what it needs; what stays as it is needs nothing new.
    for pool, need in change.needs.items() if change.verb in STARTING else ():
        yield f"needs {need}" if pool == HOST else f"needs {need} on {names.get(pool, pool)}"


def cure(change: Change) -> str | None:
    """How a block of the node's own is lifted; None: there is none, or the reason says it."""
    if change.verb is not Verb.REFUSED or change.state is not State.BLOCKED:
        return None
    return (
        "it is tried again once its entry, its files, the engine or the GPUs change; the same once "
        f"more: xgen-model reconcile --retry --model {change.model}"
    )


def elsewhere(node: NodeChanges) -> Iterator[str]:
    """The models that are not for this node: each with its reason, many by their names."""
    if len(node.elsewhere) <= _EXPLAINED:
        for other in node.elsewhere:
            yield f"{other.name} is not for this node: {other.reason}"
        return
    yield f"not for this node: {', '.join(other.name for other in node.elsewhere)}"


def evicted(each: Evicted) -> str:
    return f"{each.prefix} @ {each.revision[:_DIGITS]} ({amount(each.size_bytes)})"


def order(node: NodeChanges) -> str | None:
    """`fetch a → stop b → start a`, where more than one model is touched; else None. A download
    that brings the files of several stands there once."""
    if len({each.model for each in node.order}) < 2:
        return None
    shared = {each.model for each in node.changes if each.download_with is not None}
    shown = [each for each in node.order if each.kind != "FetchFiles" or each.model not in shared]
    return " → ".join(f"{_KINDS.get(each.kind, each.kind)} {each.model}" for each in shown)


def value(written: object) -> str:
    if written is None:
        return _NOT_WRITTEN
    return written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
