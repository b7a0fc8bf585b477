"""How to reach an S3 store; apart from the client, which only who has such a hub imports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.hub.proxies import Proxies


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How to reach a bucket.

    `endpoint`: as written by the operator. `base`: a folder in the bucket that holds the prefixes.
    `keys`: the variables that hold the keys, or name their files; none: requests are anonymous.
    `ca_file`: certificates to trust instead of the public ones. `…_from`: the variable, for
    messages.
    """

    endpoint: str
    bucket: str
    base: str = ""
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    region: str = "us-east-1"
    ca_file: str | None = None
    endpoint_from: str = "MINIO_ENDPOINT"
    region_from: str = "MINIO_REGION"
    ca_file_from: str = "SSL_CERT_FILE"
    proxies: Proxies = field(default_factory=Proxies)
    connect_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 60.0
