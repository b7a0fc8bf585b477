"""What is asked of the Kubernetes API: one ConfigMap, its changes, and Events about it.

On aiohttp, which the agent has anyway (docs/adr/0004-kubernetes-on-aiohttp.md).
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from reconciler import __version__
from reconciler.source.kubeconfig import Cluster
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import ConfigMapAddress
from reconciler.source.kubernetes_entry import Entry, entry, ssl_context
from reconciler.source.kubernetes_failures import GONE, NO_API, ApiFailed, refused, unanswered

_MAX_ANSWER_BYTES = 32 << 20
"""etcd takes 1.5 MiB; JSON may write a byte as six."""
_METADATA_ALONE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""A peer that is gone without a word is noticed after 30 s; a watch is silent for minutes."""

Json = Mapping[str, Any]


class Metadata(msgspec.Struct):
    resourceVersion: str = ""
    uid: str = ""


class ConfigMap(msgspec.Struct):
    metadata: Metadata
    data: dict[str, str] | None = None
    binaryData: dict[str, str] | None = None


class _List(msgspec.Struct):
    kind: str
    metadata: Metadata
    items: list[ConfigMap] | None = None


class _Object(msgspec.Struct):
    """Of an ERROR it is a Status."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    code: int = 0
    message: str = ""


class _Line(msgspec.Struct):
    type: str
    object: _Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`version`: from which on to watch. `object` None: there is no such ConfigMap."""

    version: str
    object: ConfigMap | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """`version`: up to which the watch is. `changed`: it was changed, made or deleted."""

    version: str
    changed: bool


