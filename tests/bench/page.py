"""The results as Markdown: the tables that are printed, and `docs/performance.md` around them."""

from collections.abc import Iterable

from tests.bench.balance import LOOK_SECONDS
from tests.bench.balance_table import balance_tables
from tests.bench.balance_world import GIVE_UP_SECONDS
from tests.bench.cluster_table import cluster_table
from tests.bench.latency_table import latency_table
from tests.bench.leaving import AT_ONCE
from tests.bench.loop_tables import loop_tables, takeover_table, validate_table
from tests.bench.proxy_tables import (
    bodies_table,
    ending_table,
    idle_table,
    leaving_table,
    small_table,
)
from tests.bench.published import published_table
from tests.bench.results import Results
from tests.bench.small import CONNECTIONS, STREAMS
from tests.bench.wire import INTERVAL_SECONDS


def tables(results: Results) -> str:
    """Of all that was measured."""
    return "\n\n".join("\n".join(lines) for lines in _tables(results))


def _tables(results: Results) -> Iterable[Iterable[str]]:
    if results.small:
        yield small_table(results.small)
    for name, why in results.absent.items():
        yield (f"{name} was **not measured**: {why}.",)
    if results.idle:
        yield idle_table(results.idle)
    if results.bodies:
        yield bodies_table(results.bodies)
    if results.leaving:
        yield leaving_table(results.leaving)
    if results.ending:
        yield ending_table(results.ending)
    if results.small and results.idle:
        yield published_table(results.small, results.idle)
    yield from _tables_of_the_agent(results)


def _tables_of_the_agent(results: Results) -> Iterable[Iterable[str]]:
    """Those without other servers."""
    if results.reconcile:
        yield loop_tables(results.reconcile)
    if results.latency:
        yield latency_table(results.latency)
    if results.takeover:
        yield takeover_table(results.takeover)
    if results.validate:
        yield validate_table(results.validate)
    if results.balance:
        yield balance_tables(results.balance)
    if results.cluster:
        yield cluster_table(results.cluster)


def page(results: Results, *, date: str) -> str:
    """`docs/performance.md`. `date`: of the run, which had all parts."""
    small, idle, bodies = results.small, results.idle, results.bodies
    leaving, loop, takeover = results.leaving, results.reconcile, results.takeover
    validate, latency, balance = results.validate, results.latency, results.balance
    cluster = results.cluster
    assert small is not None
    assert idle is not None
    assert bodies is not None
    assert leaving is not None
    assert loop is not None
    assert takeover is not None
    assert validate is not None
    assert latency is not None
    assert balance is not None
    assert cluster is not None
    return _PAGE.format(
        date=date,
        tables=tables(results),
        rounds=small.effort.rounds,
        requests=small.effort.requests,
        connections=CONNECTIONS,
        streams=STREAMS,
        chunks=round(1 / INTERVAL_SECONDS),
        idle=idle.effort,
        bodies=bodies.effort.rounds * bodies.effort.bodies,
        leaving=leaving.effort,
        at_once=AT_ONCE,
        loop=loop.effort,
        takeover=takeover.effort,
        validate=validate.effort,
        asks=balance.requests,
        look=LOOK_SECONDS,
        give_up=GIVE_UP_SECONDS,
        cluster=cluster.effort,
        changes=" and ".join(
            f"{changes} at {models:,} models" for models, changes in latency.effort.changes.items()
        ),
    )


