"""`--peers` as it is written: `dns:NAME:PORT`, or `HOST:PORT,HOST:PORT` (PURE)."""

import re
from collections.abc import Iterable
from ipaddress import ip_address

from reconciler.plan.peering import Address, DnsPeers, ListedPeers, Peering, is_ip, normal_host

DNS = "dns:"
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE)
_PORT = re.compile(r"[1-9][0-9]{3}")
_LONGEST_NAME = 253


def parse_peering(text: str) -> Peering:
    """Raises ValueError, which names the part that is wrong, and what to write."""
    text = text.strip()
    if text[: len(DNS)].lower() == DNS:
        return _dns(text)
    parts = [part.strip() for part in text.split(",")]
    if parts == [""]:
        raise ValueError("is empty: write dns:NAME:PORT, or HOST:PORT,HOST:PORT")
    return ListedPeers(addresses=tuple(dict.fromkeys(map(_address, parts))))


def written(peering: Peering) -> str:
    """So that it can be read again."""
    if isinstance(peering, DnsPeers):
        return f"{DNS}{peering.name}:{peering.port}"
    return ",".join(map(str, peering.addresses))


def names_of(peering: Peering) -> tuple[Address, ...]:
    """What is looked up, or is an address already, each with its port."""
    if isinstance(peering, DnsPeers):
        return (Address(host=peering.name, port=peering.port),)
    return peering.addresses


def is_loopback(host: str) -> bool:
    return ip_address(host).is_loopback if is_ip(host) else host.rstrip(".") == "localhost"


def _dns(text: str) -> DnsPeers:
    if "," in text:
        raise ValueError(f"{text!r}: a name with dns: stands alone, without other addresses")
    address = _address(text[len(DNS) :], whole=text)
    if is_ip(address.host):
        raise ValueError(f"{text!r}: {address.host} is an address, no name: write it without dns:")
    return DnsPeers(name=address.host, port=address.port)


def _address(part: str, whole: str | None = None) -> Address:
    """`whole`: as it is called in messages, where that is more than the part."""
    text = whole if whole is not None else part
    said = repr(text)
    if not part:
        raise ValueError(f"{said}: an address is missing (two commas, or one at the end)")
    if "://" in part:
        raise ValueError(f"{said}: write HOST:PORT, without {part.partition('://')[0]}://")
    if part.lower().startswith(DNS):
        raise ValueError(f"{said}: a name with dns: stands alone, without other addresses")
    if is_ip(part) and ":" in part:
        raise ValueError(f"{said} has no port, or no brackets: write {_in_brackets(part)}")
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        raise ValueError(f"{said} has no port: write {text}:8000")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{said}: {port!r} is no port from 1 to 65535")
    return Address(host=_host(host, said), port=int(port))


def _in_brackets(address: str) -> str:
    """A last group of four digits is rather meant as a port."""
    host, _, last = address.rpartition(":")
    return f"[{host}]:{last}" if is_ip(host) and _PORT.fullmatch(last) else f"[{address}]:8000"


def _host(host: str, said: str) -> str:
    bare = host
    if host.startswith("[") and host.endswith("]"):
        bare = host[1:-1]
        if not is_ip(bare) or ":" not in bare:
            raise ValueError(f"{said}: {bare!r} is no IPv6 address")
    elif ":" in host:
        raise ValueError(f"{said}: {host!r} is no host; an IPv6 address stands in brackets")
    if is_ip(bare):
        address = ip_address(bare)
        if address.is_unspecified or address.is_multicast:
            raise ValueError(f"{said}: no agent can be reached at {bare}")
    elif not _is_name(bare.removesuffix(".").split(".")) or len(bare) > _LONGEST_NAME:
        raise ValueError(f"{said}: {host!r} is neither a host's name nor an address")
    return normal_host(bare)


def _is_name(labels: Iterable[str]) -> bool:
    """A last label of digits makes it an address that is none (10.0.0.256)."""
    *_, last = labels = list(labels)
    return all(_LABEL.fullmatch(label) for label in labels) and not last.isdigit()