class KubernetesApi:
    """One API server. Close it (`aclosing`). Raises ApiFailed; of files Rejected or Transient."""

    def __init__(self, access: KubernetesAccess, *, answer_seconds: float = 30.0) -> None:
        self._access = access
        self._answer = aiohttp.ClientTimeout(total=answer_seconds, sock_connect=10.0)
        self._cluster: Cluster | None = None
        self._session: aiohttp.ClientSession | None = None
        self._renewing = asyncio.Lock()

    async def find(self, address: ConfigMapAddress) -> Found:
        """As it stands in the cluster's store now: a list is never older than what was written."""
        body = await self._ask("GET", _config_maps(address), params=_chosen(address))
        try:
            found = await asyncio.to_thread(msgspec.json.decode, body, type=_List)
        except msgspec.DecodeError as exc:
            raise ApiFailed(NO_API) from exc
        if found.kind != "ConfigMapList":
            raise ApiFailed(NO_API)
        items = found.items or []
        return Found(version=found.metadata.resourceVersion, object=items[0] if items else None)

    async def changes(
        self, address: ConfigMapAddress, version: str, *, seconds: float, grace_seconds: float
    ) -> AsyncGenerator[Heard, None]:
        """What is heard after `version`, for so long; at first that it is listened to.

        `grace_seconds`: how much later it is given up if the server does not end it.

        Raises ApiFailed; its status is 410 where `version` is too old.
        """
        params = {
            **_chosen(address),
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        limit = aiohttp.ClientTimeout(total=seconds + grace_seconds, sock_connect=10.0)
        headers = {"Accept": _METADATA_ALONE}
        path = _config_maps(address)
        async with self._asking("GET", path, params, limit, headers) as response:
            try:
                yield Heard(version=version, changed=False)
                async for line in _lines(response.content):
                    heard = _heard(line)
                    version = heard.version or version
                    yield Heard(version=version, changed=heard.changed)
            finally:
                _hang_up(response)

    async def create_event(self, namespace: str, event: Json) -> None:
        """Raises ApiFailed; its status is 409 where there is one of that name."""
        await self._ask("POST", f"/api/v1/namespaces/{namespace}/events", body=event)

    async def patch_event(self, namespace: str, name: str, change: Json) -> Json:
        """A merge patch. Returns the event as it is then."""
        path = f"/api/v1/namespaces/{namespace}/events/{name}"
        answer = await self._ask(
            "PATCH", path, body=change, headers={"Content-Type": "application/merge-patch+json"}
        )
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except msgspec.DecodeError as exc:
            raise ApiFailed(NO_API) from exc

    async def may_create_event(self, namespace: str) -> None:
        """A dry run: none is kept. Raises ApiFailed; its status is 403 where we may not."""
        name = "xgen-model.dry-run"
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": name},
        }
        path = f"/api/v1/namespaces/{namespace}/events"
        await self._ask("POST", path, params={"dryRun": "All"}, body=event)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        given = {"Content-Type": "application/json", **(headers or {})} if data else headers
        asking = self._asking(method, path, params or {}, self._answer, given or {}, data)
        async with asking as response:
            return await _all_of(response.content)

    @contextlib.asynccontextmanager
    async def _asking(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        limit: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
        data: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        now = await asyncio.to_thread(entry, self._access)
        session = await self._session_for(now.cluster)
        try:
            async with session.request(
                method,
                URL(now.cluster.server + path, encoded=True),
                params=params,
                data=data,
                timeout=limit,
                headers={"Accept": "application/json", **headers, **_authorization(now)},
                server_hostname=now.cluster.server_name,
                allow_redirects=False,
            ) as response:
                if response.status // 100 != 2:
                    body = await _all_of(response.content)
                    wait = response.headers.get("Retry-After", "")
                    raise refused(response.status, body, wait)
                yield response
        except (aiohttp.ClientError, OSError) as exc:
            raise unanswered(exc) from exc

    async def _session_for(self, cluster: Cluster) -> aiohttp.ClientSession:
        """A new one where the server, its authority or our certificate is another."""
        async with self._renewing:
            if self._session is None or cluster != self._cluster:
                context = await asyncio.to_thread(ssl_context, cluster)
                await self.aclose()
                connector = aiohttp.TCPConnector(ssl=context, socket_factory=_socket)
                agent = {"User-Agent": f"xgen-model/{__version__}"}
                jar = aiohttp.DummyCookieJar()
                self._session = aiohttp.ClientSession(
                    connector=connector, headers=agent, cookie_jar=jar
                )
                self._cluster = cluster
            return self._session


def _config_maps(address: ConfigMapAddress) -> str:
    return f"/api/v1/namespaces/{address.namespace}/configmaps"


def _chosen(address: ConfigMapAddress) -> dict[str, str]:
    """By name: a Role that names the object allows a list and a watch of this alone."""
    return {"fieldSelector": f"metadata.name={address.name}"}


def _authorization(now: Entry) -> dict[str, str]:
    return {} if now.token is None else {"Authorization": f"Bearer {now.token}"}


def _socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    made.setblocking(False)
    return made


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """At once, if it has not ended: a farewell of TLS would be waited for by nobody."""
    if (connection := response.connection) is not None and connection.transport is not None:
        connection.transport.abort()


async def _all_of(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > _MAX_ANSWER_BYTES:
            raise ApiFailed(f"its answer is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(body)


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Whole ones. What is left at the end was cut off, and is none."""
    rest = bytearray()
    async for chunk in content.iter_any():
        start = len(rest)
        rest += chunk
        while (end := rest.find(b"\n", start)) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]
            start = 0
        if len(rest) > _MAX_ANSWER_BYTES:
            raise ApiFailed(f"a line of its watch is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
    if rest.strip():
        raise ApiFailed("the watch was cut off in the middle of an event")


def _heard(line: bytes) -> Heard:
    try:
        said = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as exc:
        raise ApiFailed(NO_API) from exc
    if said.type == "ERROR":
        code = said.object.code
        what = f"the watch ended with {code}: {said.object.message[:200]}"
        raise ApiFailed("the version is too old" if code == GONE else what, status=code or None)
    return Heard(version=said.object.metadata.resourceVersion, changed=said.type != "BOOKMARK")
