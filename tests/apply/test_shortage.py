"""What the node lacks just now is no fault of a spec, wherever the system says so."""

import errno

import pytest

from reconciler.apply.shortage import is_shortage
from reconciler.errors import Rejected, Transient


def raised(cause: OSError | None, kind: type[Exception] = Transient) -> Exception:
    try:
        try:
            try:
                if cause is not None:
                    raise cause
            except OSError as exc:
                raise kind("cannot write it") from exc
            raise kind("cannot write it")
        except kind as exc:
            raise kind("cannot start it") from exc
    except kind as exc:
        return exc


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN"])
@pytest.mark.parametrize("kind", [Transient, Rejected])
def test_it_is_found_behind_what_is_said_of_it(code: str, kind: type[Exception]) -> None:
    assert is_shortage(raised(OSError(getattr(errno, code), "no"), kind))


def test_other_failures_are_none() -> None:
    assert not is_shortage(raised(OSError(errno.ENOENT, "no")))
    assert not is_shortage(raised(None))
