"""What the cache asks for models that the hub does not hold. `node` hands an importer over."""

from collections.abc import Callable
from typing import Protocol

from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository


class Importer(Protocol):
    def bring(
        self,
        repository: Repository,
        *,
        file: str | None,
        format: Format,
        on_progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Have it in the hub, at the prefix that the repository has. Blocking.

        Whoever asks for the same meanwhile waits for the same import. `cancelled` ends the
        waiting. Raises Transient or Rejected.
        """
