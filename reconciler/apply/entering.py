"""A program that moves itself into a control group and then becomes another (`exec`).

    python -I -S entering.py PROCS FD COMMAND…      PROCS: the group's `cgroup.procs`

What the command starts is born in the group from its first moment on, which no move from outside
could promise. Its pid, session, environment, files and signals are as if it had been started alone.
To FD it writes a dot once it has come so far, and behind it the errno of an `exec` that fails; the
command does not get FD. It imports next to nothing.
"""

import os
import signal
import sys


def main(procs: str, told: int, *command: str) -> None:
    try:
        with open(procs, "w", encoding="ascii") as file:
            file.write("0")
    except OSError:
        pass  # it stays where it was; whoever started it looks
    os.set_inheritable(told, False)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them
        signal.signal(number, signal.SIG_DFL)
    os.write(told, b".")
    try:
        os.execvpe(command[0], command, _environment())
    except OSError as exc:
        os.write(told, str(exc.errno).encode("ascii"))
        os._exit(127)


def _environment() -> dict[bytes, bytes]:
    """As it was given: the interpreter may have added to its own."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
