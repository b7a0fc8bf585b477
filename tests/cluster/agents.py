"""Agents on the hosts of a network, with one hub, that find each other by DNS."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.names import NAME, Names
from tests.cluster.network import Host, Network
from tests.e2e.agent import Agent, Entry, llama_server_stand_in
from tests.e2e.conftest import end_agents
from tests.waiting import wait_for

PORT = 8000


@dataclass(kw_only=True)
class Member(Agent):
    """One agent of the cluster. A test asks it from outside its host."""

    host: Host

    @property
    def url(self) -> str:
        return f"http://{self.host.ipv4}:{PORT}"

    @property
    def pod_name(self) -> str:
        return self.environment["POD_NAME"]

    def kill(self) -> None:
        """The agent alone, as by the kernel; what it has started goes on."""
        self.stop(signal.SIGKILL)

    def die(self) -> None:
        """All that runs there at once, as when a machine ends."""
        self.kill()
        for pid in self.processes():
            self.end_stranger(pid)

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def view(self) -> dict[str, Entry]:
        """Its view of all nodes, by name."""
        answer = self.client.get(f"{self.url}/api/cluster/servers")
        answer.raise_for_status()
        return {server["node"]: server for server in answer.json()["servers"]}

    def wait_view(
        self, holds: Callable[[dict[str, Entry]], bool], *, what: str, seconds: float = 60.0
    ) -> dict[str, Entry]:
        """Until its view is so."""

        def look() -> dict[str, Entry] | None:
            view = self.view()
            return view if holds(view) else None

        try:
            return wait_for(look, what=what, seconds=seconds)
        except AssertionError as exc:
            shown = "\n".join(_gist(self.view()))
            raise AssertionError(f"{exc}\n{shown}\nlog:\n{self.recent_log}") from exc

    def wait_reachable(self, node: str, reachable: bool, *, seconds: float = 60.0) -> Entry:
        """How it shows that node, once it does or does not reach it."""
        return self.wait_view(
            lambda view: node in view and view[node]["reachable"] is reachable,
            what=f"{self.node} shows {node} as {'' if reachable else 'un'}reachable",
            seconds=seconds,
        )[node]

    def wait_reason(self, node: str, *words: str) -> Entry:
        """How it shows a node that it does not reach, once the reason has one of these."""
        return self.wait_view(
            lambda view: any(word in (view[node]["reason"] or "") for word in words),
            what=f"{self.node} says of {node}: {words}",
        )[node]

    def wait_serving(self, model: str, *nodes: str, seconds: float = 120.0) -> None:
        """Until its view has these nodes, and no others, serve it."""
        self.wait_view(
            lambda view: serving(view, model) == set(nodes),
            what=f"{self.node} shows {model} served by {nodes}",
            seconds=seconds,
        )


def serving(view: dict[str, Entry], model: str) -> set[str]:
    """The nodes that serve it, of those that are reached."""
    return {
        node
        for node, server in view.items()
        if any(entry["name"] == model for entry in server["loaded_models"])
    }


def _gist(view: dict[str, Entry]) -> Iterator[str]:
    """For the message of a failed test."""
    for node, server in view.items():
        yield f"{node}: {server['reason'] or 'reachable'}"
        for entry in server["models"]:
            yield f"    {entry['name']}: {entry['state']}: {entry['reason']}"


@dataclass(kw_only=True)
class Cluster:
    """`members`: node-a, node-b, … by their hosts' names."""

    network: Network
    names: Names
    members: dict[str, Member]

    def write(self, text: str) -> None:
        """The same manifest everywhere."""
        for member in self.members.values():
            member.write(text)

    def heal(self) -> None:
        """Undo every harm, start who has ended, and wait until each reaches all."""
        for name, member in self.members.items():
            self.network.mend(name)
            if member.process is None or member.exited is not None:
                member.start()
            member.thaw()
        self.names.revive()
        self.names.tell(*self.addresses())
        for member in self.members.values():
            member.wait_up()
        for member in self.members.values():
            member.wait_view(self._whole, what=f"{member.node} reaches all", seconds=90)

    def _whole(self, view: dict[str, Entry]) -> bool:
        return sorted(view) == sorted(member.node for member in self.members.values()) and all(
            server["reachable"] for server in view.values()
        )

    def addresses(self, *hosts: str) -> list[str]:
        """For the DNS: the IPv4 addresses of these, or of all."""
        return [self.network.hosts[name].ipv4 for name in hosts or self.members]


@contextmanager
def cluster_on(network: Network, names: Names, folder: Path) -> Iterator[Cluster]:
    """A member on every host, not started yet. Nothing of them stays."""
    members = {}
    hub = folder / "hub"
    hub.mkdir()
    for name, host in network.hosts.items():
        root = folder / name
        root.mkdir()
        (root / "hub").symlink_to(hub)
        members[name] = Member(
            root=root,
            host=host,
            node=f"node-{name}",
            listen=f"0.0.0.0:{PORT}",
            args=[
                *("--llama-server", str(llama_server_stand_in(root))),
                *("--peers", f"dns:{NAME}:{PORT}"),
            ],
            environment={"POD_NAME": f"agent-{name}-0", "POD_IP": host.ipv4},
            wrapper=host.inside,
        )
    next(iter(members.values())).model_file()
    try:
        yield Cluster(network=network, names=names, members=members)
    finally:
        for member in members.values():
            if member.process is not None and member.exited is None:
                member.thaw()
        end_agents(list(members.values()))
