"""From Hugging Face to an answer: by the manifest, by HTTP, through kills, once for all nodes."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import MINIMAL_GGUF, Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.fake_hf_hub import FakeHub, Repo, serve_fake_hub
from tests.s3_server import ACCESS_KEY, SECRET_KEY, serve_s3
from tests.waiting import wait_for, wait_until

pytestmark = pytest.mark.slow

Job = dict[str, Any]
MIB = 1024 * 1024
LARGE = MINIMAL_GGUF + bytes(3 * MIB)
TOKEN = "hf_a-token-that-nobody-should-see"
OF_HF = model("a", source="hf://org/m-GGUF", file="m-Q4.gguf")


@pytest.fixture
def upstream() -> Iterator[FakeHub]:
    quants = {"m-Q4.gguf": LARGE, "m-Q8.gguf": MINIMAL_GGUF, "README.md": b"# m"}
    repos = {
        "org/m-GGUF": Repo(files=quants),
        "org/gated-GGUF": Repo(files={"m.gguf": MINIMAL_GGUF}, needs_token=TOKEN),
    }
    with serve_fake_hub(repos) as fake:
        yield fake


def node(make_agent: MakeAgent, upstream: FakeHub, name: str, *args: str) -> Agent:
    """An agent with the hub of agent `a`, unless `args` say otherwise."""
    agent = make_agent(*args, name=name)
    agent.environment |= {**upstream.environment, "HF_HOME": str(agent.root / "hf")}
    (agent.root.parent / "a" / "hub").mkdir(parents=True, exist_ok=True)
    agent.args += [] if args else ["--hub", str(agent.root.parent / "a" / "hub")]
    agent.write(manifest())
    return agent


def ask(agent: Agent, repo: str, **more: object) -> Job:
    answer = agent.post("/api/download", {"repo": repo, **more})
    assert answer.status_code == 202, answer.text
    job: Job = answer.json()["job"]
    return job


def look(agent: Agent, job: Job) -> Job:
    found: Job = agent.client.get(f"{agent.url}/api/download/{job['id']}").json()["job"]
    return found


def ended(agent: Agent, job: Job) -> Job:
    def is_over() -> Job | None:
        found = look(agent, job)
        return found if found["ended_at"] else None

    return wait_for(is_over, what=f"the end of the import\n{agent.recent_log}")


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_one_node_imports_and_the_next_one_asks_nobody(
    make_agent: MakeAgent, upstream: FakeHub, tmp_path: Path, kind: str
) -> None:
    """vllm#23684, #9255: a local path and still a call to the hub."""
    with serve_s3(tmp_path / "buckets", dir_cache_time="1s") as s3:
        (tmp_path / "buckets" / "models").mkdir(parents=True, exist_ok=True)
        args = ("--hub", "s3://models") if kind == "s3" else ()
        keys = {
            "MINIO_ENDPOINT": s3.endpoint,
            "MINIO_ACCESS_KEY": ACCESS_KEY,
            "MINIO_SECRET_KEY": SECRET_KEY,
        }
        first, second = (node(make_agent, upstream, name, *args) for name in "ab")
        for agent in (first, second):
            agent.environment |= keys
            agent.write(manifest(OF_HF))
        first.start()
        first.wait_up()
        first.wait_state("a", "loaded")
        assert upstream.files_asked(".gguf") == ["m-Q4.gguf"]
        upstream.requests.clear()

        second.start()
        second.wait_up()
        second.wait_state("a", "loaded")

        assert upstream.requests == []
        assert look_all(second) == []
        (job,) = look_all(first)
        assert (job["state"], job["prefix"]) == ("completed", "gguf/org_m-GGUF")
        assert imports_told(first) == [("ImportStarted", "a"), ("ImportCompleted", "a")]
        assert imports_told(second) == []
        assert second.stop() == 0
        assert first.stop() == 0


def look_all(agent: Agent) -> list[Job]:
    found: list[Job] = agent.client.get(f"{agent.url}/api/download").json()["jobs"]
    return found


def imports_told(agent: Agent) -> list[tuple[str, str | None]]:
    """The events of imports: kind, and model."""
    page = agent.client.get(f"{agent.url}/api/management/events").json()
    return [
        (event["kind"], event["model"])
        for event in page["events"]
        if event["kind"].startswith("Import")
    ]


