"""What the engines said of their load when they were looked at last, by model."""

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.apply.backends import BackendView
from reconciler.observe.progress import Progress
from reconciler.plan.ids import ModelName, Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    nonce: Nonce
    loaded_at: float
    progress: Progress


class EngineLoads:
    """A `proxy.local_loads.EngineFigures`. Where one process of a model follows another, the newer
    one's figures count."""

    def __init__(self) -> None:
        self._told: dict[ModelName, _Told] = {}

    def queued(self, model: ModelName) -> int | None:
        told = self._told.get(model)
        return None if told is None else told.progress.waiting

    def kv_usage(self, model: ModelName) -> float | None:
        told = self._told.get(model)
        return None if told is None else told.progress.kv_usage

    def take(self, view: BackendView, progress: Progress | None) -> None:
        """Of a loaded process. None: it does not say now, and what it said before is old."""
        assert view.loaded_at is not None
        before = self._told.get(view.model)
        if before is not None and before.nonce != view.nonce and before.loaded_at > view.loaded_at:
            return
        if progress is not None:
            self._told[view.model] = _Told(
                nonce=view.nonce, loaded_at=view.loaded_at, progress=progress
            )
        elif before is not None and before.nonce == view.nonce:
            del self._told[view.model]

    def keep_only(self, nonces: Collection[Nonce]) -> None:
        """Forget processes that are gone."""
        for gone in [model for model, told in self._told.items() if told.nonce not in nonces]:
            del self._told[gone]
