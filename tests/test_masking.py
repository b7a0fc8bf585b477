"""Secrets do not show."""

import pytest

from reconciler.masking import is_secret_name, masked_argv, masked_values
from reconciler.plan.desired import SecretRef


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "api-key", "API_KEY", "aws_secret_access_key", "DB_PASSWORD", "TOKEN"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["max_num_batched_tokens", "tokenizer", "VLLM_LOGGING_LEVEL", "n_keep", "monkey"]
)
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_references_stay_and_literal_secrets_go() -> None:
    shown = masked_values(
        {
            "HF_TOKEN": SecretRef(from_env="HUB_TOKEN"),
            "PASSWORD": SecretRef(from_file="/run/secrets/p"),
            "API_KEY": "sk-1234",
            "LEVEL": "debug",
            "nested": {"api_key": "sk-1234", "n": 1},
        }
    )
    assert shown == {
        "HF_TOKEN": {"from_env": "HUB_TOKEN"},
        "PASSWORD": {"from_file": "/run/secrets/p"},
        "API_KEY": "***",
        "LEVEL": "debug",
        "nested": {"api_key": "***", "n": 1},
    }


def test_a_secret_is_found_inside_an_argument() -> None:
    assert masked_argv(["--key=abcdef", "x"], ["abcdef", None, "x"]) == ("--key=***", "x")
