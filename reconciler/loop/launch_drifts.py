"""How what this agent has adopted differs from what it would start in its place."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.apply.backends import BackendView
from reconciler.apply.launch_drift import launch_drift
from reconciler.backend.choice import Choice
from reconciler.backend.engines import Engines
from reconciler.errors import Rejected, Transient
from reconciler.loop.observation import Look, Looks, Views
from reconciler.masking import MASK
from reconciler.plan.desired import SecretRef
from reconciler.plan.ids import Nonce
from reconciler.plan.observed import FilesCached


@dataclass(frozen=True, slots=True)
class _Told:
    look: Look
    drift: str | None


class LaunchDrifts:
    """Each is reckoned once, and again where what would be started is something else by now.

    `environment`: the agent's own.
    """

    def __init__(self, engines: Engines, environment: Mapping[str, str]) -> None:
        self._engines = engines
        self._environment = environment
        self._told: dict[Nonce, _Told] = {}

    async def look(self, looks: Looks, views: Views) -> Mapping[Nonce, str]:
        """As clauses. Nothing of what this agent has started itself, nor of what is to be replaced
        anyway."""
        due = dict(_comparable(looks, views))
        before, self._told = self._told, {}
        for nonce, (view, look, files, choice) in due.items():
            told = before.get(nonce)
            if told is None or told.look is not look:
                told = _Told(look, await asyncio.to_thread(self._drift, view, look, files, choice))
            self._told[nonce] = told
        return {nonce: told.drift for nonce, told in self._told.items() if told.drift is not None}

    def _drift(
        self, view: BackendView, look: Look, files: FilesCached, choice: Choice
    ) -> str | None:
        """Secrets are not read for this: they are told by their names only."""
        own = look.desired.spec.env
        try:
            now = self._engines.launch(
                look.desired,
                files,
                choice,
                port=view.launch.port,
                environment=self._environment,
                secrets={name: MASK for name, each in own.items() if isinstance(each, SecretRef)},
            )
        except (Rejected, Transient):  # its next start will say so
            return None
        return launch_drift(view.launch.argv, view.launch_hash, view.pid, now, own)


def _comparable(
    looks: Looks, views: Views
) -> Iterator[tuple[Nonce, tuple[BackendView, Look, FilesCached, Choice]]]:
    for name, look in looks.items():
        choice, files = look.assessment.choice, look.files
        for view in views.get(name, ()):
            build = view.launch.build
            if (
                view.adopted is not None
                and not view.stopping
                and view.instance == look.wanted
                and view.gpus == look.desired.gpus
                and files is not None
                and choice is not None
                and (build is None or build.key == choice.build.key)
            ):
                yield view.nonce, (view, look, files, choice)
