"""Whether an effect failed for what the node lacks just now, and nobody can tell for how long."""

import errno

_LACKING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,  # fork says so where there may be no more processes
    }
)


def is_shortage(error: BaseException) -> bool:
    """Whether the system's own refusal is behind it: no room on a disk, no memory, no more files or
    processes. The spec has no part in that."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _LACKING:
            return True
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return False
