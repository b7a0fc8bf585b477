"""What the tests of charts, images and units share; all of them are of the lane `deploy`."""

from pathlib import Path

import pytest

from tests.deploy.rendering import Chart

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.deploy)


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return Chart(tmp_path_factory.mktemp("helm"))
