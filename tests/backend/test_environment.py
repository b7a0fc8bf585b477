from collections.abc import Mapping

import pytest

from reconciler.backend.environment import NONCE_VARIABLE, environment
from reconciler.backend.llama_devices import HIDDEN
from reconciler.backend.llama_options import KEY_VARIABLE
from reconciler.backend.site import Site
from reconciler.errors import Rejected
from reconciler.plan.desired import SecretRef


def made_of(
    base: Mapping[str, str],
    own: Mapping[str, str | SecretRef] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> dict[str, str]:
    site = Site(port=18001, api_key="k", environment=base, secrets=secrets or {})
    return environment(own or {}, site, {KEY_VARIABLE: site.api_key, **HIDDEN})


def test_takes_over_a_short_list_of_the_agents_own_variables() -> None:
    """Scenario 21, gpustack#4312: a VLLM_PORT that Kubernetes injects ends every vLLM."""
    base = {
        "PATH": "/usr/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "VLLM_PORT": "tcp://10.0.0.1:8000",
        "VLLM_SERVICE_HOST": "10.0.0.1",
        "HOST": "10.0.0.1",
        "PORT": "8080",
        "LLAMA_ARG_CTX_SIZE": "1",
        "LLAMA_API_KEY": "another",
        "CUDA_VISIBLE_DEVICES": "0",
        "HIP_VISIBLE_DEVICES": "0",
        "ROCR_VISIBLE_DEVICES": "0",
        "GGML_VK_VISIBLE_DEVICES": "0",
        "LD_PRELOAD": "/tmp/x.so",
        "LD_LIBRARY_PATH": "/tmp",
        "PYTHONPATH": "/tmp",
        "HF_TOKEN": "hf_secret",
        "MINIO_SECRET_KEY": "secret",
        "MINIO_SECRET_KEY_FILE": "/run/secrets/key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SHARED_CREDENTIALS_FILE": "/run/secrets/aws",
        "XGEN_NONCE": "of another spawn",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    assert made_of(base) == {
        "PATH": "/usr/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "CUDA_VISIBLE_DEVICES": "-1",
        "HIP_VISIBLE_DEVICES": "-1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "SPT_NOENV": "1",
        "GGML_NO_BACKTRACE": "1",
        "PYTHONUNBUFFERED": "1",
        "LLAMA_API_KEY": "k",
    }


def test_adds_the_models_own_variables_and_resolved_secrets() -> None:
    own: dict[str, str | SecretRef] = {"GGML_LOG": "1", "TOKEN": SecretRef(from_env="HF_TOKEN")}
    made = made_of({}, own, {"TOKEN": "hf_x"})
    assert (made["GGML_LOG"], made["TOKEN"]) == ("1", "hf_x")


def test_keeps_what_the_agent_needs_whatever_the_model_says() -> None:
    own = {"HF_HUB_OFFLINE": "0", "SPT_NOENV": "0", "LLAMA_API_KEY": "mine"}
    made = made_of({}, own)
    assert (made["HF_HUB_OFFLINE"], made["SPT_NOENV"], made["LLAMA_API_KEY"]) == ("1", "1", "k")


def test_rejects_a_reference_that_was_not_resolved() -> None:
    with pytest.raises(Rejected, match=r"cannot set env\.TOKEN"):
        made_of({}, {"TOKEN": SecretRef(from_env="HF_TOKEN")})


def test_leaves_the_nonce_to_the_spawner() -> None:
    assert NONCE_VARIABLE not in made_of({NONCE_VARIABLE: "x"})
