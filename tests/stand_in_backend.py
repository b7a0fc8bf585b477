"""A backend that misbehaves on demand: llama-server's HTTP face in one process, without a model.

Run by path or as `python -m tests.stand_in_backend`; imports nothing but the standard library and
its own HTTP, so that it starts in a tenth of a second. `--port 0` asks the kernel; the port is in
the first line: `listening on http://127.0.0.1:PORT`. Inference paths need the key of
`LLAMA_API_KEY`, when it is set; /health and /debug never do.

/debug/state   running, seen, cancelled, served, connections, bytes_sent, children (JSON)
/debug/last    the last inference request as it came: method, target, headers, body in base64
/metrics       llama.cpp's own names, and stand_in:requests_cancelled_total
"""

import argparse
import asyncio
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

if not __package__:  # run by path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tests.stand_in_http import Connection, Request, Reset, failure, head, whole

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"
_EMBEDDINGS = "/v1/embeddings"
_RERANK = "/v1/rerank"
_TRANSCRIPTIONS = "/v1/audio/transcriptions"
_INFERENCE = {
    _CHAT: "llm",
    _COMPLETIONS: "llm",
    "/v1/responses": "llm",
    "/v1/messages": "llm",
    "/v1/messages/count_tokens": "llm",
    _EMBEDDINGS: "embedding",
    "/v2/embed": "embedding",
    "/pooling": "embedding",
    _RERANK: "rerank",
    _TRANSCRIPTIONS: "llm",
    "/tokenize": "any",
    "/detokenize": "any",
}
"""Type of model by path. What most answer is a chat's answer, no more."""
_CHILDREN = {
    "plain": "exec sleep 3600",
    "ignore-term": "trap '' TERM; exec sleep 3600",
    "stopped": "kill -STOP $$; exec sleep 3600",
    "setsid": "exec setsid sleep 3600",
    "setsid-ignore-term": "trap '' TERM; exec setsid sleep 3600",
    "double-fork": "setsid sleep 3600 & exit 0",
    "brief": "exit 0",
    "titled": "exec env -i sleep 3600",
}
"""In `sh`. `brief` ends at once, `titled` loses its environment as one with a rewritten title."""


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stand_in_backend", allow_abbrev=False)
    add, seconds = parser.add_argument, float
    add("--port", type=int, default=0)
    add("--name", default="model", help="served name")
    add("--type", choices=("llm", "embedding", "rerank"), default="llm")
    add("--ready-after", type=seconds, default=0.0, help="until then every path says 503")
    add("--ready-when", type=Path, help="until this file is there the same")
    add("--refuse-until-ready", action="store_true", help="until then the port is closed instead")
    add("--exit-code", type=int, default=1, help="for --exit-after and --crash-after-requests")
    add("--exit-after", type=seconds, help="die after that time; 0: before the port is bound")
    add("--exit-while", type=Path, help="die before the port is bound if this file is there")
    add("--ignore-sigterm", action="store_true")
    add("--crash-after-requests", type=int, help="the Nth inference request kills the process")
    add(
        "--spawn-children",
        type=int,
        default=0,
        help="processes in our session; they heed our --ignore-sigterm too",
    )
    add(
        "--child",
        choices=sorted(_CHILDREN),
        action="append",
        default=[],
        help="a process that we do not end when we are told to; may be repeated",
    )
    add("--shared-memory", action="store_true", help="in /dev/shm; no end of ours removes it")
    add("--trap", action="store_true", help="die by SIGILL before the port is bound")
    add("--hang-on-load", action="store_true", help="never bind the port, ignore everything")
    add("--log-megabytes", type=int, default=0, help="print so much before the port is bound")
    add(
        "--probe-well",
        action="store_true",
        help="answer at once what asks for one token, as an agent's probe does",
    )
    add("--hang", action="store_true", help="inference is never answered; /health still is")
    add("--hang-metrics", action="store_true", help="/metrics never is")
    add("--first-byte-after", type=seconds, default=0.0, help="the prefill")
    add("--chunks", type=int, default=3)
    add("--chunk-interval", type=seconds, default=0.0)
    add("--chunk-bytes", type=int, default=0, help="pad the text of each chunk to this size")
    add("--die-mid-stream", action="store_true", help="the process dies half way through an answer")
    add("--reset-mid-stream", action="store_true", help="only the connection does")
    add("--reset-before-first-byte", action="store_true", help="after the request was read")
    add("--reset-reused", action="store_true", help="reset a connection at its second request")
    add("--close-after", type=seconds, help="close a connection that was idle for so long")
    return parser.parse_args(argv)


@dataclass
class Counts:
    running: int = 0
    seen: int = 0
    cancelled: int = 0
    served: int = 0
    connections: int = 0
    bytes_sent: int = 0
    children: list[int] = field(default_factory=list)


