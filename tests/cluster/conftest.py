"""A network for the tests of a cluster, and its DNS; each test begins with both unharmed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.agents import Cluster, cluster_on
from tests.cluster.names import Names, serve_names
from tests.cluster.network import Network, network, skip_without_namespaces


@pytest.fixture(scope="module")
def lasting_net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    skip_without_namespaces()
    with network(tmp_path_factory.mktemp("network")) as made:
        yield made


@pytest.fixture
def net(lasting_net: Network) -> Iterator[Network]:
    """Three hosts: a, b and c."""
    yield lasting_net
    for name in lasting_net.hosts:
        lasting_net.mend(name)


@pytest.fixture
def names(net: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Names]:
    """The name has the addresses of all three, of both families."""
    addresses = [each for host in net.hosts.values() for each in (host.ipv4, host.ipv6)]
    with serve_names(tmp_path_factory.mktemp("names"), net.bridge, *addresses) as served:
        yield served


@pytest.fixture
def cluster(net: Network, names: Names, tmp_path: Path) -> Iterator[Cluster]:
    """An agent on every host, not started yet."""
    with cluster_on(net, names, tmp_path) as made:
        yield made