def figures(agent: Agent) -> dict[str, float]:
    """The samples of imports and of the hub, as the metrics page has them."""
    lines = agent.client.get(f"{agent.url}/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith(("xgen_import", "xgen_hub")))
    return {name: float(value) for name, value in pairs}


def test_what_was_imported_starts_without_any_network(
    make_agent: MakeAgent, upstream: FakeHub
) -> None:
    """gpustack#2519, #2566: a cached model cannot be deployed offline."""
    agent = node(make_agent, upstream, "a")
    agent.write(manifest(OF_HF))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.stop()
    (agent.root / "hub").rename(agent.root / "hub-that-is-away")
    upstream.requests.clear()

    agent.start()
    agent.wait_up()

    agent.wait_state("a", "loaded")
    assert upstream.requests == []


def test_an_import_that_is_asked_for_over_http_is_a_job(
    make_agent: MakeAgent, upstream: FakeHub
) -> None:
    agent = node(make_agent, upstream, "a")
    agent.start()
    agent.wait_up()
    upstream.gate.clear()

    job = ask(agent, "org/m-GGUF", file="m-Q4.gguf")
    assert job["state"] == "pending"
    assert upstream.held.wait(30)
    under_way = look(agent, job)
    assert (under_way["state"], under_way["total_bytes"]) == ("downloading", len(LARGE) + 3)
    assert ask(agent, "org/m-GGUF", file="m-Q4.gguf")["id"] == job["id"]
    assert figures(agent)['xgen_import_jobs{state="downloading"}'] == 1
    upstream.gate.set()

    done = ended(agent, job)
    assert (done["state"], done["error"], done["commit"]) == ("completed", None, "a" * 40)
    assert upstream.files_asked(".gguf") == ["m-Q4.gguf"]
    assert (agent.root / "hub/gguf/org_m-GGUF/m-Q4.gguf").read_bytes() == LARGE
    assert not list((agent.data / "imports").iterdir())
    assert imports_told(agent) == [("ImportStarted", None), ("ImportCompleted", None)]
    now = figures(agent)
    assert now["xgen_import_bytes_total"] == len(LARGE) + 3
    assert now['xgen_hub_transfer_bytes_total{direction="push"}'] == len(LARGE) + 3
    states = {name: value for name, value in now.items() if name.startswith("xgen_import_jobs")}
    assert [name for name, value in states.items() if value] == [
        'xgen_import_jobs{state="completed"}'
    ]
    assert len(states) == 6


def test_a_cancelled_import_leaves_neither_process_nor_files(
    make_agent: MakeAgent, upstream: FakeHub
) -> None:
    agent = node(make_agent, upstream, "a")
    agent.start()
    agent.wait_up()
    upstream.gate.clear()
    job = ask(agent, "org/m-GGUF", file="m-Q4.gguf")
    assert upstream.held.wait(30)

    answer = agent.client.delete(f"{agent.url}/api/download/{job['id']}")

    assert (answer.status_code, answer.json()["job"]["state"]) == (200, "cancelled")
    assert upstream.children() == []
    assert not list((agent.data / "imports").iterdir())
    assert imports_told(agent) == [("ImportStarted", None), ("ImportCancelled", None)]
    again = agent.client.delete(f"{agent.url}/api/download/{job['id']}")
    assert again.json()["forgotten"]
    assert look_all(agent) == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_ends_in_mid_import_goes_on_at_its_next_start(
    make_agent: MakeAgent, upstream: FakeHub, end: signal.Signals
) -> None:
    agent = node(make_agent, upstream, "a")
    agent.start()
    agent.wait_up()
    upstream.gate.clear()
    upstream.held_at = 2 * MIB
    job = ask(agent, "org/m-GGUF", file="m-Q4.gguf")
    waiting = ask(agent, "org/m-GGUF", file="m-Q8.gguf")
    assert upstream.held.wait(30)

    def half_done() -> int | None:
        sizes = [path.stat().st_size for path in (agent.data / "imports").rglob("*.partial")]
        return max((size for size in sizes if size >= MIB), default=None)

    wait_for(half_done, what="half of a file")
    agent.stop(end)
    wait_until(lambda: not upstream.children(), what="the child is gone")
    there = wait_for(half_done, what="half of a file")
    upstream.requests.clear()
    upstream.gate.set()

    agent.start()
    agent.wait_up()

    assert ended(agent, job)["state"] == "completed"
    assert ended(agent, waiting)["state"] == "completed"
    assert upstream.ranges_asked("m-Q4.gguf") == [f"bytes={there}-"]
    hub = agent.root / "hub/gguf/org_m-GGUF"
    assert (hub / "m-Q4.gguf").read_bytes() == LARGE
    assert (hub / "m-Q8.gguf").read_bytes() == MINIMAL_GGUF
    assert not list((agent.data / "imports").iterdir())


def test_a_gated_model_says_so_and_loads_once_there_is_a_token(
    make_agent: MakeAgent, upstream: FakeHub
) -> None:
    agent = node(make_agent, upstream, "a")
    agent.write(manifest(model("a", source="hf://org/gated-GGUF")))
    agent.start()
    agent.wait_up()
    failed = agent.wait_model("a", lambda entry: "it is gated" in entry["reason"])
    assert "ask for access at http://127.0.0.1" in failed["reason"]
    agent.stop()
    secret = agent.root / "token"
    secret.write_text(TOKEN, encoding="utf-8")
    agent.environment["HF_TOKEN_PATH"] = str(secret)

    agent.start()
    agent.wait_up()

    agent.wait_state("a", "loaded")
    told = agent.client.get(f"{agent.url}/api/download").text
    assert TOKEN not in told + agent.log
    files = (path for path in agent.data.rglob("*") if path.is_file())
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("hf://org/none-GGUF", "has no such repository"),
        ("hf://org/m-GGUF@v9", "it has no revision v9"),
        ("hf://org/m-GGUF", "it holds 2 GGUF models; name one with `file:`"),
    ],
)
def test_a_model_that_cannot_be_imported_says_why(
    make_agent: MakeAgent, upstream: FakeHub, source: str, said: str
) -> None:
    agent = node(make_agent, upstream, "a")
    agent.write(manifest(model("a", source=source)))
    agent.start()
    agent.wait_up()
    assert "next try after" in agent.wait_model("a", lambda e: said in e["reason"])["reason"]


def test_without_a_hub_an_import_says_what_is_missing(
    make_agent: MakeAgent, upstream: FakeHub
) -> None:
    agent = node(make_agent, upstream, "a", "--hub", "")
    agent.write(manifest(OF_HF))
    agent.start()
    agent.wait_up()
    agent.wait_model("a", lambda entry: "no hub is set" in entry["reason"])
    answer = agent.post("/api/download", {"repo": "org/m-GGUF"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_hub")
    assert upstream.requests == []
