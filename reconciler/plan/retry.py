"""When a failure is tried again, as pure functions (R7). The loop stores what they return."""

import hashlib
from dataclasses import replace

from reconciler.plan.desired import DesiredModel
from reconciler.plan.ids import FilesDigest, SpecHash
from reconciler.plan.observed import Failure, FilesMissing, ObservedModel
from reconciler.plan.wording import ordinal

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
JITTER = 0.2
"""± this share: models that failed together do not come back together."""
EXITS_UNTIL_BLOCKED = 3
COSTLY_DELAY_SECONDS = 300.0
"""Doubling: a new spec whose tries stop the one that serves. For want of what the node lacks just
now they do not double, for nobody has learned anything of the spec."""
COSTLY_RETRIES = 3
_EARLIER_REASONS = 2
HEALTHY_AFTER_SECONDS = 600.0
"""Loaded for so long, a process was fine: its end starts a new row of failures."""


def next_attempt_at(failure: Failure, *, key: str) -> float | None:
    """When the instance may be tried again, on the clock of `failure.at`; None: not by itself.

    `key` (the model's name) spreads the jitter; the same failure always gets the same answer.
    """
    if failure.permanent:
        return None
    delay = _backoff_seconds(failure)
    if not failure.costly:
        delay *= _jitter(key, failure.count)
    return failure.at + max(delay, failure.retry_after_seconds or 0.0)


def after_failure(
    previous: Failure | None,
    *,
    spec_hash: SpecHash,
    files_digest: FilesDigest | None,
    at: float,
    reason: str,
    during: str,
    permanent: bool = False,
    damaged: bool = False,
    own_files_in_the_way: bool = False,
    exited: bool = True,
    ever_loaded: bool = False,
    costly: bool = False,
    shortage: bool = False,
    loaded_seconds: float | None = None,
    retry_after_seconds: float | None = None,
) -> Failure:
    """What is to be stored after a failure: it takes its place in the row of those before it.

    `previous`: what is stored for the model, of whatever instance. `exited`: the process ended by
    itself. `loaded_seconds`: how long the process that failed had been loaded; None: it was not.
    The other fields are `Failure`'s.
    """
    ever_loaded = ever_loaded or loaded_seconds is not None
    costly = costly and during in ("start", "load")
    failed = Failure(
        spec_hash=spec_hash,
        files_digest=files_digest,
        at=at,
        count=1,
        reason=reason,
        during=during,
        permanent=permanent,
        damaged=damaged,
        own_files_in_the_way=own_files_in_the_way,
        ever_loaded=ever_loaded,
        costly=costly,
        costly_tries=int(costly and not shortage),
        shortage=shortage,
        exited=exited and during in ("load", "run"),
        retry_after_seconds=retry_after_seconds,
    )
    if previous is not None and _same_instance(previous, failed):
        was_healthy = loaded_seconds is not None and loaded_seconds >= HEALTHY_AFTER_SECONDS
        in_a_row = _same_stage(previous, failed) and not was_healthy
        failed = replace(
            failed,
            count=previous.count + 1 if in_a_row else 1,
            costly_tries=failed.costly_tries + (previous.costly_tries if in_a_row else 0),
            ever_loaded=failed.ever_loaded or previous.ever_loaded,
            earlier=_earlier(previous, failed) if in_a_row else (),
        )
    dies_loading = failed.during == "load" and not failed.ever_loaded
    if (
        dies_loading
        and (failed.exited or not failed.costly)
        and failed.count >= EXITS_UNTIL_BLOCKED
    ):
        return replace(failed, permanent=True)
    if failed.costly and not shortage and failed.costly_tries > COSTLY_RETRIES:
        return replace(failed, permanent=True)
    return failed


def told(failure: Failure) -> str:
    """What went wrong, and how often; a crash loop by its name (R7)."""
    if failure.is_crash_loop:
        before = f"; before that: {'; '.join(failure.earlier)}" if failure.earlier else ""
        return f"crash loop, {failure.count} failures in a row: {failure.reason}{before}"
    if failure.count > 1:
        return f"{failure.reason}, {ordinal(failure.count)} failure in a row"
    return failure.reason


def failure_that_counts(wanted: DesiredModel, seen: ObservedModel) -> Failure | None:
    """The failure of exactly what is desired now. Cached files undo a failed fetch."""
    failure = seen.failure
    if failure is None or failure.during == "stop":
        return None
    key = wanted.fetch_key if failure.during == "fetch" else wanted.spec_hash
    if failure.spec_hash != key:
        return None
    files = seen.files
    if isinstance(files, FilesMissing):
        return failure if failure.files_digest is None else None
    if failure.during == "fetch" or failure.files_digest not in (None, files.digest):
        return None
    return failure


def _earlier(previous: Failure, failed: Failure) -> tuple[str, ...]:
    reasons = dict.fromkeys((previous.reason, *previous.earlier))
    return tuple(each for each in reasons if each != failed.reason)[:_EARLIER_REASONS]


def _same_instance(one: Failure, other: Failure) -> bool:
    digests = {one.files_digest, other.files_digest} - {None}
    return one.spec_hash == other.spec_hash and len(digests) <= 1


def _same_stage(one: Failure, other: Failure) -> bool:
    """A stage that was passed since ends the row of failures before it.

    A load follows a fetch and a start that went well; a crash and a failing load are one row, and
    so are all tries that stop what serves: there shall be few of them.
    """
    stages = {one.during, other.during}
    return len(stages) == 1 or stages == {"load", "run"} or (one.costly and other.costly)


def _backoff_seconds(failure: Failure) -> float:
    if failure.costly:
        return COSTLY_DELAY_SECONDS * 2.0 ** max(0, failure.costly_tries - 1)
    if failure.during == "load" and failure.count >= EXITS_UNTIL_BLOCKED:
        return LONGEST_DELAY_SECONDS
    doublings = min(failure.count - 1, 10)
    return min(FIRST_DELAY_SECONDS * 2.0**doublings, LONGEST_DELAY_SECONDS)


def _jitter(key: str, count: int) -> float:
    digest = hashlib.sha256(f"{key}\0{count}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return 1.0 - JITTER + 2.0 * JITTER * share
