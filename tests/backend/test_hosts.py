"""Which backend twelve hosts take, and why: the table of docs/backends.md is what the code does.

After a wanted change: `python -m tests.backend.test_hosts`, then read the diff.
"""

import tempfile
from pathlib import Path

import pytest

from tests.backend.hosts import HOSTS, table
from tests.observe.gpu_libraries import GpuLibraries, build

_PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
_BEGIN, _END = "<!-- hosts: made by tests/backend/test_hosts.py -->\n", "<!-- end of hosts -->\n"


def written() -> tuple[str, str, str]:
    """The page before, in and after the table."""
    before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    inside, _, after = rest.partition(_END)
    return before + _BEGIN, inside, _END + after


def made(libraries: GpuLibraries, place: Path) -> str:
    return "\n" + "\n".join(table(libraries, place)) + "\n\n"


@pytest.mark.slow
def test_the_table_of_hosts_is_what_the_code_does(libraries: GpuLibraries, tmp_path: Path) -> None:
    assert len(HOSTS) == 12
    assert written()[1] == made(libraries, tmp_path)


def _rewrite(folder: Path) -> None:
    head, _, tail = written()
    page = head + made(build(folder / "libraries"), folder) + tail
    _PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        _rewrite(Path(name))
