"""A model that this node does not have, while one of the two nodes that have it is harmed.

A request that nothing has come back of goes to the other one; none hangs; the view tells why, and
afterwards all is as it was.
"""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.cluster import harms
from tests.cluster.agents import Cluster
from tests.cluster.harms import Harm
from tests.cluster.load import Load, chats
from tests.e2e.clients import HELLO, TOKENS
from tests.e2e.manifests import REAL_PREFIX, manifest, model, real_model
from tests.model_files import gemma
from tests.waiting import wait_until

pytestmark = [pytest.mark.net, pytest.mark.timeout(300)]

_ENGINE = '{STAND_IN: "--probe-well --first-byte-after 0.1 --chunk-interval 0.02"}'
_TWO = model("two", nodes="[node-b, node-c]", env=_ENGINE)
_REAL = real_model("gemma", "ctx_size: 1024, parallel: 2", nodes="[node-c]").replace(
    "backend: auto", "backend: xllamacpp"
)

_HARMS = (
    *(harms.kill, harms.die, harms.kill_without_dns),
    *(harms.freeze, harms.cut, harms.mute),
)


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    """b and c serve `two`, c a real model; everybody is asked at a."""
    a = lasting_cluster.members["a"]
    stored = a.hub / REAL_PREFIX / "gemma.gguf"
    if not stored.exists():
        stored.parent.mkdir(parents=True)
        shutil.copyfile(gemma(), stored)
    lasting_cluster.write(manifest(_TWO, _REAL))
    lasting_cluster.heal()
    a.wait_serving("two", "node-b", "node-c")
    a.wait_serving("gemma", "node-c")
    return lasting_cluster


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Load]:
    with chats(cluster.members["a"].url, "two", 6) as load:
        load.wait_more(40)
        _wait_for_both(load)
        yield load


def _wait_for_both(load: Load) -> None:
    """A breaker keeps requests from a node that was lost again and again for up to 30 s."""
    both = {"node-b/two", "node-c/two"}
    wait_until(lambda: load.nodes == both, what="both nodes answer", seconds=60)


def test_a_real_model_on_one_node_answers_by_way_of_another(cluster: Cluster) -> None:
    prompt = "Q: What is the capital of France?\nA:"
    for member in cluster.members.values():
        with openai.OpenAI(base_url=f"{member.url}/v1", api_key="none", max_retries=0) as client:
            assert "gemma" in {each.id for each in client.models.list()}
            told = client.completions.with_raw_response.create(
                model="gemma", prompt=prompt, max_tokens=3, temperature=0
            )
            assert told.headers["x-served-by"] == "node-c/gemma"
            assert "Paris" in told.parse().choices[0].text
            stream = client.completions.create(
                model="gemma", prompt=prompt, max_tokens=3, temperature=0, stream=True
            )
            assert "Paris" in "".join(chunk.choices[0].text for chunk in stream)


@pytest.mark.parametrize("harm", _HARMS, ids=lambda harm: harm.__name__)
def test_what_has_not_begun_is_answered_by_the_other_node(
    cluster: Cluster, load: Load, harm: Harm
) -> None:
    a = cluster.members["a"]
    harm(cluster, "c")
    gone = a.wait_reachable("node-c", False)
    assert gone["reason"]
    since = time.monotonic()
    load.wait_more(40)
    load.finish()
    assert [each for each in load.failed if not each.began] == []
    for each in load.failed:
        if each.text.startswith("data: "):  # a stream that is cut says so
            assert '"error"' in each.text.rstrip().rpartition("\n\n")[2]
    assert load.nodes_since(since) == {"node-b/two"}
    cluster.heal()
    a.wait_serving("two", "node-b", "node-c")
    with chats(a.url, "two", 6) as again:
        again.wait_more(60)
        _wait_for_both(again)
    assert again.failed == []


def test_an_engine_that_dies_costs_no_request_that_has_not_begun(
    cluster: Cluster, load: Load
) -> None:
    """Its agent lives, and says that nothing came."""
    a, c = cluster.members["a"], cluster.members["c"]
    for _ in range(2):  # a third one waits long until it is started again
        c.wait_state("two", "loaded")
        harms.kill_engine(cluster, "c")
        load.wait_more(40)
        a.wait_serving("two", "node-b", "node-c")
    load.finish()
    assert [each for each in load.failed if not each.began] == []


def test_a_request_that_waits_at_a_node_that_freezes_ends_with_it(cluster: Cluster) -> None:
    """Answered whole, so that no heartbeat tells that nothing comes any more."""
    a, c = cluster.members["a"], cluster.members["c"]
    slow = '{STAND_IN: "--probe-well --first-byte-after 600"}'
    cluster.write(manifest(model("slow", nodes="[node-c]", env=slow)))
    a.wait_serving("slow", "node-c")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(a.post, "/v1/completions", {"model": "slow", "prompt": "One"})
        wait_until(lambda: c.self_view()["models"][0]["in_flight"], what="it is there")
        c.freeze()
        answer = asked.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "peer_lost")
    assert "node-c" in answer.json()["error"]["message"]


def test_a_slow_lossy_node_costs_no_request(cluster: Cluster, load: Load) -> None:
    harms.slow_down(cluster, "c")
    load.wait_more(100)
    load.finish()
    assert load.failed == []


def test_a_node_without_a_record_goes_on_serving_until_it_is_let_go(
    cluster: Cluster, load: Load
) -> None:
    a = cluster.members["a"]
    cluster.names.tell(*cluster.addresses("a", "b"))
    a.wait_view(lambda view: "node-c" not in view, what="a lets node-c go")
    since = time.monotonic()
    load.wait_more(40)
    load.finish()
    assert load.failed == []
    assert load.nodes_since(since) == {"node-b/two"}


def test_a_model_without_another_replica_is_said_to_be_out_of_reach(cluster: Cluster) -> None:
    a = cluster.members["a"]
    cluster.network.cut("c")
    a.wait_reachable("node-c", False)
    answer = a.post("/v1/completions", {"model": "gemma", "prompt": "One", "max_tokens": 1})
    assert answer.status_code == 503
    assert "node-c" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0
    cluster.heal()
    answer = a.post("/v1/completions", {"model": "gemma", "prompt": "One", "max_tokens": 1})
    assert answer.headers["x-served-by"] == "node-c/gemma"
    said = a.post("/v1/chat/completions", {"model": "two", "messages": HELLO}).json()
    assert said["choices"][0]["message"]["content"] == TOKENS
