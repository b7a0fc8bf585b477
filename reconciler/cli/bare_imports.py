"""Libraries without what they take along unasked, each a tenth of the time that an agent needs from
its exec to its first answer. To be called before anybody else imports them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


def import_structlog() -> None:
    """Without rich, of which it takes tracebacks that show the values of variables, secrets too."""
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # so that it counts as not installed
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]


def import_aiohttp() -> None:
    """Without the certificates of all authorities, which it reads when it is imported: engines are
    asked in the clear, on this machine. A TLS connection would be refused, and needs a context of
    its own."""
    with _variables(SSL_CERT_FILE=os.devnull, SSL_CERT_DIR=os.devnull):
        import_module("aiohttp")


@contextmanager
def _variables(**wanted: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
