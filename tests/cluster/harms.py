"""What befalls a node: each takes the cluster and the name of the node's host.

`Cluster.heal` undoes all of them.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from tests.cluster.agents import Cluster

Harm = Callable[[Cluster, str], None]


def kill(cluster: Cluster, name: str) -> None:
    """The agent alone."""
    cluster.members[name].kill()


def kill_without_dns(cluster: Cluster, name: str) -> None:
    cluster.names.stop()
    cluster.members[name].kill()


def kill_engine(cluster: Cluster, name: str) -> None:
    """Of all its models; the agent goes on."""
    for entry in cluster.members[name].self_view()["models"]:
        if entry["pid"] is not None:
            with suppress(ProcessLookupError):
                os.kill(entry["pid"], signal.SIGKILL)


def die(cluster: Cluster, name: str) -> None:
    """Agent and engines, at once."""
    cluster.members[name].die()


def stop(cluster: Cluster, name: str) -> None:
    """In order."""
    assert cluster.members[name].stop(signal.SIGTERM) == 0


def freeze(cluster: Cluster, name: str) -> None:
    """The agent hangs, and its kernel keeps its connections."""
    cluster.members[name].freeze()


def cut(cluster: Cluster, name: str) -> None:
    cluster.network.cut(name)


def mute(cluster: Cluster, name: str) -> None:
    """What node-a says arrives there, and no answer at node-a."""
    cluster.network.bar("a", name)


def deafen(cluster: Cluster, name: str) -> None:
    """What node-a says does not arrive there."""
    cluster.network.bar(name, "a")


def lose_most(cluster: Cluster, name: str) -> None:
    cluster.network.lose(name, 60)


def lose_all(cluster: Cluster, name: str) -> None:
    cluster.network.lose(name, 100)


def slow_down(cluster: Cluster, name: str) -> None:
    cluster.network.delay(name, 200)
    cluster.network.lose(name, 5)


EVERY: tuple[Harm, ...] = (
    *(kill, kill_without_dns, kill_engine, die, stop, freeze),
    *(cut, mute, deafen, lose_most, lose_all, slow_down),
)
