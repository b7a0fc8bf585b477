"""Discovery in a process of its own, on a host of a test: tells what it knows when that changes.

python -m tests.cluster.find_peers PEERS LISTEN_HOST LAG_SECONDS
"""

import asyncio
import json
import sys

from reconciler.log import configure
from reconciler.node.clock import SystemClock
from reconciler.plan.peering_text import parse_peering
from reconciler.proxy.peers.discovery import Discovery, Pace
from reconciler.proxy.peers.own_address import own_address


async def find(peers: str, listen: str, lag: float) -> None:
    pace = Pace(between=0.1, retry=0.1, limit=0.5, lag=lag)
    own = own_address((listen, 8000), [])
    discovery = Discovery(parse_peering(peers), own=own, clock=SystemClock(), pace=pace)
    looking = asyncio.create_task(discovery.run())
    seen = discovery.current()
    while not looking.done():
        seen = await discovery.newer_than(seen)
        condition = discovery.condition()
        told = {
            "peers": [str(address) for address in seen.addresses],
            "reason": condition.reason,
            "message": condition.message,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    configure(form="json", level="error")
    asyncio.run(find(sys.argv[1], sys.argv[2], float(sys.argv[3])))
