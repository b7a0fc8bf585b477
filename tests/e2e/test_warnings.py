"""What an engine's launch is warned of is seen by who looks at the model."""

import pytest

from tests.cli.command import xgen_model
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.tiny_bert import tiny_bert


@pytest.mark.slow
def test_pooling_that_the_file_does_not_name_is_in_the_status_and_an_event(
    make_agent: MakeAgent,
) -> None:
    agent = make_agent()
    agent.model_file().write_bytes(tiny_bert(pooling=None, head=False))
    agent.write(manifest(model("embed", type="embedding")))
    agent.start()
    agent.wait_up()

    told = agent.wait_state("embed", "loaded")

    warning = "the GGUF names no pooling of its own, so mean is used"
    assert warning in told["warnings"]
    detail = agent.client.get(f"{agent.url}/api/management/models/embed").json()
    assert detail["warnings"] == told["warnings"]
    shown = xgen_model("status", "--server", agent.url).stdout
    assert f"embed: {warning}" in " ".join(shown.split())
    events = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    warned = [each for each in events if each["kind"] == "BackendWarned"]
    assert [each["reason"] for each in warned] == told["warnings"]
    assert {(each["level"], each["data"]["pid"]) for each in warned} == {("warning", told["pid"])}
