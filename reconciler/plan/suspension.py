"""That nothing is started, stopped or restarted, of one model or on the whole node, and who says
so."""

from dataclasses import dataclass

from reconciler.plan.ids import ModelName, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """`model` None: of the whole node. `place`: where the manifest says so; None: a command did.

    Of a command: `by`, the `reason` (empty: none was given), `since` and `until` (RFC 3339, UTC;
    None: until it is lifted).
    """

    model: ModelName | None = None
    place: Place | None = None
    by: str = ""
    reason: str = ""
    since: str = ""
    until: str | None = None

    @property
    def who(self) -> str:
        """For a reason: `by kim@ops (driver update)`, `by the manifest`; no place, which other
        lines move."""
        if self.place is not None:
            return "by the manifest"
        return f"by {self.by} ({self.reason})" if self.reason else f"by {self.by}"

    @property
    def said(self) -> str:
        """All of it, as a clause."""
        if self.place is not None:
            return f"{self.who} ({self.place})"
        until = f" until {self.until}" if self.until is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"by {self.by} since {self.since}{until}{why}"
