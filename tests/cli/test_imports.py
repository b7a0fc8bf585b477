"""What is slow to import comes with what needs it only: a model waits for an agent's start."""

import subprocess
import sys

import pytest

_AGENT = "import reconciler.cli.run, reconciler.cli.agent_process"
_COMMAND = """
import reconciler.cli.main
try:
    reconciler.cli.main.main()
except SystemExit:
    pass
"""
_CLIENTS = {"minio", "Crypto", "huggingface_hub"}


@pytest.mark.parametrize("words", [["--version"], ["validate", "no-such-file"], ["status"]])
def test_a_small_command_loads_neither_a_hubs_client_nor_the_agent(words: list[str]) -> None:
    loaded = _modules_of(_COMMAND, *words)

    assert "reconciler.cli.main" in loaded
    assert not loaded & {*_CLIENTS, "reconciler.node.agent", "uvicorn", "starlette"}


def test_an_agent_loads_no_hubs_client_before_it_has_such_a_hub() -> None:
    loaded = _modules_of(_AGENT)

    assert "reconciler.node.parts" in loaded
    assert not loaded & _CLIENTS
    assert not loaded & {"reconciler.source.git", "reconciler.source.kubernetes_api"}


def _modules_of(code: str, *words: str) -> set[str]:
    listing = f"{code}\nimport sys; print(); print(*sys.modules)"
    command = [sys.executable, "-c", listing, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())
