"""Multipart forms as clients write them, or not."""

BOUNDARY = b"--x-boundary"
CONTENT_TYPE = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}


def part(name: str, value: bytes, more: str = "", *, filename: str | None = None) -> bytes:
    file = f'; filename="{filename}"' if filename is not None else ""
    head = f'Content-Disposition: form-data; name="{name}"{file}\r\n{more}\r\n'
    return head.encode() + value


def form(*parts: bytes, end: bytes = b"--\r\n") -> bytes:
    delimiter = b"--" + BOUNDARY
    return b"".join(delimiter + b"\r\n" + each + b"\r\n" for each in parts) + delimiter + end
