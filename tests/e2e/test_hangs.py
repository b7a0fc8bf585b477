"""A real llama.cpp that hangs is found and started anew; one that is busy never is.

Scenarios 4, 48, 55 to 58: Fastllm-proxy#19, a hung backend in rotation for 85 minutes; gonka
PR#1421, a busy one restarted eight times a day. Where nothing is to happen, another model that is
stopped meanwhile and found to hang shows that there was time for it.
"""

import contextlib
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.agent import Agent, Entry, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.model_files import gemma
from tests.waiting import wait_for, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

LIMITS = "{stall: 6s, drain: 2s, stop: 1s}"
MODEL = real_model("gemma", "ctx_size: 32768, parallel: 1", timeouts=LIMITS)
OTHER = real_model("other", "ctx_size: 512, parallel: 1", timeouts=LIMITS)
PROMPT_TOKENS = 12_000


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """With two real models that count as hung after six seconds."""
    made = make_agent(real=True)
    made.client.timeout = httpx.Timeout(400)
    stored = made.hub / REAL_PREFIX / "gemma.gguf"
    stored.parent.mkdir(parents=True)
    shutil.copyfile(gemma(), stored)
    made.write(manifest(MODEL, OTHER))
    made.start()
    made.wait_up()
    for name in ("gemma", "other"):
        made.wait_state(name, "loaded", seconds=120)
    return made


def test_a_stream_whose_engine_stops_is_cut_and_the_engine_is_started_anew(agent: Agent) -> None:
    pid = _of(agent)["pid"]
    with httpx.stream(
        "POST",
        f"{agent.url}/v1/completions",
        json=_asked(100_000, stream=True),
        timeout=120,
        trust_env=False,
    ) as answer:
        pieces = answer.iter_raw()
        came = [next(pieces)]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(httpx.RemoteProtocolError):  # no clean end
            came.extend(pieces)
    got = b"".join(came)
    assert b"data: [DONE]" not in got
    assert b'"error"' in got.rstrip().rpartition(b"\n\n")[2]

    hung = _wait_hung(agent, "gemma")
    assert hung["reason"].startswith("no progress for ")
    assert " with 1 request in flight" in hung["reason"]
    assert hung["reason"].endswith("a probe of one token got no answer: nothing came within 6 s")
    _wait_started_anew(agent, pid, hung["reason"])


def test_an_idle_engine_that_stops_is_found_by_a_probe(agent: Agent) -> None:
    pid = _of(agent)["pid"]
    os.kill(pid, signal.SIGSTOP)
    hung = _wait_hung(agent, "gemma")
    assert " with no requests in flight" in hung["reason"]
    _wait_started_anew(agent, pid, hung["reason"])


def test_probes_of_an_idle_engine_are_no_tokens_of_users(agent: Agent) -> None:
    assert _completes(agent, 3)
    wait_until(lambda: _tokens(agent) >= 3, what="tokens are counted")
    before = _tokens(agent)
    _let_another_hang(agent)
    assert _tokens(agent) == before


def test_a_long_prefill_and_a_long_queue_are_no_hang(agent: Agent) -> None:
    """llama.cpp's counts stand still for the whole of a batch, some ten seconds here."""
    pid = _of(agent)["pid"]
    with ThreadPoolExecutor(9) as pool:
        long = pool.submit(agent.post, "/v1/completions", _asked(1, prompt="a " * PROMPT_TOKENS))
        wait_until(lambda: _of(agent)["in_flight"] == 1, what="the prefill is under way")
        waiting = [
            pool.submit(agent.post, "/v1/completions", _asked(4, prompt=f"{number} " * 500))
            for number in range(8)
        ]
        _let_another_hang(agent)
        answers = [each.result() for each in (long, *waiting)]
    assert [each.status_code for each in answers] == [200] * 9, answers[0].text
    _assert_never_restarted(agent, pid)


def test_a_throttled_engine_is_no_hang(agent: Agent) -> None:
    pid = _of(agent)["pid"]
    with ThreadPoolExecutor(1) as pool, _throttled(pid):
        asked = pool.submit(agent.post, "/v1/completions", _asked(60))
        _let_another_hang(agent)
        _assert_never_restarted(agent, pid)
    assert asked.result().status_code == 200


def test_a_client_that_does_not_read_is_no_hang(agent: Agent) -> None:
    """Its engine is done with all and has nothing left to show."""
    pid = _of(agent)["pid"]
    host, _, port = agent.url.removeprefix("http://").rpartition(":")
    body = agent.client.build_request(
        "POST", f"{agent.url}/v1/completions", json=_asked(300, stream=True, n_probs=400)
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        head = "".join(f"{name}: {value}\r\n" for name, value in body.headers.items())
        client.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n".encode() + body.read())
        wait_until(lambda: _tokens(agent) >= 300, what="all is generated", seconds=200)
        assert _of(agent)["in_flight"] == 1
        _let_another_hang(agent)
        assert _of(agent)["in_flight"] == 1
    _assert_never_restarted(agent, pid)


def _asked(tokens: int, *, prompt: str = "Once", **more: object) -> Entry:
    return {"model": "gemma", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **more}


def _of(agent: Agent, name: str = "gemma") -> Entry:
    entry = agent.model(name)
    assert entry is not None
    return entry


def _hung(agent: Agent, name: str) -> Entry | None:
    events = agent.client.get(f"{agent.url}/api/management/events?model={name}").json()["events"]
    return next((event for event in events if event["kind"] == "BackendHung"), None)


def _wait_hung(agent: Agent, name: str) -> Entry:
    return wait_for(lambda: _hung(agent, name), what=f"{name} is told to hang", seconds=120)


def _wait_started_anew(agent: Agent, pid: int, reason: str) -> None:
    """Counted, and as good as new."""
    again = agent.wait_model(
        "gemma", lambda entry: entry["state"] == "loaded" and entry["pid"] != pid, seconds=120
    )
    assert not is_alive(pid)
    assert again["restarts"] == 1
    page = agent.client.get(f"{agent.url}/metrics").text
    assert 'xgen_model_restarts_total{model="gemma",reason="hung"} 1.0' in page
    shown = agent.client.get(f"{agent.url}/api/management/models/gemma").json()
    (failure,) = shown["failure"]["recent"]
    assert (failure["during"], failure["reason"]) == ("run", reason)
    assert _completes(agent, 2)


def _let_another_hang(agent: Agent) -> None:
    """From now on, until that is told."""
    os.kill(_of(agent, "other")["pid"], signal.SIGSTOP)
    _wait_hung(agent, "other")


def _assert_never_restarted(agent: Agent, pid: int) -> None:
    assert _hung(agent, "gemma") is None
    now = _of(agent)
    assert (now["state"], now["pid"], now["restarts"]) == ("loaded", pid, 0)


def _completes(agent: Agent, tokens: int) -> bool:
    return agent.post("/v1/completions", _asked(tokens)).status_code == 200


def _tokens(agent: Agent) -> float:
    """Generated, of users."""
    page = agent.client.get(f"{agent.url}/metrics").text
    start = 'xgen_tokens_total{kind="generated",model="gemma"} '
    return next((float(each[len(start) :]) for each in page.splitlines() if start in each), 0.0)


@contextlib.contextmanager
def _throttled(pid: int) -> Iterator[None]:
    """It runs for a tenth of the time, in slices of half a second."""
    ended = threading.Event()

    def throttle() -> None:
        while not ended.wait(0.05):
            os.kill(pid, signal.SIGSTOP)
            ended.wait(0.45)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
