"""`POST /api/management/plan`: what a manifest would change on this node, and why.

A question, not a change: it is answered to whoever may ask for the plan (design §9).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.errors import Transient
from reconciler.manifest.problem import Problem as ManifestProblem
from reconciler.plan.changes import NodeChanges
from reconciler.plan.changes_json import node_as_json
from reconciler.proxy import errors, reply
from reconciler.proxy.board import Routes
from reconciler.proxy.client import ClientLeft, WhileClientStays, read_body
from reconciler.proxy.errors import COME_SOON, Problem
from reconciler.status import Json

_BODY_BYTES = 32 * 1024 * 1024
"""A manifest's file has at most 1 MiB; JSON may need twice as much."""
_MOST_FILES = 1000
_TOLD = 3
"""Of the problems, in the message; the answer has all of them."""


class Foretold(Protocol):
    """`changes` None: the manifest cannot be taken whole, for these problems."""

    @property
    def changes(self) -> NodeChanges | None: ...
    @property
    def problems(self) -> tuple[ManifestProblem, ...]: ...


class Rehearsals(Protocol):
    """Without files: of the manifest in force. Raises Transient."""

    async def rehearse(self, files: Mapping[str, bytes] | None) -> Foretold: ...


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    content: str


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    files: Annotated[list[_File], msgspec.Meta(max_length=_MOST_FILES)] | None = None


class Rehearse:
    def __init__(self, rehearsals: Rehearsals, routes: Routes) -> None:
        self._rehearsals = rehearsals
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            files = await self._files(scope, receive)
            if isinstance(files, Problem):
                await reply.send_problem(scope, send, files)
                return
            with WhileClientStays(scope):
                told = await self._rehearsals.rehearse(files)
        except ClientLeft:
            return
        except Transient as exc:
            busy = Problem(status=503, code="no_rehearsal", message=str(exc), headers=(COME_SOON,))
            await reply.send_problem(scope, send, busy)
            return
        problems = [_problem(each) for each in told.problems]
        if told.changes is None:
            body = _refused(told.problems) | {"problems": problems}
            await reply.send_json(send, body, status=HTTPStatus.UNPROCESSABLE_ENTITY)
            return
        revision = self._routes.current().status.revision
        await reply.send_json(
            send,
            {
                "api": 1,
                "revision": {"applied": revision.applied, "attempted": revision.attempted},
                **node_as_json(told.changes),
                "problems": problems,
            },
        )

    async def _files(self, scope: Scope, receive: Receive) -> Mapping[str, bytes] | Problem | None:
        body = await read_body(receive, scope["headers"], limit_bytes=_BODY_BYTES)
        if isinstance(body, Problem):
            return body
        try:
            question = msgspec.json.decode(body.strip() or b"{}", type=_Question)
        except msgspec.DecodeError as exc:
            return errors.bad_body(str(exc))
        if question.files is None:
            return None
        files = {each.name: each.content.encode() for each in question.files}
        if len(files) < len(question.files):
            return errors.bad_body("two files have one name")
        return files


def _refused(problems: tuple[ManifestProblem, ...]) -> Json:
    found = [str(each) for each in problems if each.is_error]
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    count = f"{len(found)} error{'' if len(found) == 1 else 's'}"
    message = f"cannot take this manifest: {count}: {'; '.join(found[:_TOLD])}{more}"
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": "files",
            "code": "invalid_manifest",
        }
    }


def _problem(problem: ManifestProblem) -> Json:
    place = problem.place
    return {
        "file": place.file if place is not None else None,
        "line": place.line if place is not None else None,
        "column": place.column if place is not None else None,
        "path": problem.path,
        "message": problem.message,
        "severity": problem.severity,
    }
