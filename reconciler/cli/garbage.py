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

    Everybody waits for a collection, in whichever thread it comes. But for the full ones, which are
    as rare as they can be, none is of more than 25,000 objects: of 50,000 of a manifest that is
    read, one took up to 25 ms.
    """
    gc.freeze()
    gc.set_threshold(5_000, 3, 600)
    gc.enable()
