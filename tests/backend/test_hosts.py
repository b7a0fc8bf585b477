"""Which backend twelve hosts take, and why: the table of docs/backends.md is what the code does.

After a wanted change: `python -m tests.backend.test_hosts`, then read the diff.
"""

from pathlib import Path

from tests.backend.hosts import HOSTS, table

_PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
_BEGIN, _END = "<!-- hosts: made by tests/backend/test_hosts.py -->\n", "<!-- end of hosts -->\n"


def written() -> tuple[str, str, str]:
    """The page before, in and after the table."""
    before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    inside, _, after = rest.partition(_END)
    return before + _BEGIN, inside, _END + after


def made() -> str:
    return "\n" + "\n".join(table()) + "\n\n"


def test_the_table_of_hosts_is_what_the_code_does() -> None:
    assert len(HOSTS) == 12
    assert written()[1] == made()


if __name__ == "__main__":
    head, _, tail = written()
    _PAGE.write_text(head + made() + tail, encoding="utf-8")
