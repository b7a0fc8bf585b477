"""What is wrong at the hub is mended at the hub: the node notices by itself."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import MINIMAL_GGUF, Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, serve_s3
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    (tmp_path / "buckets").mkdir()
    with serve_s3(tmp_path / "buckets") as server:
        yield server


def on_s3(make_agent: MakeAgent, s3: S3Server) -> Agent:
    agent = make_agent("--hub", "s3://models")
    agent.environment |= {
        "MINIO_ENDPOINT": s3.endpoint,
        "MINIO_ACCESS_KEY": ACCESS_KEY,
        "MINIO_SECRET_KEY": SECRET_KEY,
    }
    return agent


def test_a_bucket_that_is_made_later_is_noticed(make_agent: MakeAgent, s3: S3Server) -> None:
    agent = on_s3(make_agent, s3)
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "there is no such bucket; check --hub" in failed["reason"]
    assert "next try after" in failed["reason"]

    s3.put("models", "gguf/test_model/model.gguf", MINIMAL_GGUF)

    agent.wait_state("a", "loaded")


LARGE = MINIMAL_GGUF + os.urandom(2 << 20)
"""So large that another process than the agent fetches it."""


def push(agent: Agent, prefix: str, content: bytes) -> str:
    """As its operator; gives what was said."""
    folder = agent.root / prefix.replace("/", "-")
    folder.mkdir(exist_ok=True)
    (folder / "model.gguf").write_bytes(content)
    done = xgen_model("hub", "push", folder, prefix, "--hub", "s3://models", env=agent.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def damage(path: Path) -> None:
    """One bit, in place, some seconds after the push."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    later = path.stat().st_mtime + 10
    os.utime(path, (later, later))


def pulled_bytes(agent: Agent) -> int:
    page = agent.client.get(f"{agent.url}/metrics").text
    found = re.search(r'^xgen_hub_transfer_bytes_total\{direction="pull".*\} (\S+)$', page, re.M)
    assert found is not None
    return int(float(found[1]))


def events(agent: Agent, kind: str) -> list[Entry]:
    told = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    return [each for each in told if each["kind"] == kind]


def serves_while_its_successor_is_blocked(entry: Entry) -> bool:
    target = entry["target"]
    return entry["state"] == "loaded" and target is not None and target["state"] == "blocked"


def test_what_is_damaged_in_the_hub_is_blocked_until_it_is_pushed_again(
    make_agent: MakeAgent, s3: S3Server
) -> None:
    """R7: after three fetches, over a restart too; what serves goes on (ollama#17520)."""
    (s3.folder / "models").mkdir()
    agent = on_s3(make_agent, s3)
    push(agent, "gguf/test_model", MINIMAL_GGUF)
    push(agent, "gguf/next_model", LARGE)
    damage(s3.folder / "models/gguf/next_model/model.gguf")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")

    agent.write(manifest(model("a", source="gguf/next_model")))
    after = agent.wait_model(
        "a", lambda each: each["target"] is not None and each["target"]["state"] == "blocked"
    )

    said = (
        f"cannot fetch gguf/next_model/model.gguf from s3://models at {s3.endpoint}: its content "
        "does not match its sha256, after 3 fetches; push it again, with `hub push --again`"
    )
    blocked = (
        f"{said}; blocked until the hub holds another file there, the manifest changes, or "
        "`xgen-model reconcile --retry`"
    )
    assert after["target"]["reason"] == blocked
    assert (after["state"], after["pid"]) == ("loaded", before["pid"])
    every = len(MINIMAL_GGUF) + 3 * len(LARGE)
    wait_until(lambda: pulled_bytes(agent) == every, what="the last bytes are counted")
    (failed,) = events(agent, "EffectFailed")
    assert (failed["reason"], failed["data"]["permanent"]) == (said, True)

    assert agent.stop() == 0
    agent.start()
    agent.wait_up()
    again = agent.wait_model("a", serves_while_its_successor_is_blocked)
    assert again["target"]["reason"] == blocked
    assert pulled_bytes(agent) == 0

    assert agent.post("/api/management/reconcile", {"retry": True}).status_code == 200
    wait_until(lambda: len(events(agent, "EffectFailed")) == 2, what="it is tried anew")
    again = agent.wait_model("a", serves_while_its_successor_is_blocked)
    assert again["target"]["reason"] == blocked
    wait_until(lambda: pulled_bytes(agent) == 3 * len(LARGE), what="the last bytes are counted")

    assert "uploaded" in push(agent, "gguf/next_model", LARGE)
    assert agent.post("/api/management/reconcile", {}).status_code == 200
    agent.wait_model("a", lambda each: (each["state"], each["target"]) == ("loaded", None))
    assert pulled_bytes(agent) == 4 * len(LARGE)
    assert events(agent, "FailureForgiven")[-1]["reason"] == (
        f"the hub holds another file now; it had failed: {said}"
    )


