"""What the demo shows: the states as they move, two real answers, and things to try."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.node.agent import Up
from reconciler.node.shutdown import Shutdown
from reconciler.plan.phase import State
from reconciler.status import Status

PROMPT = "Q: What is the capital of France?\nA:"
TEXT = "A cat sleeps on the sofa."
MODELS = ("gemma", "gemma-embed")

_COLOURS = {State.LOADED: "green", State.ERROR: "red", State.BLOCKED: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    manifest: Path
    folder: Path
    once: bool
    console: Console


async def tour(demo: Demo, up: Up, shutdown: Shutdown) -> int:
    """Follow the agent until its models answer; then ask, and stay unless told not to."""
    console = demo.console
    console.print(f"node {up.node} answers at {up.url}\n")
    follower = Follower(console)
    status = up.board.current()
    while not status.ready:
        if demo.once and (wrong := _refused(status)):
            console.print(f"\n[red]the manifest is refused:[/] {wrong}")
            return 1
        status = await up.board.newer_than(status.version)
        follower.show(status)
    missing = _not_loaded(status)
    answered = not missing and await _ask(demo, up)
    if missing:
        console.print(f"\n[red]not loaded: {', '.join(missing)}[/]; nothing is asked")
    if demo.once or not (missing or answered):
        return 0 if answered else 1
    _invite(demo, up, status)
    while True:
        status = await up.board.newer_than(status.version)
        follower.show(status)


class Follower:
    """Prints each model's step to another state, and what is wrong with the manifest, once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: dict[str, str] = {}

    def show(self, status: Status) -> None:
        for model in status.models:
            text = f"{model.state}: {model.reason}"
            if model.target:
                text += f" (coming: {model.target.state}, {model.target.reason})"
            if model.aliases:
                text += f"   aliases: {', '.join(model.aliases)}"
            key = f"{model.state} {model.pid} {model.aliases} {model.target}"
            self._say(model.name, key, model.state, text, model.last_lines[-5:])
        for gone in self._said.keys() - {m.name for m in status.models} - {"manifest"}:
            del self._said[gone]
            self._console.print(f"  {gone:<12} gone")
        bad = [c.message for c in status.conditions if c.status == "False" and _matters(c)]
        if bad:
            text = "; ".join(bad)
            self._say("manifest", text, State.ERROR, text, ())
        elif self._said.pop("manifest", None):
            self._console.print(f"  {'manifest':<12} [green]good again[/]")

    def _say(self, name: str, key: str, state: State, text: str, lines: tuple[str, ...]) -> None:
        if self._said.get(name) == key:
            return
        self._said[name] = key
        self._console.print(f"  {name:<12} ", end="")
        self._console.print(text, style=_COLOURS.get(state, "yellow"), markup=False)
        for line in lines:
            self._console.print(f"      {line}", style="dim", markup=False)


def _matters(condition: Condition) -> bool:
    """Not before the first read of the manifest, a moment after the start; and not what the models'
    own lines say."""
    own = (
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.DEGRADED,
    )
    return condition.type not in own and condition.reason is not Reason.NOTHING_GOOD_YET


def _refused(status: Status) -> str | None:
    """What is wrong with the manifest, where nothing good is in force that could become ready."""
    if status.models:
        return None
    invalid = (ConditionType.MANIFEST_VALID, Reason.INVALID)
    return next((c.message for c in status.conditions if (c.type, c.reason) == invalid), None)


def _not_loaded(status: Status) -> list[str]:
    loaded = {model.name for model in status.models if model.state is State.LOADED}
    return [name for name in MODELS if name not in loaded]


async def _ask(demo: Demo, up: Up) -> bool:
    console = demo.console
    completion: dict[str, object] = {
        "model": "gpt-4o-mini",
        "prompt": PROMPT,
        "max_tokens": 8,
        "temperature": 0,
        "stop": ["\n"],
    }
    embedding: dict[str, object] = {"model": "gemma-embed", "input": TEXT}
    async with httpx.AsyncClient(base_url=up.url, timeout=120, trust_env=False) as client:
        for path, body in (("/v1/completions", completion), ("/v1/embeddings", embedding)):
            console.print()
            console.print(curl(up.url, path, body), style="bold", markup=False)
            answer = await client.post(path, json=body)
            if answer.status_code != 200:
                console.print(f"[red]answered {answer.status_code}:[/] {answer.text}")
                return False
            served = answer.headers.get("x-served-by")
            console.print(f"  {gist(answer.json())}   [dim](served by {served})[/]")
    return True


def gist(answer: dict[str, object]) -> str:
    match answer:
        case {"choices": [{"text": str(text)}, *_]}:
            return f"[green]{text.strip()}[/]"
        case {"data": [{"embedding": [*numbers]}, *_]}:
            head = ", ".join(f"{number:.4f}" for number in numbers[:4])
            return f"{len(numbers)} numbers: [green]{head}, …[/]"
        case _:
            return json.dumps(answer)


def command() -> str:
    """How this program was called, to be called again from the same folder."""
    called = Path(sys.argv[0])
    return "python -m reconciler" if called.name == "__main__.py" else str(called)


def curl(url: str, path: str, body: dict[str, object]) -> str:
    """A command line that sends this request, to copy."""
    return (
        f"curl {url}{path} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def _invite(demo: Demo, up: Up, status: Status) -> None:
    pid = next((model.pid for model in status.models if model.name == MODELS[0]), None)
    demo.console.print(
        f"""
[bold]Now it is yours.[/] Edit {demo.manifest} and watch here:
  an alias      add one to `aliases`: it answers at once, and the pid stays the same
  a mistake     write `nmae:` or break the YAML: it is named here, and both models go on serving
  a change      another `ctx_size`: only that model restarts
  a crash       kill -9 {pid}: noticed at once, and started again
The view:       curl {up.url}/cluster   or   {command()} status --server {up.url}
The agent's log is {demo.folder}/agent.log, the models' logs are in {demo.folder}/state/logs.
Ctrl-C ends everything and leaves no process behind.
"""
    )
