"""The values that a model's `env` refers to, and what is said where they cannot be had."""

import os
from pathlib import Path

import pytest

from reconciler.apply.secret_values import secret_values
from reconciler.errors import Rejected, Transient
from reconciler.plan.desired import SecretRef
from tests.backend.build import model


def test_values_by_variable(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter22\n", encoding="utf-8")
    wants = model(
        env={
            "PLAIN": "1",
            "A": SecretRef(from_env="HF_TOKEN"),
            "B": SecretRef(from_file=str(secret)),
        }
    )
    assert secret_values(wants, {"HF_TOKEN": "x"}) == {"A": "x", "B": "hunter22"}


def test_what_is_missing_for_good_is_said_first() -> None:
    wants = model(env={"A": SecretRef(from_file="/nope"), "B": SecretRef(from_env="NOPE")})
    with pytest.raises(Rejected, match="env B is from_env NOPE"):
        secret_values(wants, {})


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"hunter22\xff", "it is no UTF-8 text"),
        (b"hunter\x0022", "it holds a NUL byte"),
        (b"h" * 128 * 1024, "it has 128 KiB or more"),
    ],
    ids=["binary", "nul", "too-long"],
)
def test_content_that_is_no_value_is_said_without_it(
    tmp_path: Path, content: bytes, cause: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    with pytest.raises(Transient) as caught:
        secret_values(model(env={"A": SecretRef(from_file=str(secret))}), {})
    assert str(caught.value) == (
        f"cannot start gemma: env A is from_file {secret}: {cause}; "
        "goes on by itself once that can be read"
    )


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(Transient, match="it is no regular file"):
        secret_values(model(env={"A": SecretRef(from_file=str(pipe))}), {})
