"""Clients that ask again and again, each in a thread of its own, and what came of every request."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import httpx
import openai

from tests.e2e.clients import HELLO, TOKENS
from tests.waiting import wait_until

_LIMIT_SECONDS = 60
"""Of one request: only a hang reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`asked_at`: monotonic seconds; it took `seconds`. `text`: what was answered; `began`: whether
    any of it came. `error`: None: it was answered whole. The others: as its headers say."""

    asked_at: float
    seconds: float = 0.0
    text: str = ""
    began: bool = False
    served_by: str | None = None
    retried: bool = False
    route: str | None = None
    error: str | None = None


@dataclass(kw_only=True)
class Load:
    """`outcomes` grow while it runs."""

    outcomes: list[Outcome] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    @property
    def failed(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.error is not None]

    @property
    def nodes(self) -> set[str | None]:
        return {each.served_by for each in self.outcomes}

    def nodes_since(self, moment: float) -> set[str | None]:
        """Of those that were asked since."""
        return {each.served_by for each in self.outcomes if each.asked_at > moment}

    def finish(self) -> None:
        """No further ones; those under way come to their end."""
        self.ending.set()
        for thread in self.threads:
            thread.join()

    def wait_more(self, number: int) -> None:
        """Until so many more have ended."""
        goal = len(self.outcomes) + number
        wait_until(lambda: len(self.outcomes) >= goal, what=f"{number} answers", seconds=90)


@contextmanager
def under_load(askers: Sequence[Callable[[], Outcome]]) -> Iterator[Load]:
    """Each of them asks one after the other, until the block is left."""
    load = Load()

    def work(ask: Callable[[], Outcome]) -> None:
        while not load.ending.is_set():
            load.outcomes.append(ask())

    load.threads = [threading.Thread(target=work, args=(ask,)) for ask in askers]
    for thread in load.threads:
        thread.start()
    try:
        yield load
    finally:
        load.finish()


def ask(
    client: httpx.Client,
    url: str,
    model: str,
    headers: Mapping[str, str] | None = None,
    *,
    stream: bool,
) -> Outcome:
    """A chat, and what came of it, byte by byte."""
    body = {"model": model, "messages": HELLO, "stream": stream}
    asked_at, began, text, answer = time.monotonic(), False, "", None
    try:
        with client.stream(
            "POST",
            f"{url}/v1/chat/completions",
            json=body,
            headers=headers,
            timeout=_LIMIT_SECONDS,
        ) as answer:
            for piece in answer.iter_text():
                began = answer.status_code == 200
                text += piece
        error = None if answer.status_code == 200 and _is_whole(text, stream) else "not whole"
    except httpx.HTTPError as exc:
        error = repr(exc)
    return Outcome(
        asked_at=asked_at,
        seconds=time.monotonic() - asked_at,
        text=text,
        began=began,
        served_by=answer.headers.get("x-served-by") if answer else None,
        retried=answer is not None and "x-retried" in answer.headers,
        route=answer.headers.get("x-xgen-route") if answer else None,
        error=error,
    )


@contextmanager
def chats(url: str, model: str, count: int) -> Iterator[Load]:
    """So many clients at a time, of which every other one streams."""
    with httpx.Client(trust_env=False, limits=httpx.Limits(max_connections=None)) as client:
        kinds = [stream for _, stream in zip(range(count), itertools.cycle((False, True)))]
        askers = [partial(ask, client, url, model, stream=stream) for stream in kinds]
        with under_load(askers) as load:
            yield load


@dataclass(kw_only=True)
class Entrances:
    """The agents that a load balancer would send requests to, in turn. A request that it has sent
    already may still arrive at one that is out."""

    urls: list[str]
    _turns: Iterator[int] = field(default_factory=itertools.count)

    def take_out(self, url: str) -> None:
        self.urls = [each for each in self.urls if each != url]

    def put_back(self, url: str) -> None:
        self.urls = [*self.urls, url]

    def next(self) -> str:
        urls = self.urls
        return urls[next(self._turns) % len(urls)]


@contextmanager
def chats_by_sdk(
    entrances: Entrances, model: str, count: int, *, max_retries: int
) -> Iterator[Load]:
    """The same by OpenAI's client."""
    kinds = [stream for _, stream in zip(range(count), itertools.cycle((False, True)))]
    with openai.OpenAI(
        base_url="http://none", api_key="none", max_retries=max_retries, timeout=_LIMIT_SECONDS
    ) as client:
        asks = [partial(_ask_by_sdk, client, entrances, model, stream) for stream in kinds]
        with under_load(asks) as load:
            yield load


def _ask_by_sdk(client: openai.OpenAI, entrances: Entrances, model: str, stream: bool) -> Outcome:
    asked_at, text = time.monotonic(), ""
    chats = client.with_options(base_url=f"{entrances.next()}/v1").chat.completions
    try:
        if stream:
            with chats.create(model=model, messages=HELLO, stream=True) as chunks:
                for chunk in chunks:
                    text += chunk.choices[0].delta.content or ""
        else:
            text = chats.create(model=model, messages=HELLO).choices[0].message.content or ""
    except openai.OpenAIError as exc:
        return Outcome(asked_at=asked_at, text=text, began=bool(text), error=repr(exc))
    error = None if text == TOKENS else "not whole"
    return Outcome(asked_at=asked_at, text=text, began=True, error=error)


def _is_whole(text: str, stream: bool) -> bool:
    return text.rstrip().endswith("data: [DONE]") if stream else text.endswith("}")
