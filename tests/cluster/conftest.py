"""A network for the tests of a cluster, its DNS, and agents; every test finds them unharmed."""

from collections.abc import Iterator

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
def net(lasting_net: Network) -> Network:
    """Three hosts: a, b and c."""
    for name in lasting_net.hosts:
        lasting_net.mend(name)
    return lasting_net


@pytest.fixture(scope="module")
def names(lasting_net: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Names]:
    """A DNS server that does not know the name yet."""
    with serve_names(tmp_path_factory.mktemp("names"), lasting_net.bridge) as served:
        yield served


@pytest.fixture(scope="module")
def lasting_cluster(
    lasting_net: Network, names: Names, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """An agent on every host, not started yet."""
    with cluster_on(lasting_net, names, tmp_path_factory.mktemp("cluster")) as made:
        yield made
