"""Plays a command that supervises itself, and then the agent that it runs.

    supervised_stand_in.py JOURNAL ON_EXIT LIFE…

Each LIFE says how one agent lives, the first one first, and the last one for all that follow:

    refuse      exit code 64 before it is up
    crash       up, and killed
    serve       up, until a signal; it ends in order with exit code 3
    stumble     up, until a signal, which it dies of (exit code 7) without having ended
    abandon     as serve, with five children whose parents have gone, and that end at once
    wait        as serve, and up only once JOURNAL.go is there

Lines of JOURNAL: `life NUMBER PID CRASH`, `signal NAME`.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from reconciler.cli import supervisor


def note(journal: Path, line: str) -> None:
    with journal.open("a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")


def live(journal: Path, lives: list[str], told: str) -> int:
    read, write = map(int, told.split(","))
    line = b""
    while not line.endswith(b"\n"):
        came = os.read(read, 1024)
        if not came:
            return 0
        line += came
    restarts, crash = line.decode().rstrip("\n").split(",", 1)
    life = lives[min(int(restarts), len(lives) - 1)]
    note(journal, f"life {restarts} {os.getpid()} {crash}".rstrip())
    while life == "wait" and not journal.with_suffix(".go").exists():
        time.sleep(0.01)
    if life == "refuse":
        return 64
    if life == "abandon":
        orphan = "sh -c 'exit 0' & sh -c 'exit 1' & exit 0"
        for _ in range(5):
            subprocess.run(["sh", "-c", orphan], check=True)
    os.write(write, supervisor.UP)
    note(journal, "up")
    if life == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        number = signal.Signals(signal.sigwait(supervisor.FORWARDED))
        note(journal, f"signal {number.name}")
        if number in supervisor.ENDING:
            break
    if life == "stumble":
        return 7
    os.write(write, supervisor.ENDED)
    return 3


def main() -> int:
    journal, on_exit, *lives = sys.argv[1:]
    told = os.environ.get(supervisor.VARIABLE)
    if told is not None:
        return live(Path(journal), lives, told)

    from reconciler.cli.supervise import become_supervisor
    from reconciler.plan.ending import OnExit

    become_supervisor(console=False, level="info", on_exit=OnExit(on_exit))


if __name__ == "__main__":
    sys.exit(main())
