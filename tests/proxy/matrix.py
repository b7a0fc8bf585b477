"""Requests of every kind: what each is answered, and what of it reaches the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.proxy.agent import CHAT, Agent
from tests.proxy.judge import LAST, Judged, converse, ways_to_cut
from tests.proxy.stand_in import StandIn

ASK = b'{"model":"llm"}'
STREAM = b'{"model":"llm","stream":true}'
POST = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n".encode()
OLD = POST.replace(b"1.1", b"1.0")
GET = b"GET /healthz HTTP/1.1\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """`answers`: method and status, in order. `reach`: the bodies that get to the engine.

    `open`: what follows is answered, too. `early`: it may be answered before all of it has come,
    and then is the last. `says_bye`: its client sends nothing more, as it has said.
    """

    sent: bytes
    answers: Sequence[tuple[str, int]]
    reach: Sequence[bytes] = ()
    open: bool = True
    early: bool = False
    says_bye: bool = False

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.answers] + ["GET"] * self.open

    @property
    def all_bytes(self) -> bytes:
        return self.sent if self.says_bye else self.sent + LAST

    def fits(self, answers: Sequence[Judged]) -> bool:
        statuses = [answer.status for answer in answers]
        wanted = [status for _, status in self.answers] + [200] * self.open
        return statuses == wanted or (self.early and statuses == wanted[: len(statuses)] != [])


def length(body: bytes, *lines: bytes, head: bytes = POST) -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def asks(sent: bytes, *bodies: bytes) -> Case:
    return Case(sent, [("POST", 200)] * len(bodies), bodies)


def last(sent: bytes, method: str, *bodies: bytes) -> Case:
    return Case(sent, [(method, 200)], bodies, open=False, says_bye=True)


def refused(sent: bytes, *, method: str = "POST", status: int = 400) -> Case:
    return Case(sent, [(method, status)], open=False)


def chunks(*chunks: bytes, end: bytes = b"0\r\n\r\n", line: bytes = b"X: 1") -> bytes:
    head = CHUNKED[:-2] + line + b"\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + end


async def hold(agent: Agent, backend: StandIn, cases: Mapping[str, Case]) -> None:
    for name, case in cases.items():
        for way, pieces in ways_to_cut(case.all_bytes).items():
            before = (await backend.state())["seen"]
            try:
                answers = await converse(agent, pieces, case.methods)
            except Exception as exc:
                exc.add_note(f"{name}, {way}")
                raise
            assert case.fits(answers), (name, way, answers)
            assert (await backend.state())["seen"] - before == len(case.reach), (name, way)
            if case.reach:
                assert await backend.last_body() == case.reach[-1], (name, way)
