"""When Python's collector walks the agent's objects.

What is imported and made at the start stays for good. A full collection over it took a quarter of
the CPU of a small request and some 60 ms of everybody's time; at the start itself, an eighth of it.
"""

import gc


def collect_nothing_yet() -> None:
    """From the start on, until `collect_what_comes`."""
    gc.disable()


def collect_what_comes() -> None:
    """From now on, seldom, and never what is there by now: that is no garbage.

    Everybody waits for a collection, in whichever thread it comes. But for the full ones, none is
    of more than 25,000 objects: of 50,000 of a manifest that is read, one took up to 25 ms. Full
    ones are made at rest (`node.full_collections`), and by Python only in an agent that never
    rests, some 1,000 changes of a manifest of 1,000 models after the last one.
    """
    gc.freeze()
    gc.set_threshold(5_000, 3, 6_000)
    gc.enable()
