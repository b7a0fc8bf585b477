"""`doctor` beside an agent: it looks at the machine by the settings that the agent was given."""

import json

import pytest

from tests.backend.build import executable
from tests.cli.command import xgen_model
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model

pytestmark = pytest.mark.slow


def test_the_settings_of_the_agent_hold_but_for_what_is_given(make_agent: MakeAgent) -> None:
    agent = make_agent("--gpu-mode", "plugin", "--allow-engine-arg", "slot_save_path")
    agent.args += ["--engine", f"mine=llama-server-cpu:{agent.root}/llama-server"]
    agent.model_file()
    agent.write(manifest(model("a", engine="mine", extra_args="{slot_save_path: /tmp}")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")

    def said(*more: str) -> dict[str, str]:
        result = xgen_model("doctor", "--data-dir", agent.data, "--output", "json", *more)
        checks = json.loads(result.stdout)["checks"]
        return {each["subject"]: f"{each['level']}: {each['message']}" for each in checks}

    found = said()
    assert agent.process is not None
    assert found["settings"] == (
        f"ok: those of the agent (pid {agent.process.pid}), but for what is given here"
    )
    assert found["selection"] == "ok: node-a would run a"
    assert found["files of a"].startswith("ok: gguf/test_model: 1 file")
    assert not [subject for subject in found if subject.startswith("engine of")]
    other = executable(agent.root / "other", "exit 1", "/bin/sh")
    assert (
        "cannot use engine mine" in said("--engine", f"x=llama-server-cpu:{other}")["engine of a"]
    )

    assert agent.stop() == 0
    assert "settings" not in said()
