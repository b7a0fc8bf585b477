"""A ConfigMap as a command reads it: once."""

import asyncio
from contextlib import aclosing

from reconciler.cli.bare_imports import import_aiohttp
from reconciler.errors import Rejected, XgenError
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import ConfigMapAddress, parse_config_map
from reconciler.source.snapshot import Snapshot

_ANSWER_SECONDS = 10.0


class NotRead(Rejected):
    """`status`: what the API server answered; None: nothing."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


def read_config_map(place: str, access: KubernetesAccess) -> Snapshot:
    """Raises NotRead, or Rejected where this is no ConfigMap's name."""
    import_aiohttp()
    return asyncio.run(_read(parse_config_map(place), access))


def missing_rights(place: str, access: KubernetesAccess) -> dict[str, str]:
    """What an agent could not do beside reading, with the cause: `watch` and `events`. Nothing is
    written."""
    import_aiohttp()
    return asyncio.run(_missing(parse_config_map(place), access))


async def _missing(address: ConfigMapAddress, access: KubernetesAccess) -> dict[str, str]:
    from reconciler.source.kubernetes_api import KubernetesApi

    missing = {}
    async with aclosing(KubernetesApi(access, answer_seconds=_ANSWER_SECONDS)) as api:
        try:
            found = await api.find(address)
            seconds = _ANSWER_SECONDS
            changes = api.changes(address, found.version, seconds=seconds, grace_seconds=0.0)
            async with aclosing(changes):
                await anext(changes)
        except XgenError as exc:
            missing["watch"] = str(exc)
        try:
            await api.may_create_event(address.namespace)
        except XgenError as exc:
            missing["events"] = str(exc)
    return missing


async def _read(address: ConfigMapAddress, access: KubernetesAccess) -> Snapshot:
    # Here: no other manifest needs them.
    from reconciler.source.kubernetes_api import KubernetesApi
    from reconciler.source.kubernetes_failures import NOT_FOUND, ApiFailed
    from reconciler.source.kubernetes_reader import ConfigMapReader

    async with aclosing(KubernetesApi(access, answer_seconds=_ANSWER_SECONDS)) as api:
        reader = ConfigMapReader(api, address)
        answer = await reader.read()
    if answer.snapshot.error is None:
        return answer.snapshot
    failure = reader.failure
    status = failure.status if isinstance(failure, ApiFailed) else None
    raise NotRead(answer.snapshot.error, NOT_FOUND if answer.reached else status)
