"""How often other agents are asked, by how many there are (PURE).

A node asks at most about 30 times a second altogether, whether nothing changes or everything does.
"""

import random
from dataclasses import dataclass

_A_SECOND = 30.0
_LEAST_WAIT_SECONDS = 2.0
"""How old load figures get where few agents are asked, and none answers a request of ours."""
_LEAST_PERIOD_SECONDS = 0.25
_MOST_HELD = 200
"""Requests that wait at other agents, each on a connection of its own. Past that they are asked in
turn, on connections that are closed: 1,000 sockets are as many as a process may often have."""
OLD_RELEASE_SECONDS = 5.0
"""Between requests to agents that cannot be waited for, and answer at once."""
_FIRST_PROBE_SECONDS = 0.5
_LAST_PROBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`wait_seconds`: for how long an agent may wait for a change before it answers; 0: it is asked
    in turn. `period_seconds`: from one request to the same agent to the next, at least."""

    wait_seconds: float
    period_seconds: float

    @property
    def held(self) -> bool:
        return self.wait_seconds > 0


def pace(peers: int) -> Pace:
    share = peers / _A_SECOND
    if peers > _MOST_HELD:
        return Pace(wait_seconds=0.0, period_seconds=share)
    return Pace(
        wait_seconds=max(_LEAST_WAIT_SECONDS, share),
        period_seconds=max(_LEAST_PERIOD_SECONDS, share),
    )


def probe_after(failures: int, peers: int, chance: random.Random) -> float:
    """Seconds from one failure to the next try: doubling, give or take a quarter. `failures`: in a
    row, from 1."""
    most = max(_LAST_PROBE_SECONDS, peers / _A_SECOND)
    usual = _FIRST_PROBE_SECONDS * float(1 << min(failures - 1, 10))
    return min(most, usual) * chance.uniform(0.75, 1.25)
