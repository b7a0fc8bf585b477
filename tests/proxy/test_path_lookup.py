"""`Paths` finds what Starlette's router finds, whether or not it searches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.proxy.paths import Paths


def _named(name: str, heard: list[str]) -> ASGIApp:
    class Endpoint:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            heard.append(f"{name} {scope.get('path_params', {})}")

    return Endpoint()


@asynccontextmanager
async def _nothing(_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/a", "whole {}"),
        ("/a/", "default {}"),
        ("/b/a/c", "rest {'rest': 'a/c'}"),
        ("/b", "default {}"),
        ("/c", "default {}"),
    ],
)
async def test_a_path_finds_its_route(path: str, found: str) -> None:
    heard: list[str] = []
    router = Paths(
        [
            Route("/b/{rest:path}", _named("rest", heard)),
            Route("/a", _named("whole", heard)),
            Route("/a", _named("second", heard)),
            Mount("/m", _named("mounted", heard)),
        ],
        default=_named("default", heard),
        lifespan=_nothing,
    )

    async def never() -> dict[str, object]:
        raise AssertionError

    async def nowhere(message: object) -> None:
        raise AssertionError

    await router({"type": "http", "method": "GET", "path": path}, never, nowhere)
    assert heard == [found]
