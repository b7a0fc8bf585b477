"""What the demo of a cluster shows: requests through one node, and another one lost and back."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.markup import escape

from reconciler.cli.client import Json
from reconciler.cli.cluster_view import nodes as table_of_nodes
from reconciler.cli.demo_nodes import DemoNode, DemoNodes
from reconciler.cli.demo_tour import PROMPT, TEXT, command, curl, gist
from reconciler.cli.output import console as table_console
from reconciler.cli.output import show
from reconciler.errors import Rejected

SHARED = "gpt-4o-mini"
REQUESTS = 8
LONGEST_SECONDS = 300.0
"""For all models to load; for the view to tell of a loss or a return."""
_LOOK_SECONDS = 0.3
_SETTLED = ("loaded", "blocked", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDemo:
    agents: DemoNodes
    manifest: Path
    console: Console

    @property
    def first(self) -> DemoNode:
        """The node that everything is asked at."""
        return self.agents.nodes[0]

    @property
    def other(self) -> DemoNode:
        return self.agents.nodes[-2]

    @property
    def last(self) -> DemoNode:
        """The node that is lost."""
        return self.agents.nodes[-1]

    @property
    def embedding(self) -> Sequence[DemoNode]:
        """Those that have the model that embeds."""
        return self.agents.nodes[:-2] or self.agents.nodes[:1]

    @property
    def only_there(self) -> str:
        """The model that the last node alone has."""
        return f"gemma-{self.last.name}"


async def tour(demo: ClusterDemo) -> None:
    """Raises Rejected where something does not come out as it is told."""
    for node in demo.agents.nodes:
        demo.console.print(f"{node.name} listens on {node.address} (pid {demo.agents.start(node)})")
    demo.console.print()
    async with httpx.AsyncClient(base_url=demo.first.url, timeout=120, trust_env=False) as client:
        await _Tour(demo, client).go()


class _Tour:
    def __init__(self, demo: ClusterDemo, client: httpx.AsyncClient) -> None:
        self._demo = demo
        self._client = client
        self._print = demo.console.print
        self._said: dict[tuple[str, str], str] = {}

    async def go(self) -> None:
        try:
            await self._loaded()
            await self._any_node_answers()
            await self._replicas_share()
            await self._one_node_is_named()
            await self._a_node_is_lost()
            await self._it_comes_back()
        except (httpx.HTTPError, ValueError, KeyError) as exc:
            why = f"{str(exc) or type(exc).__name__}; its log is {self._demo.first.log}"
            raise Rejected(f"cannot show the cluster: {self._demo.first.url}: {why}") from exc

    async def _loaded(self) -> None:
        self._show_nodes(await self._served())

    async def _served(self) -> Json:
        """The view, once every model serves and every node knows it."""
        first, *others = self._demo.agents.nodes
        view = await self._view_when(self._all_serve, "every model serves", at=first)
        for node in others:
            await self._view_when(self._all_serve, f"{node.name} knows that", at=node)
        return view

    async def _any_node_answers(self) -> None:
        demo = self._demo
        self._step("Any node answers for the models of all")
        await self._ask("/v1/completions", _completion(demo.only_there), by=[demo.last])
        embedding = {"model": "gemma-embed", "input": TEXT}
        await self._ask("/v1/embeddings", embedding, at=demo.last, by=demo.embedding)

    async def _replicas_share(self) -> None:
        demo = self._demo
        names = {demo.other.name, demo.last.name}
        self._step(f"Two nodes have gemma: {REQUESTS} requests at once are shared among them")
        counted = await self._answered(self._burst())
        if counted.keys() != names:
            raise Rejected(f"cannot show how replicas share: {_told(counted)}")

    async def _one_node_is_named(self) -> None:
        demo = self._demo
        self._step("X-Target-Server leads to the node that you name, by its name or address")
        for node, name in ((demo.other, demo.other.name), (demo.last, demo.last.host)):
            await self._ask("/v1/completions", _completion(SHARED), by=[node], target=name)

    async def _a_node_is_lost(self) -> None:
        demo = self._demo
        self._step(f"{demo.last.name} loses its power: kill -9 of its agent and its models")
        burst = self._burst()
        try:
            await asyncio.wait(burst, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for request in burst:
                request.cancel()
            raise
        demo.agents.kill(demo.last)
        await self._answered(burst)
        counted = await self._answered(self._burst())
        if counted.keys() != {demo.other.name}:
            raise Rejected(f"cannot show that requests go on: {_told(counted)}")
        self._show_nodes(
            await self._view_when(self._lost, f"{demo.last.name} is lost", at=demo.first)
        )
        answer = await self._post(demo.first.url, "/v1/completions", _completion(demo.only_there))
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            said = f"{demo.only_there} answers {_refusal(answer)}"
            raise Rejected(f"cannot show what a loss means: {said}")
        why = escape(_refusal(answer))
        self._print(f"\n{demo.only_there} was there alone: [yellow]{why}[/]")

    async def _it_comes_back(self) -> None:
        demo = self._demo
        self._step(f"{demo.last.name} is started again, and comes back by itself")
        demo.agents.start(demo.last)
        self._show_nodes(await self._served())
        await self._ask("/v1/completions", _completion(demo.only_there), by=[demo.last])

    async def _ask(
        self,
        path: str,
        body: Json,
        *,
        by: Sequence[DemoNode],
        at: DemoNode | None = None,
        target: str | None = None,
    ) -> None:
        """`at`: the node that is asked, else the first. `by`: those of which one has
        to answer."""
        header = "" if target is None else f" -H 'X-Target-Server: {target}'"
        url = (at or self._demo.first).url
        self._print()
        self._print(curl(url, path, body) + header, style="bold", markup=False)
        answer = await self._post(url, path, body, target=target)
        served = answer.headers.get("x-served-by", "nobody")
        if not answer.is_success:
            raise Rejected(f"cannot show this: {served} answers {_refusal(answer)}")
        if served.partition("/")[0] not in {node.name for node in by}:
            right = " or ".join(node.name for node in by)
            raise Rejected(f"cannot show this: served by {served}, not by {right}")
        self._print(f"  {gist(answer.json())}   [dim](served by {served})[/]")

    async def _post(
        self, url: str, path: str, body: Json, *, target: str | None = None
    ) -> httpx.Response:
        named = {} if target is None else {"X-Target-Server": target}
        return await self._client.post(url + path, json=body, headers=named)

    def _burst(self) -> list[asyncio.Task[httpx.Response]]:
        """Requests for the model that two nodes have, all at once."""
        url, body = self._demo.first.url, _completion(SHARED)
        return [
            asyncio.create_task(self._post(url, "/v1/completions", body), name="request")
            for _ in range(REQUESTS)
        ]

    async def _answered(self, burst: list[asyncio.Task[httpx.Response]]) -> Counter[str]:
        """How many of the requests each node has answered. Raises Rejected."""
        answers = await asyncio.gather(*burst)
        for answer in answers:
            if not answer.is_success:
                raise Rejected(f"cannot get an answer of {SHARED}: {_refusal(answer)}")
        nodes = Counter(answer.headers["x-served-by"].partition("/")[0] for answer in answers)
        retried = sum("x-retried" in answer.headers for answer in answers)
        again = f", {retried} of them at the second try (X-Retried: 1)" if retried else ""
        self._print(f"  all answered: {_told(nodes)}{again}")
        return nodes

    async def _view_when(self, holds: Callable[[Json], bool], what: str, *, at: DemoNode) -> Json:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while True:
                    view = await self._view(at)
                    if holds(view):
                        return view
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as exc:
            raise Rejected(f"cannot see within {LONGEST_SECONDS:.0f} s that {what}") from exc

    async def _view(self, node: DemoNode) -> Json:
        """Empty until the node answers. What the first one learns of any model is printed."""
        try:
            view: Json = (await self._client.get(f"{node.url}/api/cluster/servers")).json()
        except httpx.ConnectError:
            return {"servers": []}
        if node == self._demo.first:
            for server in view["servers"]:
                for model in server["models"] if server["reachable"] else ():
                    self._follow(server["node"], model)
        return view

    def _follow(self, node: str, model: Json) -> None:
        state, key = model["state"], (node, model["name"])
        if self._said.get(key) == state:
            return
        self._said[key] = state
        why = f": {model['reason']}" if state in _SETTLED[1:] else ""
        self._print(f"  {node:<8} {model['name']:<14} {state}{why}", markup=False)

    def _all_serve(self, view: Json) -> bool:
        """Raises Rejected where it never will: the manifest was edited, most likely."""
        demo = self._demo
        wanted = {(demo.other.name, "gemma"), (demo.last.name, "gemma")} | {
            (demo.last.name, demo.only_there),
            *((node.name, "gemma-embed") for node in demo.embedding),
        }
        there = [server for server in view["servers"] if server["reachable"]]
        missing = wanted - {
            (server["node"], model["name"]) for server in there for model in server["loaded_models"]
        }
        if missing and len(there) == len(demo.agents.nodes) and all(s["ready"] for s in there):
            node, model = min(missing)
            raise Rejected(
                f"cannot show the cluster: {node} does not serve {model}; remove "
                f"{demo.manifest}, so that it is written anew, or see {demo.manifest.parents[1]}"
            )
        return not missing

    def _lost(self, view: Json) -> bool:
        name = self._demo.last.name
        return any(s["node"] == name and not s["reachable"] for s in view["servers"])

    def _show_nodes(self, view: Json) -> None:
        out = table_console()
        self._print()
        show(out, table_of_nodes(view["servers"], width=out.width))

    def _step(self, title: str) -> None:
        self._print(f"\n[bold]{title}[/]")


def _completion(model: str) -> Json:
    return {
        "model": model,
        "prompt": PROMPT,
        "max_tokens": 8,
        "temperature": 0,
        "stop": ["\n"],
    }


def _refusal(answer: httpx.Response) -> str:
    """The status and the message of an error in OpenAI's shape."""
    return f"{answer.status_code}: {answer.json()['error']['message']}"


def _told(counted: Counter[str]) -> str:
    return ", ".join(f"{count} by {node}" for node, count in sorted(counted.items()))


def invite(demo: ClusterDemo) -> None:
    url, other = demo.first.url, demo.other
    demo.console.print(
        f"""
[bold]Now it is yours.[/] Edit {demo.manifest}, which all nodes read, or try:
  who has it    curl {url}/v1/models
  why there     curl '{url}/api/cluster/route?model={SHARED}'
  a crash       kill -9 {demo.agents.pid(other)}: {other.name}'s agent; its models serve on
The view:       {command()} status --watch --server {url}
The agents' logs are {demo.manifest.parents[1]}/*/agent.log, the models' logs in */logs beside them.
Ctrl-C ends everything and leaves no process behind.
"""
    )
