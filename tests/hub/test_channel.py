"""What the agent and its transfer process say to each other."""

import fcntl
import resource
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from reconciler.hub.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = (Channel(end) for end in socket.socketpair())
    with closing(one), closing(other):
        yield one, other


def test_messages_come_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    said = [{"number": number, "text": "ö" * number} for number in range(100)]

    for message in said:
        one.send(message)

    assert [other.receive() for _ in said] == said


def test_nothing_and_the_end_are_told_apart(ends: tuple[Channel, Channel]) -> None:
    one, other = ends

    assert other.receive(0.001) is None
    one.send({"last": True})
    one.end_sending()
    assert other.receive() == {"last": True}
    with pytest.raises(EOFError):
        other.receive()
    other.send({"still": "heard"})
    assert one.receive() == {"still": "heard"}


def test_works_with_more_files_open_than_select_knows() -> None:
    """An agent with a thousand streams has that many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    try:
        one, other = socket.socketpair()
        high = socket.socket(fileno=fcntl.fcntl(other.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500))
        other.close()
        with closing(Channel(one)) as sender, closing(Channel(high)) as receiver:
            sender.send({"high": True})
            assert receiver.receive(10.0) == {"high": True}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
