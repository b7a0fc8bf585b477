"""Ports for the backends of agents under test, of which several may run on one machine."""

import os
import socket
from functools import cache

_BLOCK = 100
_FIRST = 10_000
_BLOCKS = 100
"""Below what the kernel gives to outgoing connections, and below tests/apply/world.py."""
_held: list[socket.socket] = []


@cache
def own_ports() -> range:
    """A hundred ports that no other test process takes: who has bound the first one has them."""
    for turn in range(_BLOCKS):
        first = _FIRST + (os.getpid() + turn) % _BLOCKS * _BLOCK
        mark = socket.socket()
        try:
            mark.bind(("127.0.0.1", first))
        except OSError:
            mark.close()
            continue
        _held.append(mark)
        return range(first + 1, first + _BLOCK)
    raise AssertionError("every block of ports is taken")
