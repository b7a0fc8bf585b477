"""`/api/download`: imports from Hugging Face into the hub, as jobs.

Reading is open to whoever reaches the port; asking and cancelling are for clients on this host,
until there are keys (design §9).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.errors import Rejected, XgenError
from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository, parse_repository
from reconciler.proxy import errors, json_text, reply
from reconciler.proxy.access import why_not_allowed
from reconciler.proxy.board import Routes
from reconciler.proxy.client import read_body
from reconciler.proxy.errors import Problem
from reconciler.proxy.management import answer_command

Json = Mapping[str, object]

_BODY_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 200


class Jobs(Protocol):
    """The imports of this node, for threads: each may write to disk. A job is JSON."""

    def every(self) -> Sequence[Json]:
        """The newest first."""

    def one(self, job_id: str) -> Json | None: ...

    def ask(
        self, repository: Repository, *, file: str | None, format: Format, refresh: bool
    ) -> Json:
        """A job, new or under way. Raises Rejected where there is no hub, Transient."""

    def remove(self, job_id: str) -> tuple[Json, bool] | None:
        """Cancel it, or forget it (True) where it has ended."""


class _Ask(msgspec.Struct, forbid_unknown_fields=True):
    repo: Annotated[str, msgspec.Meta(max_length=1000)]
    revision: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    file: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    format: Format | None = None
    refresh: bool = False


class Downloads:
    """`GET /api/download`."""

    def __init__(self, jobs: Jobs, routes: Routes) -> None:
        self._jobs = jobs
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        jobs = await asyncio.to_thread(self._jobs.every)
        await reply.send_json(send, {**_head(self._routes), "jobs": jobs})


class Download:
    """`GET /api/download/{id}`."""

    def __init__(self, jobs: Jobs, routes: Routes) -> None:
        self._jobs = jobs
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        job_id = scope["path_params"]["id"]
        job = await asyncio.to_thread(self._jobs.one, job_id)
        if job is None:
            await reply.send_problem(scope, send, _no_such_job(job_id))
        else:
            await reply.send_json(send, {**_head(self._routes), "job": job})


class AskDownload:
    """`POST /api/download`: a job for it, or the one that is under way."""

    def __init__(self, jobs: Jobs, routes: Routes) -> None:
        self._jobs = jobs
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer_command(scope, send, self._answer(scope, receive), status=202)

    async def _answer(self, scope: Scope, receive: Receive) -> object | Problem:
        if (refusal := why_not_allowed(scope)) is not None:
            return refusal
        body = await read_body(receive, scope["headers"], limit_bytes=_BODY_BYTES)
        if isinstance(body, Problem):
            return body
        try:
            ask = msgspec.json.decode(body, type=_Ask)
        except msgspec.DecodeError as exc:
            return errors.bad_body(json_text.why_unreadable(body, exc))
        if (repository := _repository(ask)) is None:
            return _bad_repository(ask)
        if (problem := _bad_file(ask)) is not None:
            return problem
        if self._routes.current().status.draining:
            return errors.draining(self._routes.current().status.node)
        try:
            job = await asyncio.to_thread(
                self._jobs.ask,
                repository,
                file=ask.file,
                format=ask.format or Format.AUTO,
                refresh=ask.refresh,
            )
        except Rejected as exc:
            return Problem(status=409, code="no_hub", message=str(exc))
        except XgenError as exc:
            return Problem(
                status=503, code="job_not_saved", message=str(exc), headers=(errors.COME_SOON,)
            )
        return {**_head(self._routes), "job": job}


class RemoveDownload:
    """`DELETE /api/download/{id}`: 202 while a cancelled one has not come to its end."""

    def __init__(self, jobs: Jobs, routes: Routes) -> None:
        self._jobs = jobs
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := why_not_allowed(scope)) is not None:
            await reply.send_problem(scope, send, refusal)
            return
        job_id = scope["path_params"]["id"]
        removed = await asyncio.to_thread(self._jobs.remove, job_id)
        if removed is None:
            await reply.send_problem(scope, send, _no_such_job(job_id))
            return
        job, forgotten = removed
        status = 202 if job["ended_at"] is None else 200
        body = {**_head(self._routes), "job": job, "forgotten": forgotten}
        await reply.send_json(send, body, status=status)


def _head(routes: Routes) -> dict[str, object]:
    return {"api": 1, "node": routes.current().status.node}


def _repository(ask: _Ask) -> Repository | None:
    """None for what is none. The revision may stand in `repo`, or by itself."""
    text = ask.repo if ask.revision is None else f"{ask.repo}@{ask.revision}"
    try:
        return parse_repository(text)
    except Rejected:
        return None


def _bad_repository(ask: _Ask) -> Problem:
    shown = ask.repo if ask.revision is None else f"{ask.repo}@{ask.revision}"
    message = (
        f"cannot use repository {shown[:_SHOWN_CHARACTERS]!r}: it must look like org/name or "
        "org/name@revision"
    )
    return Problem(status=400, code="invalid_repository", message=message, param="repo")


def _bad_file(ask: _Ask) -> Problem | None:
    if ask.file is None:
        return None
    if not ask.file.lower().endswith(".gguf"):
        why = "it must name a GGUF, by its path in the repository"
    elif ask.format is Format.SAFETENSORS:
        why = "it names a GGUF, and `format` is safetensors"
    else:
        return None
    message = f"cannot import file {ask.file[:_SHOWN_CHARACTERS]!r}: {why}"
    return Problem(status=400, code="invalid_file", message=message, param="file")


def _no_such_job(job_id: str) -> Problem:
    message = f"cannot find import {job_id[:_SHOWN_CHARACTERS]!r}: this node has no such job"
    return Problem(status=404, code="job_not_found", message=message)
