"""Agents are restarted one after the other, under load from OpenAI's client: no request fails."""

import signal

import openai
import pytest

from tests.cluster.agents import Cluster, Member
from tests.cluster.load import Entrances, chats_by_sdk
from tests.e2e.clients import HELLO, TOKENS
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

pytestmark = [pytest.mark.net, pytest.mark.timeout(300)]

_SLOW = '{STAND_IN: "--probe-well --first-byte-after 0.1 --chunk-interval 0.1"}'
_ENDLESS = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'
_ALL = ("node-a", "node-b", "node-c")


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    lasting_cluster.write(
        manifest(
            model("everywhere", nodes="all", env=_SLOW),
            model("endless", nodes="[node-b]", env=_ENDLESS),
        )
    )
    lasting_cluster.heal()
    for member in lasting_cluster.members.values():
        member.wait_serving("everywhere", *_ALL)
        member.wait_serving("endless", "node-b")
    return lasting_cluster


@pytest.mark.parametrize("max_retries", [0, 2], ids=["no-retries", "as-usual"])
def test_no_request_fails_though_every_agent_is_restarted(
    cluster: Cluster, max_retries: int
) -> None:
    """A load balancer takes each out of its rotation just before. The others go on sending it what
    they send to its replicas, until it says that it drains."""
    entrances = Entrances(urls=[member.url for member in cluster.members.values()])
    with chats_by_sdk(entrances, "everywhere", 12, max_retries=max_retries) as load:
        load.wait_more(40)
        for member in cluster.members.values():
            entrances.take_out(member.url)
            assert member.stop(signal.SIGTERM) == 0
            load.wait_more(40)
            member.start()
            member.wait_up()
            wait_until(lambda member=member: _is_ready(member), what="it is ready")  # type: ignore[misc]
            entrances.put_back(member.url)
            for each in cluster.members.values():
                each.wait_serving("everywhere", *_ALL)
            load.wait_more(40)
    assert load.failed == []


def _is_ready(member: Member) -> bool:
    return member.client.get(f"{member.url}/readyz").status_code == 200


def test_an_agent_that_drains_answers_by_the_others_until_it_has_ended(cluster: Cluster) -> None:
    """Load balancers hear late of it: what they still send is answered."""
    b = cluster.members["b"]
    assert b.process is not None
    with openai.OpenAI(base_url=f"{b.url}/v1", api_key="none", max_retries=0) as client:
        with client.chat.completions.create(model="endless", messages=HELLO, stream=True) as held:
            next(held)
            b.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not _is_ready(b), what="it drains")
            for _ in range(10):
                told = client.chat.completions.with_raw_response.create(
                    model="everywhere", messages=HELLO
                )
                assert told.headers["x-served-by"] in ("node-a/everywhere", "node-c/everywhere")
                assert told.parse().choices[0].message.content == TOKENS
        assert b.process.wait(60) == 0
