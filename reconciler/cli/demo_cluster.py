"""`xgen-model demo --nodes N`: a cluster on one machine, one agent a process and an address."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from reconciler.cli.agent_process import ENDING
from reconciler.cli.demo_cluster_tour import ClusterDemo, invite, tour
from reconciler.cli.demo_files import PREFIX, free_port, introduce, prepare
from reconciler.cli.demo_nodes import Death, DemoNode, DemoNodes
from reconciler.errors import Rejected
from reconciler.plan.ids import NodeName

MOST_NODES = 5
RESTART_SECONDS = 5.0
"""So long the view has to show that a node is lost, before it is started again."""
_FIRST_PORT, _PORTS = 18000, 100
_LAST_LINES = 5


def run_cluster(folder: Path, *, count: int, port: int, once: bool, console: Console) -> int:
    """Start the agents, show what they are together, and stay unless `once`. Raises Rejected."""
    console.print(
        f"[bold]xgen-model demo --nodes {count}[/]: a cluster on one machine, with a real model\n"
    )
    introduce(console, folder)
    console.print("  disk      253 MB in the hub, and as much in the cache of each node\n")
    place = folder / f"cluster-of-{count}"
    manifest = place / "manifests" / "models.yaml"
    nodes = _nodes(place, count, port)
    prepare(folder, console, manifest=manifest, text=_manifest([node.name for node in nodes]))
    agents = DemoNodes(nodes, manifests=manifest.parent, hub=folder / "hub")
    demo = ClusterDemo(agents=agents, manifest=manifest, console=console)
    return asyncio.run(_main(demo, once=once))


def _nodes(place: Path, count: int, port: int) -> Sequence[DemoNode]:
    nodes = []
    for at, letter in enumerate("abcde"[:count]):
        name, host = NodeName(f"demo-{letter}"), f"127.0.0.{at + 1}"
        first = _FIRST_PORT + at * _PORTS
        nodes.append(
            DemoNode(
                name=name,
                host=host,
                port=free_port(port, host=host),
                ports=range(first, first + _PORTS),
                folder=place / name,
            )
        )
    return nodes


def _manifest(names: Sequence[NodeName]) -> str:
    """The last node has a model of its own, and one that the node before has, too; the others,
    or the first one, have one that embeds."""
    *_, other, last = names
    return f"""\
# Edit this file while the demo runs; every node reads it again as soon as you save it.
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {{name: demo-cluster}}
spec:
  models:
    - name: gemma
      aliases: [gpt-4o-mini]
      source: {PREFIX}
      type: llm
      gpus: 0
      nodes: [{other}, {last}]
      max_in_flight: 2
      extra_args: {{ctx_size: 1024, parallel: 2, threads: 1}}
    - name: gemma-{last}
      source: {PREFIX}
      type: llm
      gpus: 0
      nodes: [{last}]
      extra_args: {{ctx_size: 512, parallel: 1, threads: 1}}
    - name: gemma-embed
      source: {PREFIX}
      type: embedding
      gpus: 0
      nodes: [{", ".join(names[:-2] or names[:1])}]
      extra_args: {{ctx_size: 512, pooling: mean, threads: 1}}
"""


async def _main(demo: ClusterDemo, *, once: bool) -> int:
    """A signal ends the demo: 1 where it was to come to an end by itself, else 0."""
    agents, loop = demo.agents, asyncio.get_running_loop()
    shown = asyncio.create_task(_show(demo, once=once), name="demo")

    def end() -> None:
        if not shown.cancel():
            agents.hurry()

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)
    async with agents:
        await asyncio.wait([shown])
    return int(once) if shown.cancelled() else shown.result()


async def _show(demo: ClusterDemo, *, once: bool) -> int:
    touring = asyncio.create_task(tour(demo), name="tour")
    dying = asyncio.create_task(demo.agents.deaths.get(), name="deaths")
    try:
        await asyncio.wait([touring, dying], return_when=asyncio.FIRST_COMPLETED)
        if dying.done():
            raise Rejected(_ended_by_itself(dying.result()))
        touring.result()
    finally:
        touring.cancel()
        dying.cancel()
        await asyncio.gather(touring, dying, return_exceptions=True)
    if once:
        return 0
    invite(demo)
    while True:
        death = await demo.agents.deaths.get()
        _say_lost(demo, death)
        await asyncio.sleep(RESTART_SECONDS)
        pid = demo.agents.start(death.node, crash=death.how)
        demo.console.print(f"  {death.node.name} is started again (pid {pid})")


def _say_lost(demo: ClusterDemo, death: Death) -> None:
    demo.console.print(
        f"  {death.node.name} has ended ({death.how}); it is started again in "
        f"{RESTART_SECONDS:.0f} s"
    )


def _ended_by_itself(death: Death) -> str:
    try:
        lines = death.node.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
    except OSError:
        lines = []
    return "\n    ".join(
        [
            f"cannot go on: the agent of {death.node.name} has ended by itself, {death.how}; "
            f"the end of its log {death.node.log}:",
            *lines,
        ]
    )
