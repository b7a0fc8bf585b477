"""Answers that are errors, in OpenAI's shape: `{"error": {message, type, param, code}}` (PURE).

docs/http.md holds the table for readers.
"""

import difflib
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from reconciler.plan.desired import ModelType
from reconciler.proxy import json_text

Header = tuple[bytes, bytes]

NOT_STARTED: Header = (b"x-xgen-not-started", b"1")
"""The request certainly reached no backend, so it may be sent elsewhere."""
UNANSWERED: Header = (b"x-xgen-unanswered", b"1")
"""It reached one, which broke off before a byte of its answer."""

CLOSE: Header = (b"connection", b"close")
"""The next request of this client shall find another agent."""

COME_SOON: Header = (b"retry-after", b"5")
"""On a 503 of a path for operators."""

DO_NOT_RETRY: Header = (b"x-should-retry", b"false")
"""On what waiting does not mend, instead of Retry-After. OpenAI's clients obey it; without it they
repeat every 5xx."""
SHOWN_CHARACTERS = 200
"""Of a name that a client made up; it may be as long as a body."""
UNSURE_SECONDS = 60.0
"""For which a name that nobody has may be one that has just gone, or that of a node to be heard of:
503, for clients never repeat a 404."""
SOON_SECONDS = 5
LATER_SECONDS = 60


