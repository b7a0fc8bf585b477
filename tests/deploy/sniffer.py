"""Prints what crosses an interface: `python sniffer.py eth0`, a line a packet, "ready" first.

    arp 198.18.0.254
    udp 198.18.0.1:40123 > 198.18.0.254:53 dns huggingface.co
    tcp 198.18.0.1:51514 > 203.0.113.7:443

What the kernels say of themselves on every link (routers and neighbours of IPv6, multicast groups)
is left out: it goes no further than the link.
"""

import socket
import struct
import sys
from ipaddress import IPv4Address, IPv6Address

_EVERYTHING = 0x0003
_ARP, _IPV4, _IPV6 = 0x0806, 0x0800, 0x86DD
_NAMES = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp"}
_OF_THE_LINK = frozenset({130, 131, 132, 133, 134, 135, 136, 143})
_IGMP = 2
_DNS = 53


def told(frame: bytes) -> str | None:
    """The line for an Ethernet frame; None for a kernel's own."""
    (kind,) = struct.unpack_from("!H", frame, 12)
    packet = frame[14:]
    if kind == _ARP:
        return f"arp {IPv4Address(packet[24:28])}"
    if kind == _IPV4:
        if packet[9] == _IGMP:
            return None
        header = (packet[0] & 0x0F) * 4
        source, target = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
        return _transport(packet[9], f"{source}", f"{target}", packet[header:])
    if kind == _IPV6:
        protocol, rest = packet[6], packet[40:]
        if protocol == 0:  # options for each hop, as reports on multicast groups have them
            protocol, rest = rest[0], rest[8 + rest[1] * 8 :]
        if protocol == 58 and rest[0] in _OF_THE_LINK:
            return None
        source6, target6 = IPv6Address(packet[8:24]), IPv6Address(packet[24:40])
        return _transport(protocol, f"[{source6}]", f"[{target6}]", rest)
    return f"ethernet {kind:#06x}"


def _transport(protocol: int, source: str, target: str, payload: bytes) -> str:
    name = _NAMES.get(protocol, f"protocol-{protocol}")
    if name not in ("tcp", "udp"):
        return f"{name} {source} > {target}"
    ports = struct.unpack_from("!HH", payload)
    line = f"{name} {source}:{ports[0]} > {target}:{ports[1]}"
    asked = _question(payload[8:]) if name == "udp" and ports[1] == _DNS else ""
    return f"{line} dns {asked}" if asked else line


def _question(message: bytes) -> str:
    """The name that a DNS message asks for."""
    labels, at = [], 12
    while at < len(message) and message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode("ascii", "replace"))
        at += 1 + message[at]
    return ".".join(labels)


def main(interface: str) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING)) as raw:
        raw.bind((interface, 0))
        print("ready", flush=True)
        while True:
            line = told(raw.recv(65536))
            if line is not None:
                print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
