"""The command line's side of an agent's HTTP: finds it, asks it, says what to do if that fails."""

import ipaddress
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from reconciler.errors import Rejected, Transient
from reconciler.node.data_folder import read_json

Json = dict[str, Any]

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
SILENCE_SECONDS = 60.0
"""A stream says something (a comment, if nothing happens) more often than that."""


class UnknownModel(Rejected):
    """The node that answers has no such model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Where an agent answers. `folder`: the data folder that said so, with the agent's pid.
    `target`: the node that it asks instead of answering itself; None: it answers."""

    url: str
    target: str | None = None
    folder: Path | None = None
    pid: int | None = None

    def get(self, path: str, **query: str | int) -> Json:
        """The JSON object at a path. Raises Transient (no agent answers) or Rejected."""
        return self._ask("GET", path, params=query)

    def post(self, path: str, body: Json, *, seconds: float = ANSWER_SECONDS, **query: str) -> Json:
        """`seconds`: for the answer to come."""
        return self._ask("POST", path, seconds=seconds, json=body, params=query)

    def servers(self) -> Json:
        """The cluster's view."""
        return self.get("/api/cluster/servers")

    @contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, str | int],
        *,
        silence_seconds: float | None = SILENCE_SECONDS,
    ) -> Iterator[Iterator[str]]:
        """The lines of an answer that goes on. Raises as `get`, also between two lines.

        `silence_seconds`: how long nothing may come; None: for ever.
        """
        limits = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=silence_seconds)
        try:
            with (
                self._client(limits) as client,
                client.stream("GET", path, params=query) as answer,
            ):
                if not answer.is_success:
                    answer.read()
                self._check(answer)
                yield answer.iter_lines()
        except httpx.HTTPError as exc:
            raise Transient(self._away(exc)) from exc

    def _ask(self, method: str, path: str, *, seconds: float = ANSWER_SECONDS, **more: Any) -> Json:
        limits = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            with self._client(limits) as client:
                answer = client.request(method, path, **more)
        except httpx.HTTPError as exc:
            raise Transient(self._away(exc)) from exc
        self._check(answer)
        return _object(answer.text)

    def _client(self, limits: httpx.Timeout) -> httpx.Client:
        named = {} if self.target is None else {b"X-Target-Server": self.target.encode()}
        return httpx.Client(
            base_url=self.url,
            timeout=limits,
            trust_env=self._by_proxy,
            headers=named,
        )

    def _check(self, answer: httpx.Response) -> None:
        """Raise what an answer that is no success means, with the step that helps."""
        if "x-served-by" not in answer.headers:
            raise Rejected(
                f"cannot use {self.url}: what answers there is no xgen-model agent; "
                "name an agent's URL with --server, as in --server http://HOST:8000"
            )
        if answer.is_success:
            return
        error = _object(answer.text).get("error", {})
        message = error.get("message", f"{self.url} answers {answer.status_code}")
        if answer.status_code == httpx.codes.FORBIDDEN and self.target is None:
            message += "; run the command on the agent's own node"
        if error.get("code") in ("unknown_path", "method_not_allowed"):
            message = (
                f"cannot ask the agent at {self.url}: it does not know "
                f"{answer.request.method} {answer.request.url.path}; "
                "it is an older release than this command"
            )
        raise UnknownModel(message) if error.get("code") == "model_not_found" else Rejected(message)

    @property
    def who(self) -> str:
        agent = f"the agent at {self.url}"
        return agent if self.target is None else f"{self.target}, asked through {agent},"

    @property
    def has_ended(self) -> bool:
        """As far as its data folder tells."""
        return self.pid is not None and not Path(f"/proc/{self.pid}").exists()

    @property
    def _by_proxy(self) -> bool:
        """A proxy of the environment is for elsewhere; it would not find our loopback."""
        host = urlsplit(self.url).hostname or ""
        try:
            return not ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host != "localhost"

    def _away(self, exc: httpx.HTTPError) -> str:
        not_connected = isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout)
        if self.target is not None and not not_connected and (known := self._known()) is not None:
            return (
                f"cannot get an answer from {self.target}: {_cause_there(exc)} through the agent "
                f"at {self.url}, which works{known}; see the log of the agent of {self.target}"
            )
        said = f"cannot reach an agent at {self.url}: {_cause(exc)}"
        if self.folder is None:
            return f"{said}; is it running there? See its log, or name another with --server URL"
        if self.has_ended:
            return (
                f"{said}. {self.folder}/agent.json is what an agent left that has ended "
                f"(pid {self.pid}); start one with `xgen-model run`, or name another with "
                "--server URL or --data-dir"
            )
        return f"{said}; {self.folder} says that it answers there. See its log, or --server URL"

    def _known(self) -> str | None:
        """What the agent's view has of `target`, a clause; None: that agent does not answer."""
        asked = replace(self, target=None)
        try:
            servers = asked._ask("GET", "/api/cluster/servers", seconds=CONNECT_SECONDS)["servers"]
        except (Rejected, Transient):
            return None
        for each in servers:
            names = [each.get(name) for name in ("node", "pod_name", "pod_ip", "address")]
            if self.target in names and not each.get("reachable", True):
                since, why = each.get("unreachable_since"), each.get("reason")
                return f" and has it as not reachable since {since}: it {why}"
        return ""


def find_agent(server: str | None, folder: Path, target: str | None = None) -> Agent:
    """The agent of `--server`, else the one that the data folder names. `target`: the node that it
    is to ask. Raises Rejected."""
    agent = known_agent(server, folder, target)
    if agent is None:
        raise Rejected(
            f"cannot find an agent: {folder} names none. Start one with `xgen-model run`, "
            "or name one with --server URL or --data-dir"
        )
    return agent


def known_agent(server: str | None, folder: Path, target: str | None = None) -> Agent | None:
    """As `find_agent`; None where nothing names an agent."""
    if server is not None:
        return Agent(url=_checked(server), target=target)
    recorded = read_json(folder / "agent.json")
    url, pid = recorded.get("url"), recorded.get("pid")
    if not isinstance(url, str):
        return None
    return Agent(url=url, target=target, folder=folder, pid=pid if isinstance(pid, int) else None)


def segment(name: str) -> str:
    """A name as one part of a path. Dots alone would be taken for a way up, and vanish."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _checked(server: str) -> str:
    """The URL as written, `http://` where it has no scheme. Raises Rejected."""
    url = server if "://" in server else f"http://{server}"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise Rejected(f"cannot use --server {server}: {exc}") from exc
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise Rejected(f"cannot use --server {server}: it must look like http://HOST:8000")
    return url.rstrip("/")


def _object(text: str) -> Json:
    """An agent's JSON; empty for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _cause_there(exc: httpx.HTTPError) -> str:
    """Of a node that another agent asks."""
    if isinstance(exc, httpx.TimeoutException):
        return "none came in time"
    if isinstance(exc, httpx.RemoteProtocolError | httpx.ReadError):
        return "it broke off"
    return f"{_cause(exc)},"


def _cause(exc: httpx.HTTPError) -> str:
    match exc:
        case httpx.ConnectTimeout():
            return f"no connection within {CONNECT_SECONDS:.0f} s"
        case httpx.TimeoutException():
            return "it takes too long to answer"
        case httpx.ConnectError():
            text = str(exc)
            return "connection refused" if "refused" in text else text.removeprefix("[Errno -2] ")
        case httpx.RemoteProtocolError() | httpx.ReadError():
            return "it ended the connection"
        case _:
            return str(exc) or type(exc).__name__