def test_a_model_too_many_is_removed_from_the_hub(agent: Agent) -> None:
    other = agent.model_file(name="other.gguf")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "it holds 2 GGUF models; name one with `file:`" in failed["reason"]

    os.unlink(other)

    agent.wait_state("a", "loaded")


def test_a_model_that_is_still_being_copied_into_the_hub_is_taken_when_it_is_whole(
    agent: Agent,
) -> None:
    path = agent.model_file()
    path.write_bytes(MINIMAL_GGUF[:40])
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    blocked = agent.wait_state("a", "blocked")
    assert "truncated header; push a good one to gguf/test_model" in blocked["reason"]

    path.write_bytes(MINIMAL_GGUF)

    agent.wait_state("a", "loaded")


def test_a_model_that_was_cut_is_compared_with_the_hub_after_a_restart(agent: Agent) -> None:
    path = agent.model_file()
    path.write_bytes(MINIMAL_GGUF[:40])
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "blocked")
    assert agent.stop() == 0
    path.write_bytes(MINIMAL_GGUF)

    agent.start()
    agent.wait_up()

    agent.wait_state("a", "loaded")


def test_what_never_loaded_is_compared_with_the_hub_too(make_agent: MakeAgent) -> None:
    """An engine may refuse what its header does not show."""
    agent = make_agent()
    engine = Path(agent.args[1])
    engine.rename(engine.with_name("stand-in"))
    engine.write_text(
        f"""#!{sys.executable}
import os, sys
args = sys.argv[1:]
if "--model" in args and b"good" not in open(args[args.index("--model") + 1], "rb").read():
    sys.exit(1)
os.execv({str(engine.with_name("stand-in"))!r}, ["llama-server", *args])
""",
        encoding="utf-8",
    )
    engine.chmod(0o755)
    path = agent.model_file()
    path.write_bytes(MINIMAL_GGUF + b"bad")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "blocked", seconds=90)

    path.write_bytes(MINIMAL_GGUF + b"good")

    agent.wait_state("a", "loaded", seconds=90)


def test_who_still_reads_a_file_that_was_mended_is_started_anew_once(make_agent: MakeAgent) -> None:
    """ollama#17520: llama.cpp maps its file; who has let go of it stays."""
    agent = make_agent()
    keeping_its_file_open(Path(agent.args[1]))
    agent.hub.mkdir()
    pushed = agent.root / "pushed"
    pushed.mkdir()
    (pushed / "model.gguf").write_bytes(MINIMAL_GGUF + b"good")
    done = xgen_model("hub", "push", pushed, "gguf/test_model", "--hub", agent.hub)
    assert done.returncode == 0, done.stderr
    agent.write(manifest(model("keeps", env='{KEEP: "1"}'), model("lets-go")))
    agent.start()
    agent.wait_up()
    keeps, lets_go = (agent.wait_state(name, "loaded")["pid"] for name in ("keeps", "lets-go"))
    (path,) = agent.data.glob("models/.rev/gguf/test_model/*/model.gguf")
    away = agent.hub.rename(agent.root / "away")

    with path.open("r+b") as file:
        file.write(b"rotten")
    agent.post("/api/management/reconcile", {})

    old = "a file of it was damaged or removed after it was loaded; it still reads the old one"
    told = agent.wait_model("keeps", lambda each: old in each["reason"])
    assert told["reason"] == (
        f"serves (pid {keeps}); {old}; it is started anew once the file is here again"
    )
    assert (told["state"], told["pid"]) == ("loaded", keeps)
    agent.wait_model("keeps", lambda each: each["target"]["state"] == "error")
    (rotten,) = events(agent, "FileRotten")
    assert rotten["reason"].endswith("; it is fetched again for keeps, lets-go")
    assert rotten["data"]["models"] == "keeps, lets-go"

    away.rename(agent.hub)
    agent.post("/api/management/reconcile", {"retry": True})
    agent.wait_model("keeps", lambda each: each["pid"] not in (keeps, None))
    agent.wait_state("keeps", "loaded")
    agent.post("/api/management/reconcile", {})

    stops = [each for each in events(agent, "ActionBegun") if "pid" in each["data"]]
    assert [(each["model"], each["reason"]) for each in stops] == [("keeps", old)]
    after = agent.wait_model("lets-go", lambda each: each["target"] is None)
    assert (after["state"], after["pid"]) == ("loaded", lets_go)


def keeping_its_file_open(engine: Path) -> None:
    """A model with `env: {KEEP: "1"}` does."""
    engine.rename(engine.with_name("stand-in"))
    engine.write_text(
        f"""#!{sys.executable}
import os, sys
args = sys.argv[1:]
if "--model" in args and "KEEP" in os.environ:
    os.set_inheritable(os.open(args[args.index("--model") + 1], os.O_RDONLY), True)
os.execv({str(engine.with_name("stand-in"))!r}, ["llama-server", *args])
""",
        encoding="utf-8",
    )
    engine.chmod(0o755)
