"""The errors of the project. The type is the policy.

XgenError                 "cannot <verb> <object>: <cause>", naming file:line, model or backend
├── Transient             the world may be better later: try again after a while
│   ├── Gone              the hub answered, and does not have what was asked for
│   ├── BadCatalog        the hub answered, with a catalog that cannot be used
│   └── NoRoom            files that models need leave none for a download
├── Rejected              nothing helps until the manifest, the files or the node change
│   └── Damaged           the hub holds other bytes than it says, however often they are fetched
└── Bug                   our own fault: report it, keep everything running
"""


class XgenError(Exception):
    """A failure that an operator can read: `cannot <verb> <object>: <cause>`."""


class Transient(XgenError):
    """The same attempt may succeed later.

    `retry_after_seconds`: the other side's own wish, or None for our backoff.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Gone(Transient):
    """The hub answered: it does not have this content. It is there again once it is pushed."""


class BadCatalog(Transient):
    """The hub answered, with a catalog that cannot be used. It is whole again once it is pushed."""


class NoRoom(Transient):
    """Files that must stay leave no room for a download.

    `enough_from`: models of which each could make the room alone, if it gave up what only it needs.
    """

    def __init__(self, message: str, *, enough_from: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.enough_from = enough_from


class Rejected(XgenError):
    """The same attempt fails for ever, until something that it depends on changes."""


class Damaged(Rejected):
    """What the hub holds is not what it says it is. It helps to push it again."""


class Bug(XgenError):
    """A state that our own code must never reach."""
