"""Two agents on one host, each with a data folder of its own, and the same ports."""

from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model

MODELS = 10


def test_backends_that_start_at_once_take_no_port_twice(make_agent: MakeAgent) -> None:
    agents = [make_agent("--max-parallel-loads", str(MODELS), name=name) for name in "ab"]
    for agent in agents:
        agent.model_file()
        agent.write(manifest(model("first")))
        agent.start()
    for agent in agents:
        agent.wait_up()
        agent.wait_state("first", "loaded")

    for agent in agents:
        agent.write(manifest(*(model(f"model-{number}") for number in range(MODELS))))

    for agent in agents:
        for number in range(MODELS):
            agent.wait_state(f"model-{number}", "loaded")
        answer = agent.client.get(f"{agent.url}/api/management/events", params={"limit": 1000})
        ends = [each for each in answer.json()["events"] if each["kind"] == "BackendExited"]
        assert {each["model"] for each in ends} == {"first"}
