"""A last good spec comes back onto GPUs that nobody claims (R7)."""

import pytest

from tests.e2e.agent import Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest
from tests.e2e.test_gpus import Machine, on_gpu
from tests.observe.gpu_libraries import GpuLibraries, build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> GpuLibraries:
    return build(tmp_path_factory.mktemp("gpu-libraries"))


def is_reverted(found: Entry) -> bool:
    return found["degraded"] is not None and found["state"] == "loaded"


def test_it_gives_its_gpu_up_to_another_model_and_takes_it_back(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    agent = make_agent()
    agent.model_file()
    Machine(agent, libraries)
    good = on_gpu("a", gpu_ids="[0]")
    bad = on_gpu("a", gpu_ids="[1]", env='{STAND_IN: "--exit-after 0 --exit-code 3"}')
    agent.write(manifest(good))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.write(manifest(bad))
    agent.wait_model("a", is_reverted)

    agent.write(manifest(bad, on_gpu("other", gpu_ids="[0]")))

    agent.wait_state("other", "loaded")
    gone = agent.wait_state("a", "blocked")
    assert "cannot go back to the last good spec" in gone["reason"]
    assert "GPU 0 (GPU-0) is claimed by other" in gone["reason"]
    assert "code 3" in gone["target"]["reason"]

    agent.write(manifest(bad))

    agent.wait_model("a", is_reverted)
