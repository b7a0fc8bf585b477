"""A name server that answers every question with one and the same code, and no record.

python -m tests.cluster.refuse_names ADDRESS RCODE        0: the name has no such record
"""

import socket
import sys

_IS_ANSWER, _RECURSES = 0x8000, 0x0180


def answer(query: bytes, code: int) -> bytes:
    """The question comes back with it (RFC 1035, section 4.1)."""
    flags = _IS_ANSWER | _RECURSES | code
    end = query.index(b"\0", 12) + 5
    return query[:2] + flags.to_bytes(2, "big") + b"\0\1\0\0\0\0\0\0" + query[12:end]


def serve(address: str, code: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        print("ready", flush=True)
        while True:
            query, sender = server.recvfrom(512)
            server.sendto(answer(query, code), sender)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
