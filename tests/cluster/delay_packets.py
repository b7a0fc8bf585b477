"""Holds every packet of a netfilter queue for a while: `delay_packets.py QUEUE MILLISECONDS`.

Speaks netlink itself (linux/netfilter/nfnetlink_queue.h), with nothing but the standard library. It
says `ready` once it has the queue. Packets keep their order.
"""

import select
import socket
import struct
import sys
import time
from collections import deque

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG = 0, 1, 2
_REQUEST, _ACK, _ERROR = 1, 4, 2
_PACKET_HEADER, _VERDICT_HEADER = 1, 2
_COMMAND, _PARAMETERS, _LONGEST = 1, 2, 3
_BIND, _META, _ACCEPT = 1, 1, 1
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")


def main() -> None:
    queue, seconds = int(sys.argv[1]), int(sys.argv[2]) / 1000
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        kernel.bind((0, 0))
        _configure(kernel, queue, _COMMAND, struct.pack("!BxH", _BIND, socket.AF_INET))
        _configure(kernel, queue, _PARAMETERS, struct.pack("!IB", 0, _META))
        _configure(kernel, queue, _LONGEST, struct.pack("!I", 10_000))
        print("ready", flush=True)
        held: deque[tuple[float, int]] = deque()
        while True:
            wait = max(0.0, held[0][0] - time.monotonic()) if held else None
            if select.select([kernel], [], [], wait)[0]:
                due = time.monotonic() + seconds
                held += [(due, number) for number in _packets(kernel.recv(1 << 20))]
            while held and held[0][0] <= time.monotonic():
                verdict = struct.pack("!II", _ACCEPT, held.popleft()[1])
                kernel.send(_message(_VERDICT, queue, _VERDICT_HEADER, verdict, _REQUEST))


def _configure(kernel: socket.socket, queue: int, attribute: int, value: bytes) -> None:
    kernel.send(_message(_CONFIG, queue, attribute, value, _REQUEST | _ACK))
    code = struct.unpack_from("=i", kernel.recv(1 << 16), _HEAD.size)[0]
    if code:
        raise OSError(-code, "the kernel gives no queue")


def _message(kind: int, queue: int, attribute: int, value: bytes, flags: int) -> bytes:
    told = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), attribute) + value
    told += bytes(-len(told) % 4)
    body = struct.pack("!BBH", socket.AF_UNSPEC, 0, queue) + told
    return _HEAD.pack(_HEAD.size + len(body), _SUBSYSTEM | kind, flags, 0, 0) + body


def _packets(data: bytes) -> list[int]:
    """The numbers of the packets that the kernel tells of."""
    numbers = []
    while len(data) >= _HEAD.size:
        size, kind, *_ = _HEAD.unpack_from(data)
        if kind == _SUBSYSTEM | _PACKET:
            numbers += _numbers(data[_HEAD.size + 4 : size])
        data = data[size + -size % 4 :]
    return numbers


def _numbers(attributes: bytes) -> list[int]:
    while len(attributes) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _PACKET_HEADER:
            return [struct.unpack_from("!I", attributes, _ATTRIBUTE.size)[0]]
        attributes = attributes[size + -size % 4 :]
    return []


if __name__ == "__main__":
    main()
