"""What git hosts send with a webhook, by their own documentation."""

import hashlib
import hmac

import pytest

from reconciler.proxy.push_hook import is_authentic

SECRET = b"It's a Secret to Everybody"
BODY = b"Hello, World!"
DIGEST = b"757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
"""GitHub's example."""


def test_the_example_is_what_its_documentation_says() -> None:
    assert hmac.new(SECRET, BODY, hashlib.sha256).hexdigest().encode() == DIGEST


@pytest.mark.parametrize(
    "header",
    [
        (b"x-hub-signature-256", b"sha256=" + DIGEST),
        (b"x-gitea-signature", DIGEST),
        (b"x-gitlab-token", SECRET),
    ],
)
def test_knows_each_host_by_its_proof(header: tuple[bytes, bytes]) -> None:
    assert is_authentic([(b"content-type", b"application/json"), header], BODY, SECRET)
    name, proof = header
    assert not is_authentic([(name, proof[:-1] + b"!")], BODY, SECRET)
    assert not is_authentic([(name, b"")], BODY, SECRET)
    assert not is_authentic([header], BODY, b"another secret")
    if name != b"x-gitlab-token":
        assert not is_authentic([header], BODY + b"!", SECRET)


def test_nothing_shown_is_no_proof() -> None:
    assert not is_authentic([], BODY, SECRET)
    assert not is_authentic([(b"x-hub-signature", b"sha1=" + DIGEST[:40])], BODY, SECRET)
