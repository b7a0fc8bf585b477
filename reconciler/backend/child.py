"""The program that serves one GGUF with llama.cpp's own server, out of the xllamacpp wheel.

    python -P -m reconciler.backend.child CONFIG        CONFIG: the JSON of `xllamacpp.launch`

Its output is the engine's log. It imports next to nothing, dies at once of a signal, and if it
cannot serve it ends with a last line that says why. It outlives the agent (R9).
"""

import json
import os
import signal
import socket
import sys
from typing import Any

CANNOT_LOAD = 1
BAD_CONFIG = 2
NO_ENGINE = 3
PORT_TAKEN = 4
"""Exit codes. Only the last one may be another at the next try."""

_JSON = dict[str, Any]


class _Failed(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: list[str]) -> int:
    # Whoever spawned us may have blocked or ignored them; a load must end at once, too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        server = _serve(_config(arguments))
    except _Failed as exc:
        print(f"xgen-model: {exc}", file=sys.stderr, flush=True)
        return exc.code
    print(f"xgen-model: serving on {server.listening_address}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


def _config(arguments: list[str]) -> _JSON:
    try:
        (text,) = arguments
        config = json.loads(text)
        if set(config) != {"fields", "members", "bits", "texts"}:
            raise ValueError("it has other parts")
    except (ValueError, TypeError) as exc:
        raise _Failed(BAD_CONFIG, f"cannot read the configuration: {exc}") from exc
    return dict(config)


def _serve(config: _JSON) -> Any:
    """A server that has loaded its model. It answers while the value lives."""
    fields = config["fields"]
    path = fields.get("model.path", "")
    _need_file(path)
    _need_port(fields["hostnames"][0], fields["port"])
    try:
        import xllamacpp
    except ImportError as exc:
        raise _Failed(NO_ENGINE, f"cannot import xllamacpp: {exc}") from exc
    params = common_params(xllamacpp, config)
    try:
        return xllamacpp.Server(params)
    except RuntimeError as exc:
        raise _Failed(
            CANNOT_LOAD, f"cannot load {path}: {exc} The engine's lines above say more."
        ) from exc


def common_params(xllamacpp: Any, config: _JSON) -> Any:
    """What the engine is told, as its own value."""
    params = xllamacpp.CommonParams()
    if key := os.environ.get("LLAMA_API_KEY"):
        params.api_keys = [key]
    values = dict(config["fields"])
    name = ""
    try:
        for name, (kind, member) in config["members"].items():
            values[name] = getattr(getattr(xllamacpp, kind), member)
        for name, members in config["bits"].items():
            values[name] = 0
            for kind, member in members:
                values[name] |= int(getattr(getattr(xllamacpp, kind), member))
        for name, path in config["texts"].items():
            with open(path, encoding="utf-8") as file:
                values[name] = file.read()
        for name, value in values.items():
            _set(params, name, value)
    except (AttributeError, TypeError, OverflowError, ValueError, OSError, AssertionError) as exc:
        version = getattr(xllamacpp, "__version__", "")
        raise _Failed(BAD_CONFIG, f"cannot set {name} in xllamacpp {version}: {exc}") from exc
    return params


def _set(params: Any, name: str, value: object) -> None:
    *outer, last = name.split(".")
    for part in outer:
        params = getattr(params, part)
    getattr(params, last)
    setattr(params, last, value)


def _need_file(path: str) -> None:
    """The engine's own words for it stand far above its last line."""
    try:
        with open(path, "rb"):
            return
    except OSError as exc:
        raise _Failed(CANNOT_LOAD, f"cannot load {path}: {exc.strerror}") from exc


def _need_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server does, or the last connections of the one before it would be in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            raise _Failed(PORT_TAKEN, f"cannot listen on {host}:{port}: {exc.strerror}") from exc


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