class Typed(Protocol):
    """A model, as far as an error about its type has to know it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> ModelType: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error answer. `model`: the name that it concerns, where that is known."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: tuple[Header, ...] = ()
    model: str | None = None

    @property
    def type(self) -> str:
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"


def as_json(problem: Problem) -> bytes:
    return json_text.encode(
        {
            "error": {
                "message": problem.message,
                "type": problem.type,
                "param": problem.param,
                "code": problem.code,
            }
        }
    )


def bad_request(cause: str) -> Problem:
    message = f"cannot read the request: {cause}"
    return Problem(status=400, code="invalid_request", message=message)


def head_too_large(limit_bytes: int) -> Problem:
    message = f"cannot read the request: its head is larger than {limit_bytes} bytes"
    return Problem(status=431, code="head_too_large", message=message)


def bad_body(cause: str) -> Problem:
    return Problem(status=400, code="invalid_json", message=f"cannot read the body: {cause}")


def duplicate_model(cause: str) -> Problem:
    """Refused, because proxy and backend might each read another one of the two."""
    message = f"cannot route the request: {cause}"
    return Problem(status=400, code="duplicate_model", message=message, param="model")


def bad_form(cause: str) -> Problem:
    return Problem(status=400, code="invalid_form", message=f"cannot read the form: {cause}")


def no_room_on_disk(cause: str) -> Problem:
    return Problem(
        status=503,
        code="no_room_on_disk",
        message=f"cannot take the form in: {cause}",
        headers=retry_after(LATER_SECONDS),
    )


def too_many_keys(most: int) -> Problem:
    message = f'cannot route the request: the body has more than {most} keys "model", at any depth'
    return Problem(status=400, code="too_many_keys", message=message, param="model")


def bad_model(cause: str) -> Problem:
    message = f"cannot route the request: {cause}"
    return Problem(status=400, code="invalid_model", message=message, param="model")


def body_too_large(limit_bytes: int) -> Problem:
    message = f"cannot take the body: it is larger than {limit_bytes} bytes"
    return Problem(status=413, code="body_too_large", message=message)


def bodies_too_large(limit_bytes: int) -> Problem:
    message = f"cannot take the body: all bodies here may have {limit_bytes} bytes together"
    return Problem(
        status=503, code="bodies_too_large", message=message, headers=retry_after(SOON_SECONDS)
    )


def compressed_body(encoding: str) -> Problem:
    message = f"cannot route the request: Content-Encoding {encoding} hides the model's name"
    return Problem(status=415, code="compressed_body", message=message)


def unknown_path(path: str) -> Problem:
    return Problem(status=404, code="unknown_path", message=f"cannot find {path}: no such path")


def not_offered(path: str) -> Problem:
    message = f"cannot serve {path}: engines have it, but this version does not pass it on yet"
    return Problem(status=404, code="not_supported_yet", message=message)


def not_kept(path: str) -> Problem:
    message = (
        f"cannot find {path}: answers are not kept here under their ids; send the whole "
        "conversation with each request"
    )
    return Problem(status=404, code="not_kept", message=message)


def wrong_method(method: str, path: str, allowed: str) -> Problem:
    message = f"cannot {method} {path}: allowed is {allowed}"
    return Problem(
        status=405,
        code="method_not_allowed",
        message=message,
        headers=((b"allow", allowed.encode()),),
    )


def unknown_model(name: str, known: tuple[str, ...], *, alone: bool = True) -> Problem:
    """`known`: to this node where it is `alone`, else to the cluster."""
    who = "this node" if alone else "the cluster"
    serves = f"{who} knows {', '.join(known)}" if known else f"{who} has no models"
    message = f"cannot find model {name[:SHOWN_CHARACTERS]!r}: {serves}"
    return Problem(
        status=404,
        code="model_not_found",
        message=message,
        param="model",
        headers=(NOT_STARTED,),
    )


def runs_nowhere(name: str, model: str, cause: str) -> Problem:
    """This node's manifest has it. `model`: what `name` means; `cause`: a clause without its
    subject."""
    meant = "it is" if name == model else f"it means {model}, which is"
    return Problem(
        status=404,
        code="model_not_found",
        message=f"cannot find model {name!r}: {meant} in the manifest, and {cause}",
        param="model",
        headers=(NOT_STARTED,),
    )


def node_starting(because: str) -> Problem:
    """`because`: a clause of which the node is the subject."""
    return Problem(
        status=503,
        code="node_starting",
        message=f"cannot answer yet: this node {because}",
        headers=retry_after(SOON_SECONDS),
    )


def not_of_the_type(model: Typed, listed: tuple[ModelType, ...]) -> Problem:
    """For a list of some types: it is not there, and the node has it all the same."""
    message = (
        f"cannot find model {model.name!r} here: it is of type {model.type}, "
        f"this path lists {_any_of(listed)}"
    )
    return Problem(
        status=404, code="model_not_found", message=message, param="model", model=model.name
    )


def no_such_model(name: str, known: tuple[str, ...]) -> Problem:
    """For operators: with the names that are nearest to the one that they typed."""
    name = name[:SHOWN_CHARACTERS]
    close = difflib.get_close_matches(name, known, n=3)
    nearest = f"nearest: {', '.join(close)}; " if close else ""
    knows = f"this node knows {', '.join(known)}" if known else "this node has no models"
    message = f"cannot find model {name!r}: {nearest}{knows}"
    return Problem(status=404, code="model_not_found", message=message, param="model")


def bad_query(cause: str) -> Problem:
    message = f"cannot read the parameters of the request: {cause}"
    return Problem(status=400, code="invalid_parameter", message=message)


def not_on_this_host(client: str) -> Problem:
    message = (
        f"cannot do that for {client}: until there are keys, only clients on this host may "
        "change anything"
    )
    return Problem(status=403, code="not_on_this_host", message=message)


def sent_for_somebody_else(header: str) -> Problem:
    message = (
        f"cannot do that: the header {header} says that the request was sent for somebody else, "
        "and until there are keys only clients on this host may change anything"
    )
    return Problem(status=403, code="not_on_this_host", message=message)


def no_push_hook() -> Problem:
    message = "cannot take word of a push: the agent has no --git-webhook-secret-file"
    return Problem(status=403, code="no_push_hook", message=message)


def push_hook_broken(cause: str) -> Problem:
    """`cause`: as a sentence."""
    return Problem(
        status=503,
        code="push_hook_broken",
        message=f"cannot take word of a push: {cause}",
        headers=retry_after(LATER_SECONDS),
    )


def not_authentic() -> Problem:
    message = (
        "cannot take word of a push: neither X-Hub-Signature-256, X-Gitea-Signature nor "
        "X-Gitlab-Token fits the secret that the agent has"
    )
    return Problem(status=403, code="not_authentic", message=message)


def too_many_followers(most: int) -> Problem:
    message = f"cannot follow: {most} others follow events or logs already"
    return Problem(
        status=503,
        code="too_many_followers",
        message=message,
        headers=retry_after(LATER_SECONDS),
    )


def loop_is_busy(seconds: float) -> Problem:
    message = f"cannot say what came of it: the loop did not take it up within {seconds:.0f} s"
    return Problem(
        status=503, code="loop_is_busy", message=message, headers=retry_after(SOON_SECONDS)
    )


def model_required(types: tuple[ModelType, ...], names: tuple[str, ...]) -> Problem:
    message = (
        f'cannot route the request: it names no "model" and {len(names)} are of type '
        f"{_any_of(types)}: {', '.join(names)}"
    )
    return Problem(status=400, code="model_required", message=message, param="model")


def wrong_type(model: Typed, wanted: tuple[ModelType, ...]) -> Problem:
    message = (
        f"cannot use model {model.name!r} here: it is of type {model.type}, "
        f"this path needs {_any_of(wanted)}"
    )
    return Problem(
        status=400, code="wrong_model_type", message=message, param="model", model=model.name
    )


def queue_full(model: str, length: int) -> Problem:
    message = f"cannot take more for model {model!r}: {length} requests wait for it already"
    return Problem(
        status=429,
        code="rate_limit_exceeded",
        message=message,
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def waited_too_long(model: str, seconds: float) -> Problem:
    message = f"cannot pass on to model {model!r}: it was busy for {seconds:g} s with others"
    return Problem(
        status=503,
        code="queue_timeout",
        message=message,
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def none_of_type(types: tuple[ModelType, ...], *, alone: bool = True) -> Problem:
    who = "this node" if alone else "the cluster"
    return Problem(
        status=503,
        code="no_model_of_type",
        message=f"cannot route the request: {who} has no model of type {_any_of(types)}",
        headers=(DO_NOT_RETRY, NOT_STARTED),
    )


def none_of_type_yet(types: tuple[ModelType, ...]) -> Problem:
    message = (
        f"cannot route the request: this node has no model of type {_any_of(types)}, and has not "
        "taken up a manifest yet"
    )
    return Problem(
        status=503, code="no_model_of_type", message=message, headers=retry_after(SOON_SECONDS)
    )


def draining(node: str) -> Problem:
    return Problem(
        status=503,
        code="node_draining",
        message=f"cannot take new work: node {node} is draining",
        headers=(*retry_after(SOON_SECONDS), CLOSE),
    )


def backend_unreachable(model: str) -> Problem:
    return Problem(
        status=503,
        code="backend_unreachable",
        message=f"cannot reach the backend of model {model!r}: it takes no connection",
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def backend_lost(model: str, *, heard: bool) -> Problem:
    """No NOT_STARTED: the backend may have begun, or this request may be what ended it. `heard`:
    something came of an answer, so that no other replica is asked."""
    message = (
        f"cannot get an answer for model {model!r}: its backend went away before it answered, or "
        "its answer is not valid HTTP"
    )
    headers = () if heard else (UNANSWERED,)
    return Problem(status=502, code="backend_lost", message=message, headers=headers, model=model)


def backend_error(model: str, status: int) -> Problem:
    """In a stream that has begun, for an error that says nothing in JSON."""
    message = f"cannot get an answer for model {model!r}: its backend answered with status {status}"
    return Problem(status=502, code="backend_error", message=message, model=model)


def backend_lost_midway(model: str) -> Problem:
    lost = "its backend went away, or this agent ends"
    message = f"cannot finish the answer of model {model!r}: {lost}"
    return Problem(status=502, code="backend_lost", message=message, model=model)


def internal(request_id: str) -> Problem:
    message = f"cannot answer: an error of our own; the log has it under request {request_id}"
    return Problem(status=500, code="internal_error", message=message)


def _any_of(types: tuple[ModelType, ...]) -> str:
    return " or ".join(types)


def retry_after(seconds: int) -> tuple[Header, ...]:
    """For a 503 or 429 before any backend was reached."""
    return ((b"retry-after", str(seconds).encode()), NOT_STARTED)
