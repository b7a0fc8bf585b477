"""Routing where most paths are known whole: those are looked up, not tried in their order."""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send


class Paths(Router):
    """Starlette's router, past its search where a path is that of one route, without parameters.

    Of two such routes the first one counts, as there. A route with parameters must not be meant
    to be found before one without.
    """

    def __init__(
        self, routes: Sequence[BaseRoute], *, default: ASGIApp, lifespan: Lifespan["Paths"]
    ) -> None:
        super().__init__(routes, redirect_slashes=False, default=default, lifespan=lifespan)
        self._whole = {
            route.path: route.app
            for route in reversed(routes)
            if isinstance(route, Route) and not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._whole.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
        else:
            await endpoint(scope, receive, send)
