"""`/api/management/events` and a model's logs: read once, or followed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.errors import Rejected
from reconciler.events import KEPT, Event, Journal, Page
from reconciler.proxy import errors, headers, json_text, management_view, reply
from reconciler.proxy.board import Routes
from reconciler.proxy.errors import Problem
from reconciler.proxy.management import LogReader, Logs, find
from reconciler.proxy.query import read_query
from reconciler.proxy.streams import Streams

_POLL_SECONDS = 0.25
"""Between looks at a log that is followed."""
_MOST_LINES = 10_000


class _EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    since: str = ""
    model: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=KEPT)] = KEPT
    follow: bool = False


class Events:
    """As one JSON object, or (`follow`) as server-sent events, the past ones first.

    Without `since` the limit means the newest events, with it the first ones after it.
    """

    def __init__(self, journal: Journal, routes: Routes, streams: Streams) -> None:
        self._journal = journal
        self._routes = routes
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = read_query(scope, _EventsQuery)
        if isinstance(query, Problem):
            await reply.send_problem(scope, send, query)
            return
        last_id = headers.first(scope["headers"], b"last-event-id")
        given = last_id.decode("latin-1") if last_id is not None else query.since
        try:
            cursor = self._journal.cursor(given)
        except Rejected as exc:
            await reply.send_problem(scope, send, errors.bad_query(str(exc)))
            return
        model = self._model(query.model, reads_on=":" in given)
        if isinstance(model, Problem):
            await reply.send_problem(scope, send, model)
            return
        query.model = model
        page = self._journal.after(cursor, model=model)
        if not query.follow:
            await reply.send_json(send, self._as_json(page, query.limit, newest=not given))
            return
        problem = await self._streams.send(
            scope,
            send,
            content_type=b"text/event-stream",
            chunks=self._follow(page, query, newest=not given),
            heartbeat=b": ping\n\n",
        )
        if problem is not None:
            await reply.send_problem(scope, send, problem)

    def _model(self, named: str | None, *, reads_on: bool) -> str | Problem | None:
        """Whose events are meant: an alias names its model, one that is gone has its own still.

        Who reads on had events of it: since then the agent may have begun anew, and know nothing.
        """
        if named is None:
            return None
        table = self._routes.current()
        if (model := table.here.get(named)) is not None:
            return model.name
        told = {event.model for event in self._journal.after(0).events if event.model is not None}
        if named in told or reads_on:
            return named
        if table.status.unknown_because is not None:
            return errors.node_starting(table.status.unknown_because)
        return errors.no_such_model(named, tuple(sorted(table.here.keys() | told)))

    def _as_json(self, page: Page, limit: int, *, newest: bool) -> object:
        shown = _limited(page.events, limit, newest=newest)
        cut = len(shown) < len(page.events) and not newest
        return {
            "api": 1,
            "node": self._routes.current().status.node,
            "run": self._journal.run,
            "events": [management_view.event(event) for event in shown],
            "missed": page.missed,
            "next": shown[-1].seq if cut else page.next,
        }

    async def _follow(
        self, page: Page, query: _EventsQuery, *, newest: bool
    ) -> AsyncGenerator[bytes, None]:
        shown = _limited(page.events, query.limit, newest=newest)
        while True:
            if page.missed:
                yield b'event: missed\ndata: {"missed":%d}\n\n' % page.missed
            for event in shown:
                yield self._as_sse(event)
            await self._journal.newer_than(page.next)
            page = self._journal.after(page.next, model=query.model)
            shown = page.events

    def _as_sse(self, event: Event) -> bytes:
        data = json_text.encode(management_view.event(event))
        return b"id: %s:%d\ndata: %s\n\n" % (self._journal.run.encode(), event.seq, data)


def _limited(events: Sequence[Event], limit: int, *, newest: bool) -> Sequence[Event]:
    return events[-limit:] if newest else events[:limit]


class _LogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    lines: Annotated[int, msgspec.Meta(ge=0, le=_MOST_LINES)] = 200
    follow: bool = False


class ModelLogs:
    """`GET /api/management/models/{name}/logs`: what a model's backends print, as plain text."""

    def __init__(self, logs: Logs, routes: Routes, streams: Streams) -> None:
        self._logs = logs
        self._routes = routes
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = find(self._routes, scope["path_params"]["name"])
        query = read_query(scope, _LogsQuery)
        if isinstance(model, Problem):
            await reply.send_problem(scope, send, model)
            return
        if isinstance(query, Problem):
            await reply.send_problem(scope, send, query)
            return
        log = self._logs.open(model.name)
        text = await log.last(query.lines)
        if not query.follow:
            await reply.send_text(send, text)
            return
        refused = await self._streams.send(
            scope,
            send,
            content_type=reply.TEXT,
            chunks=self._follow(log, text, model.name),
        )
        if refused is not None:
            await reply.send_problem(scope, send, refused)

    async def _follow(self, log: LogReader, text: bytes, name: str) -> AsyncGenerator[bytes, None]:
        """Until the model is gone from this node, and its log has been read to its end."""
        if text:
            yield text
        known = True
        while known:
            known = name in self._routes.current().here
            while text := await log.more():
                yield text
            await asyncio.sleep(_POLL_SECONDS)
