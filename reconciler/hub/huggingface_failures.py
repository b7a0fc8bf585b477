"""Why Hugging Face did not give a model, in words for operators (PURE).

All of it can be mended outside of the manifest (access, a token, the network), so all of it is
tried again; what cannot be a repository's name was refused before.
"""

from collections.abc import Mapping

from reconciler.errors import Transient
from reconciler.hub.huggingface_site import VARIABLE, site_of
from reconciler.plan.repository import Repository

TOKEN = "HF_TOKEN, or a file that HF_TOKEN_PATH names"


def failure(
    kind: str,
    cause: str,
    repository: Repository,
    *,
    environment: Mapping[str, str],
    has_token: bool,
    retry_after_seconds: float | None = None,
) -> Transient:
    """The error for what the child said. `environment`: the child's, for the mirror it asked.

    `has_token`: it sent one.
    """
    site = site_of(environment)
    words = _words(repository, site, has_token=has_token)
    sentence = words[kind].format(cause=cause) if kind in words else cause
    return Transient(
        f"cannot import {repository}: {sentence}", retry_after_seconds=retry_after_seconds
    )


def _words(repository: Repository, site: str, *, has_token: bool) -> dict[str, str]:
    page = f"{site}/{repository.name}"
    whose = "the account of this node's token" if has_token else "it"
    token = "" if has_token else f"; then give this node its token ({TOKEN})"
    private = (
        "if it is private, the account of this node's token may not read it"
        if has_token
        else f"if it is private, give this node a token ({TOKEN})"
    )
    return {
        "no_client": "huggingface_hub is missing here: install xgen-model[huggingface] ({cause})",
        "gated": f"it is gated: ask for access for {whose} at {page}{token}"
        if has_token
        else f"it is gated: ask for access at {page}{token}",
        "no_repository": f"{site} has no such repository; {private}",
        "no_revision": f"it has no revision {repository.revision or 'main'} at {site}",
        "no_file": f"{site} lists a file and does not have it ({{cause}})",
        "disabled": f"{site} has disabled it",
        "offline": "this node is told to stay offline (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE); "
        "import it where there is a network, or push it to the hub",
        "disk": "the disk is full ({cause})",
        "token": f"{site} does not take this node's token ({TOKEN}): {{cause}}"
        if has_token
        else f"{site} asks for a token, and this node has none ({TOKEN}): {{cause}}",
        "odd_token": f"this node's token is none, but has blanks or odd letters ({TOKEN})",
        "forbidden": f"{site} refuses it, {{cause}}; "
        + ("may this node's token read it?" if has_token else f"this node has no token ({TOKEN})"),
        "rate_limit": f"{site} asks for fewer requests, {{cause}}"
        + ("" if has_token else f"; with a token it allows more ({TOKEN})"),
        "answer": f"{site} answers with {{cause}}",
        "network": f"cannot reach {site}: {{cause}}; for a mirror set {VARIABLE}",
        "damaged": f"what {site} sends is not what it lists, twice: {{cause}}",
        "stalled": f"nothing came from {site} for {{cause}}",
        "died": "the download ended early: {cause}; asked for again, it goes on where it was; a "
        "model with hf:// asks by itself",
    }
