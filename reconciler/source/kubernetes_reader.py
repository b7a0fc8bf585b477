"""One ConfigMap of the Kubernetes API, read as often as it is asked."""

import asyncio

from reconciler.errors import XgenError
from reconciler.source.asking import Answer
from reconciler.source.kubernetes_address import ConfigMapAddress
from reconciler.source.kubernetes_api import Found, KubernetesApi
from reconciler.source.kubernetes_listing import snapshot_of
from reconciler.source.snapshot import Snapshot


class ConfigMapReader:
    """Reads by `api`. `found`: what the newest read that was answered came to.

    `failure`: why the newest one was not; None: it was.
    """

    def __init__(self, api: KubernetesApi, address: ConfigMapAddress) -> None:
        self._api = api
        self._address = address
        self._last = Snapshot(location=address.shown, revision="")
        self.found: Found | None = None
        self.failure: XgenError | None = None

    async def read(self) -> Answer:
        """What it holds now. Never raises for what the world is like.

        One that is not there is an error, never an empty one (R2); the revision stays the last.
        """
        self.failure = None
        try:
            found = await self._api.find(self._address)
        except XgenError as exc:
            self.failure = exc
            wait = getattr(exc, "retry_after_seconds", None)
            return Answer(snapshot=self._failed(str(exc)), reached=False, wait_seconds=wait)
        if found.object is None:
            self.found = found
            where = f"namespace {self._address.namespace}"
            cause = f"there is no ConfigMap {self._address.name} in {where}"
            return Answer(snapshot=self._failed(cause), reached=True)
        if self.found is None or found.object != self.found.object:
            held = found.object
            self._last = await asyncio.to_thread(
                snapshot_of, self._address.shown, held.data, held.binaryData
            )
        self.found = found
        return Answer(snapshot=self._last, reached=True)

    def _failed(self, cause: str) -> Snapshot:
        shown = self._address.shown
        return Snapshot(
            location=shown, revision=self._last.revision, error=f"cannot read {shown}: {cause}"
        )
