"""Libraries in the place of the GPU drivers' own, compiled once."""

import pytest

from tests.observe.gpu_libraries import GpuLibraries, build


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> GpuLibraries:
    return build(tmp_path_factory.mktemp("gpu-libraries"))