def asked_for(request: Request) -> dict[str, object]:
    """The body; of a form only whether it asks for a stream. ValueError: it is not JSON."""
    if request.header("content-type").startswith("multipart/form-data"):
        return {"stream": b'name="stream"\r\n\r\ntrue\r\n' in request.body}
    body: dict[str, object] = json.loads(request.body)
    return body


class Backend:
    def __init__(self, args: argparse.Namespace, started: float) -> None:
        self._args = args
        self._ready_at = started + args.ready_after
        self._key = os.environ.get("LLAMA_API_KEY")
        self._last: Request | None = None
        self.counts = Counts()

    @property
    def _loads(self) -> bool:
        gate: Path | None = self._args.ready_when
        return time.monotonic() < self._ready_at or (gate is not None and not gate.exists())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self.counts.connections += 1
        try:
            while request := await connection.read(self._args.close_after):
                if self._args.reset_reused and connection.requests > 1:
                    raise Reset
                await self._answer(connection, request)
        except (Reset, ConnectionError):
            connection.abort()
        finally:
            self.counts.connections -= 1
            await connection.close()

    async def _answer(self, connection: Connection, request: Request) -> None:
        path = request.target.split("?")[0]
        if path in _INFERENCE:
            await self._infer(connection, request, path)
            return
        if path == "/metrics" and self._args.hang_metrics:
            await asyncio.Event().wait()
        await connection.write(self._page(request, path))

    def _page(self, request: Request, path: str) -> bytes:
        if path == "/debug/state":
            return whole(200, vars(self.counts))
        if path == "/debug/last":
            return whole(200, self._last.describe() if self._last else None)
        if self._loads:
            return failure(503, "Loading model", "unavailable_error")
        if path in ("/health", "/v1/health"):
            return whole(200, {"status": "ok"})
        if not self._allowed(request):
            return failure(401, "Invalid API Key", "authentication_error")
        if path == "/v1/models":
            models = [{"id": self._args.name, "object": "model", "owned_by": "stand-in"}]
            return whole(200, {"object": "list", "data": models})
        if path == "/metrics":
            return whole(200, self._metrics(), "text/plain; version=0.0.4")
        return failure(404, "File Not Found", "not_found_error")

    def _metrics(self) -> str:
        return (
            "# TYPE llamacpp:requests_processing gauge\n"
            f"llamacpp:requests_processing {self.counts.running}\n"
            "# TYPE llamacpp:requests_deferred gauge\n"
            "llamacpp:requests_deferred 0\n"
            "# TYPE llamacpp:prompt_tokens_total counter\n"
            f"llamacpp:prompt_tokens_total {self.counts.served}\n"
            "# TYPE llamacpp:tokens_predicted_total counter\n"
            f"llamacpp:tokens_predicted_total {self.counts.served * self._args.chunks}\n"
            "# TYPE stand_in:requests_cancelled_total counter\n"
            f"stand_in:requests_cancelled_total {self.counts.cancelled}\n"
        )

    def _allowed(self, request: Request) -> bool:
        return not self._key or request.header("authorization") == f"Bearer {self._key}"

    async def _infer(self, connection: Connection, request: Request, path: str) -> None:
        self._last = request
        self.counts.seen += 1
        if self._args.crash_after_requests == self.counts.seen:
            die(self._args.exit_code, "crashed on demand")
        if (refusal := self._refusal(request, path)) is not None:
            await connection.write(refusal)
            return
        self.counts.running += 1
        work = asyncio.create_task(self._work(connection, request, path))
        watch = asyncio.create_task(connection.wait_closed_by_peer())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ConnectionAbortedError
            work.result()
            self.counts.served += 1
        except ConnectionError:
            self.counts.cancelled += 1
            raise
        finally:
            self.counts.running -= 1
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    def _refusal(self, request: Request, path: str) -> bytes | None:
        if self._loads:
            return failure(503, "Loading model", "unavailable_error")
        if not self._allowed(request):
            return failure(401, "Invalid API Key", "authentication_error")
        if _INFERENCE[path] not in (self._args.type, "any"):
            return failure(404, f"this server is not of type {_INFERENCE[path]}", "not_found_error")
        if request.method != "POST":
            return failure(404, "File Not Found", "not_found_error")
        try:
            asked_for(request)
        except ValueError as exc:
            return failure(400, f"not JSON: {exc}", "invalid_request_error")
        return None

    async def _work(self, connection: Connection, request: Request, path: str) -> None:
        body = asked_for(request)
        if self._args.probe_well and body.get("max_tokens") == 1:
            answer = self._answer_body(path, "ok", streamed=False)
            await self._send(connection, whole(200, answer))
            return
        if self._args.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(self._args.first_byte_after)
        if self._args.reset_before_first_byte:
            raise Reset
        if body.get("stream"):
            await self._stream(connection, path)
        else:
            await self._whole_answer(connection, path)

    async def _stream(self, connection: Connection, path: str) -> None:
        await connection.write(head(200, "text/event-stream", "Transfer-Encoding: chunked"))
        async for text in self._texts():
            event = f"data: {json.dumps(self._answer_body(path, text, streamed=True))}\n\n".encode()
            await self._send(connection, b"%x\r\n%s\r\n" % (len(event), event))
        await self._send(connection, b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def _whole_answer(self, connection: Connection, path: str) -> None:
        text = "".join([text async for text in self._texts(may_break=False)])
        data = whole(200, self._answer_body(path, text, streamed=False))
        half = len(data) // 2
        await self._send(connection, data[:half])
        self._break_on_demand()
        await self._send(connection, data[half:])

    async def _texts(self, *, may_break: bool = True) -> AsyncIterator[str]:
        for number in range(self._args.chunks):
            if number:
                await asyncio.sleep(self._args.chunk_interval)
            if may_break and number == self._args.chunks // 2:
                self._break_on_demand()
            yield f"token{number} ".ljust(self._args.chunk_bytes, ".")

    def _break_on_demand(self) -> None:
        if self._args.die_mid_stream:
            die(self._args.exit_code, "died in mid-stream on demand")
        if self._args.reset_mid_stream:
            raise Reset

    async def _send(self, connection: Connection, data: bytes) -> None:
        await connection.write(data)
        self.counts.bytes_sent += len(data)

    def _answer_body(self, path: str, text: str, *, streamed: bool) -> dict[str, object]:
        usage = {"prompt_tokens": 1, "completion_tokens": self._args.chunks, "total_tokens": 1}
        common = {"id": f"stand-in-{self.counts.seen}", "created": 0, "model": self._args.name}
        if path == _EMBEDDINGS:
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25, 0.125]}]
            return {**common, "object": "list", "data": data, "usage": usage}
        if path == _RERANK:
            scores = [{"index": 0, "relevance_score": 0.75}]
            return {**common, "object": "list", "results": scores, "usage": usage}
        if path == _TRANSCRIPTIONS:
            return {"text": text}
        if path == _COMPLETIONS:
            choice = {"index": 0, "text": text, "finish_reason": None if streamed else "stop"}
            return {**common, "object": "text_completion", "choices": [choice], "usage": usage}
        message = {"role": "assistant", "content": text}
        if streamed:
            choice = {"index": 0, "delta": message, "finish_reason": None}
            return {**common, "object": "chat.completion.chunk", "choices": [choice]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {**common, "object": "chat.completion", "choices": [choice], "usage": usage}


def die(code: int, last_words: str) -> None:
    print(f"error: {last_words}", flush=True)
    os._exit(code)


async def run(
    args: argparse.Namespace, started: float, children: list[subprocess.Popen[bytes]]
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if not args.ignore_sigterm:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    if args.exit_after is not None:
        loop.call_later(args.exit_after, die, args.exit_code, "exits on demand")
    if args.refuse_until_ready:
        await asyncio.sleep(args.ready_after)
    backend = Backend(args, started)
    backend.counts.children = [child.pid for child in children]
    server = await asyncio.start_server(backend.serve, "127.0.0.1", args.port, backlog=1024)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    for child in children:
        child.terminate()
    os._exit(0)


def share_memory() -> mmap.mmap:
    """Under a name as of Python's multiprocessing. It holds our TMPDIR, which tells whose it is."""
    path = f"/dev/shm/psm_{os.urandom(4).hex()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, os.environ.get("TMPDIR", "").encode().ljust(mmap.PAGESIZE, b"\0"))
    return mmap.mmap(file, mmap.PAGESIZE)


def main() -> None:
    started = time.monotonic()
    args = parse_args()
    print(f"loading {args.name}", file=sys.stderr, flush=True)
    if args.exit_after == 0 or (args.exit_while is not None and args.exit_while.exists()):
        die(args.exit_code, "cannot load the model, on demand")
    if args.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shared = [share_memory()] if args.shared_memory else []
    children = [subprocess.Popen(["sleep", "3600"]) for _ in range(args.spawn_children)]
    for kind in args.child:
        subprocess.Popen(["sh", "-c", _CHILDREN[kind]])
    for _ in range(args.log_megabytes):
        print(f"{'x' * 1023}\n" * 1024, end="", flush=True)
    if args.trap:
        os.kill(os.getpid(), signal.SIGILL)
    if args.hang_on_load:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pause()
    asyncio.run(run(args, started, children))
    del shared  # mapped until here


if __name__ == "__main__":
    main()
