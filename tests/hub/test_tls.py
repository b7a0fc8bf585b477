"""A real S3 server that speaks TLS with a certificate of our own: CAs, proxies, mistakes."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.hub.proxies import Proxies
from reconciler.hub.s3_connection import connect
from reconciler.hub.s3_settings import S3Settings
from tests.hub.connect_proxy import connect_proxy
from tests.hub.reading import read_all
from tests.s3_server import ACCESS_KEY, KEYS, SECRET_KEY, rclone, s3_store, server_of

CONTENT = os.urandom(1 << 20)
PREFIX = "gguf/tls_x"


def certificate(folder: Path, name: str) -> Path:
    """A certificate for `localhost` that is its own CA; its key beside it, as NAME.key."""
    made = folder / f"{name}.pem"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={name}"
    files = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(made.with_suffix(".key"))]
    subprocess.run([*make.split(), *files, "-out", str(made)], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Iterator[S3Settings]:
    """Of the server, with its CA."""
    ours = certificate(folder, "ours")
    file = folder / "buckets" / "models" / PREFIX / "x.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    argv = [
        rclone(), "serve", "s3", "--addr", "127.0.0.1:0", "--config", os.devnull,
        "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--vfs-cache-mode", "off",
        "--cert", str(ours), "--key", str(ours.with_suffix(".key")), str(folder / "buckets"),
    ]  # fmt: skip
    with server_of(argv, re.compile(r"\[https://127\.0\.0\.1:(\d+)")) as (port, _):
        yield S3Settings(
            endpoint=f"https://localhost:{port}", bucket="models", keys=KEYS, ca_file=str(ours)
        )


def fetched(settings: S3Settings) -> bytes:
    with s3_store(settings) as store:
        (stored,) = store.objects(PREFIX)
        return read_all(store, stored)


def test_reads_with_a_ca_of_our_own(settings: S3Settings) -> None:
    assert fetched(settings) == CONTENT


def test_every_mistake_with_tls_says_what_to_change(settings: S3Settings, folder: Path) -> None:
    """kserve#849 (scenario 36)."""
    port = settings.endpoint.rpartition(":")[2]
    other = str(certificate(folder, "other"))
    (folder / "empty.pem").write_text("no certificate\n")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"ca_file": None}, "its certificate is not trusted; set SSL_CERT_FILE to your CA"),
        (
            {"ca_file": other, "ca_file_from": "AWS_CA_BUNDLE"},
            f"not trusted; it is not of the CA in AWS_CA_BUNDLE={other}",
        ),
        ({"ca_file": "/gone.pem"}, "read from SSL_CERT_FILE=/gone.pem: No such file"),
        ({"ca_file": f"{folder}/empty.pem"}, "SSL_CERT_FILE=.*/empty.pem: it holds no certificate"),
        ({"endpoint": f"https://127.0.0.1:{port}"}, "for another name than the one in MINIO_ENDP"),
        ({"endpoint": f"http://localhost:{port}"}, "it speaks TLS there; write https:// in MINIO_"),
        (
            {"endpoint": f"localhost:{port}", "endpoint_from": "AWS_ENDPOINT_URL"},
            "it speaks TLS there; write https:// in AWS_ENDPOINT_URL",
        ),
    ]
    for change, said in mistakes:
        with s3_store(replace(settings, **change)) as store, pytest.raises(Transient, match=said):
            store.objects(PREFIX)


def test_goes_through_a_proxy_that_wants_a_password(settings: S3Settings) -> None:
    """kserve#825 (scenario 37)."""
    port = settings.endpoint.rpartition(":")[2]
    with connect_proxy("me:p@ss/word") as proxy:
        given = Proxies(https=f"http://me:p%40ss%2Fword@{proxy.address}")
        assert fetched(replace(settings, proxies=given)) == CONTENT
        assert set(proxy.asked) == {f"localhost:{port}"}
        proxy.asked.clear()

        without = Proxies(https=proxy.address, no_proxy="localhost")
        assert fetched(replace(settings, proxies=without)) == CONTENT
        assert proxy.asked == []

        wrong = replace(settings, proxies=Proxies(https=f"http://me:hush@{proxy.address}"))
        refused = "the proxy does not let us through; check HTTPS_PROXY"
        with s3_store(wrong) as store, pytest.raises(Transient, match=refused) as raised:
            store.objects(PREFIX)
    assert "hush" not in f"{raised.value} {wrong!r}"


@pytest.mark.parametrize("proxy", ["http://me:hush@[proxy", "socks5://me:hush@proxy:1080"])
def test_what_is_no_proxy_is_refused_without_its_password(proxy: str) -> None:
    settings = S3Settings(endpoint="https://s3", bucket="b", proxies=Proxies(https=proxy))

    with pytest.raises(Rejected, match="cannot use HTTPS_PROXY: it must look like") as refused:
        connect(settings)

    assert "hush" not in str(refused.value)
