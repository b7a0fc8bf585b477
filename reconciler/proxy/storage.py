"""`/api/storage/models`: what the hub holds. Reading is open to whoever reaches the port."""

from collections.abc import Mapping
from typing import Protocol

from starlette.types import Receive, Scope, Send

from reconciler.errors import Rejected, XgenError
from reconciler.proxy import errors, reply
from reconciler.proxy.board import Routes
from reconciler.proxy.errors import Problem


class HubListing(Protocol):
    async def listing(self) -> Mapping[str, object]:
        """JSON. Raises Rejected where there is no hub, Transient while it does not answer."""


class StoredModels:
    """`GET /api/storage/models`."""

    def __init__(self, hub: HubListing, routes: Routes) -> None:
        self._hub = hub
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            listing = await self._hub.listing()
        except Rejected as exc:
            problem = Problem(status=409, code="no_hub", message=str(exc))
            await reply.send_problem(scope, send, problem)
        except XgenError as exc:
            problem = Problem(
                status=503, code="hub_away", message=str(exc), headers=(errors.COME_SOON,)
            )
            await reply.send_problem(scope, send, problem)
        else:
            node = self._routes.current().status.node
            await reply.send_json(send, {"api": 1, "node": node, **listing})
