"""The body of an HTTP answer from its socket, in one system call for as much as is wanted.

Python's own way is a frame, a poll and a turn at the interpreter's lock for each packet or two: a
third of the CPU that a fetch costs.
"""

import http.client
import io
import socket
import ssl
import struct

from urllib3.response import HTTPResponse

_WORTH_BYTES = 1 << 16


class StraightRead:
    """The socket below an answer of known length, once its buffer is empty."""

    def __init__(
        self, raw: http.client.HTTPResponse, reader: io.BufferedReader, connection: socket.socket
    ) -> None:
        self._raw = raw
        self._reader = reader
        self._socket = connection
        self._timeout_seconds = connection.gettimeout()
        self._has_begun = False

    def readinto(self, buffer: memoryview) -> int:
        """0: this is the client's own to read: what it has buffered, the end, or a last little.

        Raises OSError, BlockingIOError where nothing came in the connection's time.
        """
        assert self._raw.length is not None
        wanted = min(len(buffer), self._raw.length - 1)  # its last read lets the connection go
        if wanted < _WORTH_BYTES:
            self._end()
            return 0
        if not self._has_begun:
            buffered = len(self._reader.peek(1))
            self._begin()
            if buffered:
                return self._raw.readinto(buffer[:buffered])
        count = self._socket.recv_into(buffer, wanted, socket.MSG_WAITALL)
        if count == 0:
            raise ConnectionError("it was closed")
        self._raw.length -= count
        return count

    def _begin(self) -> None:
        """The kernel keeps the time: Python's own way needs a socket that does not block."""
        self._has_begun = True
        self._wait_at_most(self._timeout_seconds or 0.0)
        self._socket.setblocking(True)

    def _end(self) -> None:
        if self._has_begun:
            self._has_begun = False
            self._socket.settimeout(self._timeout_seconds)
            self._wait_at_most(0.0)

    def _wait_at_most(self, seconds: float) -> None:
        whole, part = divmod(seconds, 1)
        limit = struct.pack("ll", int(whole), int(part * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def straight_read(response: HTTPResponse, raw: http.client.HTTPResponse) -> StraightRead | None:
    """None for an answer that must be decoded: in chunks, or through TLS."""
    connection = getattr(response.connection, "sock", None)
    if (
        raw.chunked
        or raw.length is None
        or not isinstance(raw.fp, io.BufferedReader)
        or not isinstance(connection, socket.socket)
        or isinstance(connection, ssl.SSLSocket)
    ):
        return None
    return StraightRead(raw, raw.fp, connection)
