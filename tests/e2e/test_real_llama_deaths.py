"""Deaths of real llama.cpp servers under an agent: nothing is left, and the state is right.

Each test waits until all is loaded and may leave it loading.
"""

import contextlib
import os
import shutil
import signal

import httpx
import pytest

from reconciler.apply.shared_memory import mapped_by
from tests.e2e.agent import Agent, Entry, is_alive
from tests.e2e.conftest import MakeAgent, with_loaded
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.e2e.real_llama_cpp_python import PYTHON
from tests.model_files import gemma
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LOAD_SECONDS = 120.0
DEFAULTS = "  defaults: {timeouts: {drain: 1s, stop: 3s}}\n"
CUT_PREFIX = "gguf/cut_gemma"
BACKENDS = ("xllamacpp", "llama-cpp-python")
SERVED = ("chat", "embed")


def model(backend: str, name: str, args: str = "ctx_size: 512", **fields: str) -> str:
    return real_model(name, args, **fields).replace("backend: auto", f"backend: {backend}")


def models(backend: str, ctx_size: int = 1024, **fields: str) -> str:
    """A change of the first leaves the others."""
    cut = model(backend, "cut").replace(REAL_PREFIX, CUT_PREFIX)
    chat = model(backend, "chat", f"ctx_size: {ctx_size}", **fields)
    embed = model(backend, "embed", type="embedding")
    misspelt = model(backend, "misspelt", "ctx_sise: 512")
    return manifest(chat, embed, cut, misspelt, spec=DEFAULTS)


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def lasting(make_lasting_agent: MakeAgent, backend: str) -> Agent:
    assert PYTHON.is_file() or backend == "xllamacpp", "run `make test-engines`, which builds it"
    engine = [] if backend == "xllamacpp" else ["--llama-cpp-python", str(PYTHON)]
    agent = make_lasting_agent(*engine, real=True, name=backend)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    cut = agent.model_file(CUT_PREFIX, "gemma.gguf")
    shutil.copyfile(gemma(), cut)
    os.truncate(cut, cut.stat().st_size - 1000)
    return agent


@pytest.fixture
def node(lasting: Agent, backend: str) -> Agent:
    """Up, with all that can be loaded loaded."""
    node = with_loaded(lasting, models(backend), SERVED, LOAD_SECONDS)
    assert {_of(node, name)["backend"] for name in SERVED} == {backend}
    return node


def test_files_that_are_cut_off_and_flags_that_it_has_not_are_refused(node: Agent) -> None:
    assert "cut off" in node.wait_state("cut", "blocked")["reason"]
    assert "no flag --ctx-sise" in node.wait_state("misspelt", "blocked")["reason"]


def test_a_change_waits_for_no_stream_and_a_load_can_be_stopped(node: Agent, backend: str) -> None:
    before = _of(node, "chat")
    with _stream(node) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        node.write(models(backend, 512, strategy="recreate"))  # the old process ends first
        with contextlib.suppress(httpx.HTTPError):
            assert "data: [DONE]" not in list(lines)
    _assert_gone(before)
    loading = node.wait_model(
        "chat", lambda entry: bool(entry["state"] == "loading" and entry["pid"])
    )

    node.write(models(backend, 768, strategy="recreate"))

    changed = node.wait_model(
        "chat",
        lambda entry: entry["state"] == "loaded" and entry["pid"] != loading["pid"],
        seconds=LOAD_SECONDS,
    )
    _assert_gone(loading)
    told = node.client.get(f"{node.url}/api/management/models/chat").json()
    assert "768" in " ".join(told["argv"])
    assert changed["pid"] == told["pid"]


def test_one_that_is_killed_in_mid_stream_is_started_anew(node: Agent) -> None:
    before = _of(node, "chat")
    with _stream(node) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        os.kill(before["pid"], signal.SIGKILL)
        with contextlib.suppress(httpx.HTTPError):
            assert "data: [DONE]" not in list(lines)
    told = node.wait_model("chat", lambda entry: entry["pid"] != before["pid"])
    assert "SIGKILL" in told["reason"]
    again = node.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    assert again["pid"] != before["pid"]
    _assert_gone(before, port=again["port"] != before["port"])


def test_an_agent_that_ends_in_mid_stream_leaves_nothing(node: Agent) -> None:
    entries = [_of(node, name) for name in SERVED]
    # Nor is there anything of theirs in /dev/shm that could be.
    assert not mapped_by([entry["pid"] for entry in entries])
    with _stream(node) as answer:
        assert next(answer.iter_lines())
        assert node.stop() == 0
    for entry in entries:
        _assert_gone(entry)
    assert node.processes() == []


def _loads(entry: Entry) -> bool:
    return bool(entry["state"] == "loading" and entry["pid"])


def _of(agent: Agent, name: str) -> Entry:
    entry = agent.model(name)
    assert entry is not None
    return entry


def _stream(agent: Agent) -> contextlib.AbstractContextManager[httpx.Response]:
    body = {"model": "chat", "prompt": "Once", "max_tokens": 900, "stream": True}
    return httpx.stream(
        "POST", f"{agent.url}/v1/completions", json=body, timeout=60, trust_env=False
    )


def _assert_gone(entry: Entry, *, port: bool = True) -> None:
    """No process, and nobody at its port (`port` False: another has it by now)."""
    wait_until(lambda: not is_alive(entry["pid"]), what=f"{entry['pid']} is gone")
    if port:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{entry['port']}/", trust_env=False)
