"""Reads published files whole and compares them with what the hub said of them."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.cache.record import RecordedObject
from reconciler.cache.stamps import Proof, Stamp, proof_of, stamp_of
from reconciler.errors import Transient

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """`fault`: what is wrong with the content; None: it is right, and `stamp` says how it looks."""

    proof: Proof
    fault: str | None = None
    stamp: Stamp | None = None


def check_file(
    path: str,
    item: RecordedObject,
    *,
    on_bytes: Callable[[int], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Checked:
    """Compare a file with its record: by SHA-256, else by MD5, else by its size alone.

    Blocking; `on_bytes` is told how many more were read. Raises Transient when cancelled, and while
    somebody writes to the file; OSError where it cannot be read.
    """
    proof = proof_of(item)
    with open(path, "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        if before.st_size != item.size_bytes:
            fault = f"it has {before.st_size} bytes, {item.size_bytes} were pushed"
            return Checked(proof=proof, fault=fault)
        found = _digest(file.fileno(), proof, on_bytes, cancelled)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Transient(f"cannot check {path}: somebody writes to it")
    expected = item.sha256 if proof is Proof.SHA256 else item.md5
    if found is not None and expected is not None and found != expected.lower():
        fault = f"its {proof.upper()} is {found}, that of what was pushed is {expected.lower()}"
        return Checked(proof=proof, fault=fault)
    return Checked(proof=proof, stamp=stamp_of(after, proof))


def _digest(
    fd: int, proof: Proof, on_bytes: Callable[[int], None], cancelled: Callable[[], bool]
) -> str | None:
    """None where there is nothing to compare with."""
    if proof is Proof.SIZE:
        return None
    digest = hashlib.new(proof.value, usedforsecurity=False)
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    while count := os.readv(fd, [buffer]):
        if cancelled():
            raise Transient("cannot go on checking files: it is no longer wanted")
        digest.update(buffer[:count])
        on_bytes(count)
    return digest.hexdigest()
