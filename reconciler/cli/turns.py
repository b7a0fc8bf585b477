"""How long a thread keeps the interpreter from the others, the event loop's among them.

Whoever comes back from a wait for the system waits for its turn: behind three threads that read a
manifest, the cache and the hub, at Python's 5 ms, the loop did for 15 to 45 ms at every step.
"""

import sys

TURN_SECONDS = 0.001
"""Half as much shortened no wait of the loop that could be seen; a switch takes microseconds."""


def take_short_turns() -> None:
    """In all threads, from now on."""
    sys.setswitchinterval(TURN_SECONDS)
