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

    What has survived is looked at once more after four collections: after twenty that took 25 ms,
    for which everybody waited, while a manifest of 1,000 models was read.
    """
    gc.freeze()
    gc.set_threshold(10_000, 4, 250)
    gc.enable()
