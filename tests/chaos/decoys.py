"""Strangers that look like ours, and records that point at them. None of them may be touched."""

import json
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reconciler.backend.environment import NONCE_VARIABLE
from tests.chaos.census import start_ticks
from tests.chaos.segments import ForeignSegments
from tests.e2e.agent import STAND_IN

_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass
class Decoys:
    """`doctored`: names of records that speak of them, or of nobody."""

    alive: list[tuple["subprocess.Popen[bytes]", int, str]] = field(default_factory=list)
    nonces: set[str] = field(default_factory=set)
    doctored: set[str] = field(default_factory=set)
    segments: ForeignSegments = field(default_factory=ForeignSegments)
    _listening: socket.socket | None = None

    def begin(self, ports: range) -> None:
        """A server of the same program and name, one with the engine's name, a taken port, and
        shared memory."""
        server = [sys.executable, str(STAND_IN), "--port", "0", "--name", "m0"]
        self.add(server, "a server of the same program and name")
        named = ["llama-server", "3600"]
        self.add(named, "a process of the engine's name", program=shutil.which("sleep"))
        self._listening = socket.create_server(("127.0.0.1", ports[3]))
        self.segments.begin()

    def add(
        self, argv: list[str], what: str, *, program: str | None = None, **environment: str
    ) -> int:
        process = subprocess.Popen(
            argv,
            executable=program,
            env=_PLAIN | environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.alive.append((process, start_ticks(process.pid) or 0, what))
        return process.pid

    def copy_nonce(self, nonce: str, model: str) -> None:
        """As a shell has it that somebody started out of a backend."""
        self.nonces.add(nonce)
        self.add(
            ["sleep", "3600"], f"a process with the nonce of {model}", **{NONCE_VARIABLE: nonce}
        )

    def take_pid(self, pid: int) -> bool:
        """Whether a stranger has got this number, which is free."""
        for _ in range(5):
            try:
                _LAST_PID.write_text(str(pid - 1), encoding="ascii")
            except OSError:
                return False
            if self.add(["sleep", "3600"], f"a process with the reused pid {pid}") == pid:
                return True
        return False

    def doctor(self, record: Path, rng: Random) -> str:
        """Beside a record of a dead agent, another one that tells something else."""
        process, ticks, _ = self.alive[0]
        told = {
            "a living stranger's pid and start": {
                "pid": process.pid, "session": process.pid, "start_ticks": ticks,
            },
            "a living stranger's pid": {"pid": process.pid, "session": process.pid},
            "a living backend, under another nonce": {},
            "no process": {"pid": None, "session": None, "start_ticks": None},
            "another boot": {"boot_id": "00000000-0000-0000-0000-000000000000"},
        }  # fmt: skip
        kind = rng.choice([*told, "half of it"])
        nonce = f"{rng.getrandbits(128):032x}"
        text = json.dumps(json.loads(record.read_bytes()) | {"nonce": nonce} | told.get(kind, {}))
        self.doctored.add(f"{nonce}.json")
        half = kind == "half of it"
        record.with_name(f"{nonce}.json").write_text(text[: len(text) // 2] if half else text)
        return kind

    def pids(self) -> set[int]:
        return {process.pid for process, _, _ in self.alive}

    def harmed(self) -> list[str]:
        gone = [
            f"{what} (pid {process.pid}) is gone"
            for process, ticks, what in self.alive
            if start_ticks(process.pid) != ticks
        ]
        return gone + self.segments.harmed()

    def end(self) -> None:
        if self._listening is not None:
            self._listening.close()
        self.segments.end()
        for process, _, _ in self.alive:
            process.kill()
            process.wait()
