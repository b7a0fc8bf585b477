"""Which Hugging Face is asked: its home, or a mirror (PURE)."""

from collections.abc import Mapping

from reconciler.errors import Rejected

VARIABLE = "HF_ENDPOINT"
_HOME = "https://huggingface.co"


def site_of(environment: Mapping[str, str]) -> str:
    """Its URL, for messages too. Raises Rejected where that holds a user or password.

    What is written there is not shown then: it gets into messages, events and job files.
    """
    written = environment.get(VARIABLE, "").strip()
    if "@" in written:
        raise Rejected(
            f"cannot use the mirror in {VARIABLE}: it must not hold a user or password; "
            "a token stands in HF_TOKEN, or in a file that HF_TOKEN_PATH names"
        )
    return written.rstrip("/") or _HOME