_PAGE = """\
# Performance

Written by `make bench` on {date}; do not edit. Absolute figures are those of one machine with two
cores that others load too: compare only within a table, best by the ratios.

{tables}

## Method

**Proxy.** All servers run at once, each in one process, and are measured in turns; {rounds} rounds,
each begun with another server. Figures are medians of the rounds, a ratio is taken within a round
(in brackets: least and most). CPU is user and system time of the server's process, from the kernel,
never wall clock.
The agent is `xgen-model run` as operators start it: routing, the look into the body, the watch over
the client and the accounting are in its figures. All proxies have the same upstream, the agent's
backend, which answers constants. Every answer is compared with what the upstream sent. For each
table the servers are started anew.

- *A request*: a chat completion of some 170 bytes, {requests:,} a round over {connections} busy
  connections.
- *An SSE chunk*: {streams} streams side by side, {chunks} chunks a second each, all at the same
  moment, as a batching engine gives them. The constant answers' own figure includes a timer a
  chunk.
- *Added p50*: on one connection that is otherwise idle, less the upstream's own. *RSS*: at start.
- *Idle streams*: each got one event, then nothing. Rate and CPU are of {idle.requests:,} requests
  as above, before and while they are open; {idle.rounds} rounds. Then all of them say nothing for
  {idle.silence_seconds:.0f} s: the agent sends each a comment every 15 s, which load balancers
  need, and the others nothing. This opens some 20,000 files: the bench raises the soft limit
  (`ulimit -n`) to the hard one, for itself and for the servers.
- *A body of 12 MB*: one image as a data URL, with `"model"` before or behind it; {bodies} of each,
  one after the other. nginx writes it to disk first, as it does by default.
- *Clients that leave*: {leaving.before_byte:,} a round before the first byte and
  {leaving.midway:,} in a stream, {at_once} at a time, {leaving.rounds} rounds. The time is from
  the client's close to the end of the request at the upstream, one client at a time. Memory that
  waits for Python's collector counts as grown.
- *The upstream's connection ends*: a cut answer looks cut where its last chunk is missing.
  vllm-router runs with `--disable-retries` and without its circuit breaker.
- *bare ASGI and aiohttp* passes requests on and does nothing else: what is above it is our routing,
  headers, watching and counting, what is below it is the HTTP client. *Our connection class* and
  *uvicorn* (its own httptools protocol) are the servers alone: uvicorn is the floor of all that
  runs on it.

**Against the published figures.** "Then" is no measurement of this run: it is a comparison that was
made on another day, while the proxy was a prototype (one upstream, no authentication, four
interleaved rounds; nginx took 16 µs a request). Only ratios can be held beside each other. The
agent's row stands beside an estimate of what the prototype would take with routing, watching and
metrics; what it does beyond that (its own connection class, limits in time and size, heartbeats,
identifiers) is in its figure of now.

**Loop.** A tick is the real loop's with a real cache and real engines, {loop.ticks} in a row; its
CPU is that of all threads. Suspended models are fully looked up and planned, but nothing is
started. A change switches one model on, all others are for other nodes ({loop.changes} changes
each, every text a new one); it ends when the backend's process runs. Plain files count when two
reads 250 ms apart agree; a swapped link counts at once; a push counts from its end, when the agent
is told to look. Stalls are of the real source alone, on a loop that looks at the clock each
millisecond; {loop.pushes} pushes. Idle agents are watched for {loop.idle_seconds:.0f} s.

**A change's first action.** Real agents, each with its own source, one changed after the other,
each left alone for 1.5 s before; {changes}. A model that loads, and never gets ready, is given
another context size: the first action is the stop of its backend, by the time that the agent's own
events give it. All other models are for other nodes, but for the last row of each number: there all
of them are to run here, their files cached, and two load at a time, so that each is looked up,
planned and told. Models take eleven lines each, in one file. A push counts from the moment at which
the agent is told of it. *Stall*: how late a timer of 2 ms in the agent's event loop is at most,
from the change to 0.4 s after the stop; *our CPU*: what the agent's process took from one beat of
it to the next, which is what the stall would be on a machine of its own. *CPU of the change*: all
that the agent takes until then, its stop and its start of a backend included. *libyaml's*: what
PyYAML's loader in C takes for the same text. The machine does other work meanwhile: a process that
does nothing but beat tells how much.

**A new agent.** An agent is killed (`kill -9`) while its one model serves, and another is started
in its place; {takeover.rounds} rounds. All times are from its exec; its engines are asked for their
versions beside. Below a supervisor (`--supervise`) a spare waits already, imported, and takes over:
the first {takeover.spares} rounds, each of another supervisor, from the kill on. In each round, one
after the other: a process that imports the largest of its libraries and ends (aiohttp, msgspec,
pydantic, starlette, structlog, uvicorn, uvloop), and a server of aiohttp that answers a constant.

**Validate.** `xgen-model validate` with one file of so many models of a dozen lines each,
{validate.rounds} rounds. The whole command is a process from its exec to its end; the work is what
a process that has imported everything takes from the bytes to every problem.

**Balancing.** Simulated, with the agent's own code and simulated time: the figures are the same on
any machine. {asks:,} requests in all, the same for every way.
Lengths are log-normal: one second of work on average, a tenth of it before the first byte. A
replica has 8 slots; with more than 4 requests at work each of them gets slower. Load is held
against what all replicas can do together; bursts are four times the rate for 5 of every 20 s.
Times are from the request to the end of its answer. Failed: refused, or not answered in
{give_up:.0f} s. In the last two rows of the first table each of six nodes takes a sixth of the
requests, and knows of the others what came with their answers, or is up to {look:.0f} s old.
*Least connections* counts its own, as nginx and Envoy do; *two random choices* takes the less busy
one by the agent's figures. None of the others has a breaker.
`python -m tests.bench.balance` prints every figure.

**Following.** One agent, with stubs in another process for the others, each on a socket of its own,
that tell of four models in 16 kB; {cluster.seconds:.0f} s for each figure of CPU. That is the whole
process of an idle agent that runs no model and gets no request, from when it has seen all of them:
its start, and the first answer of each, are not in it and cost more (1 to 2 s). *A change is
known after*: of up to 30 peers at a time, until the agent has fetched it, or at 1,000 until it was
their turn. *`/servers`*: of one request, while peers change.
"""
