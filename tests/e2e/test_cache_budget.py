"""An agent's cache: its budget, what it evicts, and files that are not as they were."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.command import xgen_model
from tests.e2e.agent import MINIMAL_GGUF, Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, serve_s3
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MIB = 2**20


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    (tmp_path / "buckets/models").mkdir(parents=True)
    with serve_s3(tmp_path / "buckets") as server:
        yield server


def with_hub(agent: Agent, s3: S3Server) -> Agent:
    """Three models of a MiB each."""
    agent.args += ["--hub", "s3://models"]
    agent.environment |= {
        "MINIO_ENDPOINT": s3.endpoint,
        "MINIO_ACCESS_KEY": ACCESS_KEY,
        "MINIO_SECRET_KEY": SECRET_KEY,
    }
    for name in "abc":
        s3.put("models", f"gguf/test_{name}/x.gguf", MINIMAL_GGUF + os.urandom(MIB))
    return agent


def entry(name: str, **fields: str) -> str:
    return model(name, source=f"gguf/test_{name}", **fields)


def up(agent: Agent, *models: str) -> None:
    agent.write(manifest(*models))
    agent.start()
    agent.wait_up()


def events(agent: Agent, kind: str) -> list[dict[str, object]]:
    answer = agent.client.get(f"{agent.url}/api/management/events")
    return [event for event in answer.json()["events"] if event["kind"] == kind]


def fetch_bytes(agent: Agent) -> dict[tuple[str, str, str], float]:
    """By model, what is done, and which of the two numbers it is."""
    families = text_string_to_metric_families(agent.client.get(f"{agent.url}/metrics").text)
    return {
        (each.labels["model"], each.labels["doing"], each.labels["kind"]): each.value
        for family in families
        for each in family.samples
        if each.name == "xgen_fetch_bytes"
    }


def cached(agent: Agent, name: str) -> Path:
    (path,) = (agent.data / f"models/.rev/gguf/test_{name}").glob("*/x.gguf")
    return path


def test_a_budget_is_kept_and_what_serves_is_not_touched(
    make_agent: MakeAgent, s3: S3Server
) -> None:
    """kserve#6137 (scenario 33). Disabled models keep their files; the next try comes at once
    when one is removed."""
    agent = with_hub(make_agent("--cache-budget", "2500KiB"), s3)
    up(agent, entry("a"), entry("b", enabled="false"))
    agent.wait_state("a", "loaded")
    agent.write(manifest(entry("a"), entry("b")))
    agent.wait_state("b", "loaded")
    pid = agent.wait_state("a", "loaded")["pid"]

    agent.write(manifest(entry("a"), entry("b", enabled="false"), entry("c")))

    refused = agent.wait_state("c", "error")
    assert "cannot fetch gguf/test_c: 1.0 MiB are needed" in refused["reason"]
    assert "of its 2.4 MiB; nothing can be evicted; pinned by " in refused["reason"]
    assert cached(agent, "b").is_file()
    agent.write(manifest(entry("a"), entry("c")))
    agent.wait_state("c", "loaded")
    (gone,) = events(agent, "FilesEvicted")
    assert "gguf/test_b of digest" in str(gone["reason"])
    assert "gguf/test_c needs 1.0 MiB" in str(gone["reason"])
    assert not list((agent.data / "models/.rev/gguf/test_b").glob("*/x.gguf"))
    assert agent.wait_state("a", "loaded")["pid"] == pid
    text = agent.client.get(f"{agent.url}/metrics").text
    assert "xgen_cache_budget_bytes 2.56e+06" in text


def test_what_serves_gives_way_to_its_successor_only_where_the_manifest_says_so(
    make_agent: MakeAgent, s3: S3Server
) -> None:
    """A budget for one model: another source, and then a newer push of that."""
    agent = with_hub(make_agent("--cache-budget", "1500KiB"), s3)
    up(agent, model("m", source="gguf/test_a"))
    pid = agent.wait_state("m", "loaded")["pid"]
    agent.write(manifest(model("m", source="gguf/test_b")))
    refused = agent.wait_model("m", lambda each: "would give up" in str(each["target"]))
    assert "cannot fetch gguf/test_b: 1.0 MiB are needed" in refused["target"]["reason"]
    assert (refused["state"], refused["pid"]) == ("loaded", pid)

    agent.write(manifest(model("m", source="gguf/test_b", keep_last_good="false", refresh="auto")))

    serving = agent.wait_model("m", lambda each: each["state"] == "loaded" and each["pid"] != pid)
    assert not list((agent.data / "models/.rev/gguf/test_a").glob("*/x.gguf"))
    stop, fetch, _ = (str(each["reason"]) for each in events(agent, "ActionBegun")[-3:])
    assert stop.startswith("no room for the files of both, and `keep_last_good: false` gives up ")
    assert fetch == "files of gguf/test_b are not in the cache"
    pushed = s3.put("models", "gguf/test_b/x.gguf", MINIMAL_GGUF + os.urandom(MIB))

    def is_newer(each: Entry) -> bool:
        agent.post("/api/management/reconcile", {})  # two looks at the hub must agree
        return bool(each["state"] == "loaded" and each["pid"] != serving["pid"])

    newer = agent.wait_model("m", is_newer)
    assert newer["digest"] != serving["digest"]
    assert cached(agent, "b").read_bytes() == pushed.read_bytes()


def test_files_that_rotted_or_were_touched_while_nobody_ran(
    make_agent: MakeAgent, s3: S3Server
) -> None:
    """ollama#17520, gpustack#2519 (scenarios 30, 80): what rotted comes again, what was touched is
    read and kept, though its hub is away."""
    agent = with_hub(make_agent(), s3)
    up(agent, entry("a"))
    agent.wait_state("a", "loaded")
    assert agent.stop() == 0
    path = cached(agent, "a")
    content = path.read_bytes()
    os.truncate(path, len(content) - 1)
    with path.open("ab") as file:
        file.write(bytes([content[-1] ^ 1]))

    up(agent, entry("a"))

    agent.wait_state("a", "loaded")
    assert path.read_bytes() == content
    (told,) = events(agent, "FileRotten")
    assert "x.gguf of gguf/test_a is rotten: its MD5 is" in str(told["reason"])
    assert agent.stop() == 0
    os.utime(path, (0, 0))
    agent.environment["MINIO_ENDPOINT"] = "127.0.0.1:9"
    up(agent, entry("a"))
    agent.wait_state("a", "loaded")
    assert events(agent, "FileRotten") == []


def test_a_running_model_goes_on_while_its_files_are_checked(
    make_agent: MakeAgent, s3: S3Server
) -> None:
    agent = with_hub(make_agent(), s3)
    up(agent, entry("a"))
    pid = agent.wait_state("a", "loaded")["pid"]
    path = cached(agent, "a")
    stamps = path.parent.with_suffix(".stamps")
    before, content = stamps.read_bytes(), path.read_bytes()

    os.utime(path, (0, 0))
    agent.post("/api/management/reconcile", {})

    wait_until(lambda: stamps.read_bytes() != before, what="the file is checked")
    assert events(agent, "FileRotten") == []
    path.write_bytes(content[::-1])
    agent.post("/api/management/reconcile", {})
    wait_until(lambda: bool(events(agent, "FileRotten")), what="the rot is seen")
    wait_until(lambda: path.is_file() and path.read_bytes() == content, what="it is fetched again")
    assert agent.wait_state("a", "loaded")["pid"] == pid


def test_two_agents_on_one_cache_leave_each_other_their_files(
    make_agent: MakeAgent, s3: S3Server, tmp_path: Path
) -> None:
    models = ["--models-dir", str(tmp_path / "shared"), "--cache-budget", "2500KiB"]
    first = with_hub(make_agent(*models), s3)
    up(first, entry("a"))
    first.wait_state("a", "loaded")
    second = make_agent(*models, name="b")
    second.args += ["--hub", "s3://models", "--node", "node-b"]
    second.environment |= first.environment

    up(second, entry("b"), entry("c"))

    refused = second.wait_model("c", lambda each: each["state"] in ("error", "loaded"))
    other = second.wait_model("b", lambda each: each["state"] in ("error", "loaded"))
    assert {refused["state"], other["state"]} == {"error", "loaded"}
    assert first.wait_state("a", "loaded")["pid"]
    assert list((tmp_path / "shared/.rev/gguf/test_a").glob("*/x.gguf"))
    assert events(second, "FilesEvicted") == []


def test_commands_beside_a_running_agent(make_agent: MakeAgent, s3: S3Server) -> None:
    agent = with_hub(make_agent("--hub-rate-limit", "4"), s3)
    up(agent, entry("a"), entry("b"))
    agent.wait_state("b", "loaded")
    pid = agent.wait_state("a", "loaded")["pid"]
    agent.write(manifest(entry("a")))
    agent.wait_gone("b")
    folder = ("--data-dir", agent.data)

    cleaned = xgen_model("cache", "gc", "--all", *folder, "--output", "json")
    verified = xgen_model("cache", "verify", *folder)

    assert [each["prefix"] for each in json.loads(cleaned.stdout)["removed"]] == ["gguf/test_b"]
    assert (verified.returncode, "1 file" in verified.stdout) == (0, True)
    assert agent.wait_state("a", "loaded")["pid"] == pid
    agent.write(manifest(entry("a"), entry("b")))
    agent.wait_state("b", "loaded")
    assert_that_progress_shows_everywhere(agent, s3)
    serving = agent.wait_state("a", "loaded")
    assert serving["digest"] == serving["prefix_digest"]
    assert (serving["pid"], serving["verified"], serving["progress"]) == (pid, False, None)


def assert_that_progress_shows_everywhere(agent: Agent, s3: S3Server) -> None:
    """gpustack#312 (scenario 27). With JSON, metrics and the command of one fetch under way."""
    size = len(MINIMAL_GGUF) + 64 * MIB
    s3.put("models", "gguf/test_d/x.gguf", MINIMAL_GGUF + bytes(64 * MIB))
    agent.write(manifest(entry("a"), entry("d")))

    def moves(each: Entry) -> bool:
        return bool(each["progress"] and each["progress"]["seconds_left"])

    fetched = agent.wait_model("d", moves)
    samples = fetch_bytes(agent)
    piped = " ".join(xgen_model("status", "--server", agent.url).stdout.split())
    detail = agent.client.get(f"{agent.url}/api/management/models/d").json()

    progress = fetched["progress"]
    assert (progress["doing"], progress["total_bytes"]) == ("fetch", size)
    assert 0 < progress["done_bytes"] <= samples["d", "fetch", "done"] < size
    assert samples["d", "fetch", "total"] == size
    assert progress["bytes_per_second"] > 0
    assert progress["silent_seconds"] is None
    assert detail["progress"].keys() == progress.keys()
    told = (
        r" caching \d+ % .*fetches gguf/test_d: [\d.]+ of 64\.0 MiB \(\d+ %\), "
        r"[\d.]+ [KM]iB/s, \d+ \w+ left"
    )
    assert re.search(told, piped), piped
    assert [fetched[key] for key in ("digest", "prefix_digest", "verified")] == [None] * 3
    agent.write(manifest(entry("a")))
    agent.wait_gone("d")
    assert fetch_bytes(agent) == {}
