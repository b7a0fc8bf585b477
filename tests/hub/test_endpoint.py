"""Endpoints as people write them, and which proxy the way leads through."""

import pytest

from reconciler.errors import Rejected
from reconciler.hub.endpoint import bucket_and_base, parse_endpoint
from reconciler.hub.proxies import Proxies


@pytest.mark.parametrize(
    ("written", "url", "port"),
    [
        ("http://minio:9000", "http://minio:9000", 9000),
        ("http://minio:9000/", "http://minio:9000", 9000),
        ("http://minio", "http://minio", 80),
        ("https://s3.example.com", "https://s3.example.com", 443),
        ("https://s3.example.com:8443/", "https://s3.example.com:8443", 8443),
        ("minio:9000", "http://minio:9000", 9000),
        ("s3.example.com", "https://s3.example.com", 443),
        ("s3.example.com:443", "https://s3.example.com:443", 443),
        ("10.0.0.7:9000", "http://10.0.0.7:9000", 9000),
        ("http://[::1]:9000", "http://[::1]:9000", 9000),
        ("[fd00::7]", "https://[fd00::7]", 443),
        ("[::1]:9000/", "http://[::1]:9000", 9000),
        (" minio:9000\n", "http://minio:9000", 9000),
        ("minio:9000/", "http://minio:9000", 9000),
        ("minio:", "https://minio", 443),
        ("HTTP://minio:9000", "http://minio:9000", 9000),
        ("HTTPS://S3.example.com/", "https://S3.example.com", 443),
    ],
)
def test_understands_endpoints_with_and_without_scheme_and_port(
    written: str, url: str, port: int
) -> None:
    """kserve#849, #213 (scenario 36)."""
    endpoint = parse_endpoint(written)

    assert (endpoint.url, endpoint.port) == (url, port)


@pytest.mark.parametrize(
    ("written", "cause"),
    [
        ("", "no endpoint is set"),
        ("http://minio:9000/models", "it must end after the host and port"),
        ("minio:9000/models", "it must end after the host and port"),
        ("http://minio:9000?x=1", "it must end after the host and port"),
        ("ftp://minio:9000", "the scheme must be http or https"),
        ("http://minio:port", "[Pp]ort"),
        ("http://:9000", "it names no host"),
        ("http://mi nio:9000", "it names no host"),
        ("fd00::7:9000", "an IPv6 address stands in brackets"),
        ("minio:99999", "out of range.*; a port is a number up to 65535"),
        ("http:/minio", "it must end after the host and port"),
    ],
)
def test_refuses_what_is_no_endpoint(written: str, cause: str) -> None:
    """kserve#849, #213 (scenario 36): a path is refused, not silently dropped."""
    with pytest.raises(Rejected, match=cause):
        parse_endpoint(written)


@pytest.mark.parametrize(
    "written",
    [
        "http://admin:hunter2@minio:9000",
        "admin:hunter2@minio",
        "http://admin:hunter2@minio:port",
        "http://admin:hunter2#x@minio",
        "ftp://admin:hunter2@minio",
    ],
)
def test_never_shows_a_password_in_an_endpoint(written: str) -> None:
    with pytest.raises(Rejected, match="in AWS_ENDPOINT_URL: it must not hold") as refused:
        parse_endpoint(written, "AWS_ENDPOINT_URL")

    assert "hunter2" not in str(refused.value)
    assert "admin" not in str(refused.value)


def test_reads_bucket_and_base() -> None:
    assert bucket_and_base("s3://models") == ("models", "")
    assert bucket_and_base("s3://models/") == ("models", "")
    assert bucket_and_base("s3://shared/team/a/") == ("shared", "team/a")


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "http://models", "models", "s3://a/../b"])
def test_refuses_what_is_no_bucket(url: str) -> None:
    with pytest.raises(Rejected, match="cannot use hub"):
        bucket_and_base(url)


@pytest.mark.parametrize(
    ("endpoint", "no_proxy", "proxy"),
    [
        ("https://s3.example.com", "", "http://secure:3128"),
        ("http://s3.example.com", "", "http://plain:3128"),
        ("https://s3.example.com", "*", None),
        ("https://s3.example.com", "example.com", None),
        ("https://s3.example.com", "localhost, .example.com", None),
        ("https://s3.example.com", "*.example.com", None),
        ("https://s3.example.com", "s3.EXAMPLE.com:443", None),
        ("https://s3.example.com", "s3.example.com:8443", "http://secure:3128"),
        ("https://s3.example.com", "ample.com", "http://secure:3128"),
        ("http://10.1.2.3:9000", "10.0.0.0/8", None),
        ("http://10.1.2.3:9000", "10.1.2.3", None),
        ("http://11.1.2.3:9000", "10.0.0.0/8", "http://plain:3128"),
        ("http://[::1]:9000", "::1", None),
    ],
)
def test_honours_proxy_variables(endpoint: str, no_proxy: str, proxy: str | None) -> None:
    """kserve#825 (scenario 37)."""
    proxies = Proxies(http="plain:3128", https="http://secure:3128", no_proxy=no_proxy)

    assert proxies.url_for(parse_endpoint(endpoint)) == proxy
