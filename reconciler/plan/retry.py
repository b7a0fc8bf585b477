"""When a failure is tried again, as pure functions (R7). The loop stores what they return."""

import hashlib
from dataclasses import replace

from reconciler.plan.ids import FilesDigest, SpecHash
from reconciler.plan.observed import Failure

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
JITTER = 0.2
"""± this share: models that failed together do not come back together."""
EXITS_UNTIL_BLOCKED = 3
HEALTHY_AFTER_SECONDS = 600.0
"""Loaded for so long, a process was fine: its end starts a new row of failures."""


def next_attempt_at(failure: Failure, *, key: str) -> float | None:
    """When the instance may be tried again, on the clock of `failure.at`; None: not by itself.

    `key` (the model's name) spreads the jitter; the same failure always gets the same answer.
    """
    if failure.permanent:
        return None
    delay = _backoff_seconds(failure) * _jitter(key, failure.count)
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
    ever_loaded: bool = False,
    loaded_seconds: float | None = None,
    retry_after_seconds: float | None = None,
) -> Failure:
    """What is to be stored after a failure: it takes its place in the row of those before it.

    `previous`: what is stored for the model, of whatever instance. `loaded_seconds`: how long the
    process that failed had been loaded; None: it was not. Store only failures of the instance that
    is desired: another's would take the place of its block. The other fields are `Failure`'s.
    """
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
        ever_loaded=ever_loaded or loaded_seconds is not None,
        retry_after_seconds=retry_after_seconds,
    )
    if previous is not None and _same_instance(previous, failed):
        was_healthy = loaded_seconds is not None and loaded_seconds >= HEALTHY_AFTER_SECONDS
        in_a_row = _same_stage(previous, failed) and not was_healthy
        failed = replace(
            failed,
            count=previous.count + 1 if in_a_row else 1,
            ever_loaded=failed.ever_loaded or previous.ever_loaded,
        )
    dies_loading = failed.during == "load" and not failed.ever_loaded
    if dies_loading and failed.count >= EXITS_UNTIL_BLOCKED:
        return replace(failed, permanent=True)
    return failed


def _same_instance(one: Failure, other: Failure) -> bool:
    digests = {one.files_digest, other.files_digest} - {None}
    return one.spec_hash == other.spec_hash and len(digests) <= 1


def _same_stage(one: Failure, other: Failure) -> bool:
    """A stage that was passed since ends the row of failures before it.

    A load follows a fetch and a start that went well; a crash and a failing load are one row.
    """
    process = {"load", "run"}
    return one.during == other.during or {one.during, other.during} == process


def _backoff_seconds(failure: Failure) -> float:
    if failure.during == "load" and failure.count >= EXITS_UNTIL_BLOCKED:
        return LONGEST_DELAY_SECONDS
    doublings = min(failure.count - 1, 10)
    return min(FIRST_DELAY_SECONDS * 2.0**doublings, LONGEST_DELAY_SECONDS)


def _jitter(key: str, count: int) -> float:
    digest = hashlib.sha256(f"{key}\0{count}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return 1.0 - JITTER + 2.0 * JITTER * share
