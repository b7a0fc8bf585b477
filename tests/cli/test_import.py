"""`xgen-model hub import` as a shell runs it, with the real client, from a hub of our own."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import XGEN_MODEL, environment, started, xgen_model
from tests.cli.test_hub import safetensors
from tests.e2e.agent import MINIMAL_GGUF
from tests.fake_hf_hub import FakeHub, Repo, serve_fake_hub
from tests.hub.hubs import Hub, hub, servers
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

__all__ = ["hub", "servers"]

SAFETENSORS = {"config.json": b"{}", "model.safetensors": safetensors(1, 400_000)}


@pytest.fixture
def upstream() -> Iterator[FakeHub]:
    quants = {"m-Q4.gguf": MINIMAL_GGUF, "m-Q8.gguf": MINIMAL_GGUF + bytes(32)}
    with serve_fake_hub({"org/m": Repo(files=SAFETENSORS), "org/q": Repo(files=quants)}) as fake:
        yield fake


@dataclass(frozen=True, kw_only=True)
class Shell:
    upstream: FakeHub
    hub: Hub
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.upstream.environment,
            **self.hub.environment,
            "HF_HOME": str(self.home / "hf"),
            "XGEN_DATA_DIR": str(self.home / "data"),
            "XGEN_HUB": self.hub.location,
        }

    def run(self, *words: str) -> tuple[int, str, str]:
        done = xgen_model("hub", "import", *words, env=self.environment)
        return done.returncode, done.stdout, done.stderr

    @property
    def left(self) -> list[Path]:
        folder = self.home / "data" / "imports"
        return list(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def shell(upstream: FakeHub, hub: Hub, tmp_path: Path) -> Shell:
    return Shell(upstream=upstream, hub=hub, home=tmp_path)


def test_a_model_is_imported_and_found_the_next_time(shell: Shell) -> None:
    code, said, _ = shell.run("org/m")
    assert code == 0
    assert said.startswith(f"huggingface/org_m in {shell.hub.location}\n")
    assert f"from      org/m, commit {'a' * 40}" in said
    assert "imported in" in said
    assert shell.hub.plain("huggingface/org_m") == SAFETENSORS
    shell.upstream.requests.clear()

    code, said, _ = shell.run("org/m", "--output", "json")

    told = json.loads(said)
    assert (code, told["was_there"], told["prefix"]) == (0, True, "huggingface/org_m")
    assert shell.upstream.requests == []
    assert shell.left == []


def test_what_cannot_be_is_one_line(shell: Shell) -> None:
    code, said, complained = shell.run("org/q")
    assert (code, said) == (1, "")
    assert complained == (
        "error: cannot import org/q: it holds 2 GGUF models; name one with `file:`: "
        "m-Q4.gguf, m-Q8.gguf\n"
    )
    assert shell.run("org/q", "--file", "m-Q8.gguf")[0] == 0
    assert set(shell.hub.plain("gguf/org_q")) == {"m-Q8.gguf"}


@pytest.mark.parametrize("hub", ["directory"], indirect=True)
def test_a_kill_leaves_no_child_and_the_next_try_goes_on(shell: Shell) -> None:
    upstream = shell.upstream
    upstream.gate.clear()
    with subprocess.Popen(
        [XGEN_MODEL, "hub", "import", "org/m"], env=environment(**shell.environment)
    ) as command:
        assert upstream.held.wait(30)
        assert upstream.children()
        command.kill()
    wait_until(lambda: not upstream.children(), what="the child is gone")
    assert shell.left
    upstream.gate.set()

    assert shell.run("org/m")[0] == 0

    assert shell.hub.plain("huggingface/org_m") == SAFETENSORS
    assert shell.left == []


@pytest.mark.parametrize("hub", ["directory"], indirect=True)
def test_two_at_once_do_not_download_twice(shell: Shell) -> None:
    shell.upstream.gate.clear()
    with started("hub", "import", "org/m", env=shell.environment) as first:
        assert shell.upstream.held.wait(30)
        code, _, complained = shell.run("org/m")
        assert (code, "another import of the same is under way" in complained) == (1, True)
        shell.upstream.gate.set()
        assert first.wait() == 0
    assert sorted(shell.upstream.files_asked()) == sorted(SAFETENSORS)


@pytest.mark.parametrize("hub", ["directory"], indirect=True)
def test_a_terminal_has_a_bar_and_ctrl_c_ends_it_all(shell: Shell) -> None:
    shell.upstream.gate.clear()
    with started("hub", "import", "org/m", columns=100, env=shell.environment) as command:
        command.wait_for("downloading")
        assert shell.upstream.held.wait(30)
        assert command.interrupt() == 130
        assert shell.upstream.children() == []
        assert "interrupted: what came is kept; the same command goes on" in command.text
        assert "Traceback" not in command.text
