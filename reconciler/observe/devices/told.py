"""Single values of a device, of a library that may not tell them all."""

from collections.abc import Callable
from typing import Any


class Told:
    """Asks for values of one device. What is not told is None, and noted where that is a fault.

    `of`: what the notes call the device. `failures`: the library's errors, which are kept in
    `errors`; `fault`: what to note of one, None for what the device merely does not have.
    """

    def __init__(
        self,
        of: str,
        notes: list[str],
        failures: type[Exception],
        fault: Callable[[Any], str | None],
    ) -> None:
        self.of = of
        self.errors: list[Any] = []
        self._notes = notes
        self._failures = failures
        self._fault = fault

    def value(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._failures as exc:
            self.errors.append(exc)
            said = self._fault(exc)
        except ValueError as exc:  # bytes that are no text, too
            said = str(exc)
        if said is not None:
            self._notes.append(f"{self.of}: its {what} is not told: {said}")
        return None
