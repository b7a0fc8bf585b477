"""A model that cannot be started keeps the GPU from nobody who can."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.agent import llama_server_stand_in
from tests.e2e.conftest import MakeAgent
from tests.e2e.gpu_machine import GIB, KEYS, PREFIX
from tests.e2e.manifests import manifest, model
from tests.gguf_file import header
from tests.observe.gpu_libraries import GpuLibraries, records
from tests.tiny_bert import tiny_bert

pytestmark = pytest.mark.slow

CANNOT = {
    "outside": {"source": "file:///etc", "format": "gguf"},
    "type": {"source": "gguf/bert_e", "type": "llm"},
    "typo": {"source": "gguf/typo"},
    "large": {"source": PREFIX, "extra_args": "{ctx_size: 9000000}"},
    "template": {"source": PREFIX, "extra_args": '{chat_template_file: "@/none.jinja"}'},
}


@pytest.fixture
def machine(libraries: GpuLibraries, tmp_path: Path) -> dict[str, str]:
    """Of one GPU."""
    gpu = {"uuid": "GPU-0", "pci": "0000:01:00.0", "total": 80 * GIB, "used": GIB}
    return libraries.machine(tmp_path, nvidia=records("gpu", gpu))


def test_what_cannot_be_started_takes_no_gpu_from_what_crashed_or_changed(
    make_agent: MakeAgent, machine: dict[str, str]
) -> None:
    agent = make_agent()
    agent.environment |= machine
    agent.model_file(PREFIX).write_bytes(header(KEYS))
    agent.model_file("gguf/bert_e").write_bytes(tiny_bert())
    llama_server_stand_in(agent.root, "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)")
    good = {"source": PREFIX, "backend": "auto"}
    bad = [
        model(f"a-{name}", backend="auto", priority="20", **fields)
        for name, fields in CANNOT.items()
    ]
    agent.write(manifest(model("good", extra_args="{ctx_size: 512}", **good), *bad))
    agent.start()
    agent.wait_up()
    pid = agent.wait_state("good", "loaded")["pid"]
    for name in CANNOT:
        agent.wait_model(f"a-{name}", lambda entry: entry["state"] in ("blocked", "error"))

    os.kill(pid, signal.SIGKILL)
    again = agent.wait_model("good", lambda e: e["state"] == "loaded" and e["pid"] != pid)["pid"]
    agent.write(manifest(model("good", extra_args="{ctx_size: 1024}", **good), *bad))
    changed = agent.wait_model("good", lambda e: e["state"] == "loaded" and e["pid"] != again)

    # What can be started at last kicks out nobody.
    able = model("a-large", extra_args="{ctx_size: 512}", priority="20", **good)
    agent.write(manifest(model("good", extra_args="{ctx_size: 1024}", **good), able))
    refused = agent.wait_model("a-large", lambda entry: "claimed are" in entry["reason"])
    assert "GPU 0 (GPU-0) by good" in refused["reason"]
    assert agent.wait_state("good", "loaded")["pid"] == changed["pid"]
    assert agent.stop() == 0
