"""What git says of a failure, as a cause that an operator can act on (PURE)."""

import re

from reconciler.source.git_command import GitFailed
from reconciler.source.names import shown_name

_MAX_CHARACTERS = 400
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_VARYING = re.compile(r" (?:after \d+ ms|port \d+ after \d+ ms)")
"""It would make every try another message."""
_NOISE = re.compile(
    r"^(?:warning: filtering not recognized|Please make sure you have the correct access|"
    r"and the repository exists|Host key verification failed|From )|^[@\s]*$"
)
_NEXT = (
    (
        r"could not read Username|could not read Password",
        "the server asks for credentials: --git-token-file",
    ),
    (
        r"Authentication failed|HTTP Basic: Access denied|returned error: 40[13]",
        "the server refuses the token in --git-token-file, or what it may read",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host shows another key than the one in --git-known-hosts; somebody may listen in: "
        "compare it with what the host's owner publishes before you replace it",
    ),
    (
        r"Host key verification failed|host key is known for",
        "--git-known-hosts has no key of this host",
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE|bad permissions",
        "ssh refuses a key that others may read; give it mode 0400",
    ),
    (r"Permission denied \(", "the server does not know the key in --git-ssh-key"),
    (
        r"server certificate verification failed|SSL certificate problem|certificate signer not "
        r"trusted|certificate verify failed",
        "the server's certificate is of no authority that is known here: --git-ca-file",
    ),
    (r"cannot run ssh|ssh: not found|ssh: No such file", "there is no ssh on PATH; install it"),
    (r"transport '\S+' not allowed", "the server leads to another protocol, which is refused"),
    (r"No user exists for uid", "ssh needs this user in /etc/passwd"),
)


def cause_of(failure: GitFailed) -> str:
    """One line: git's own words, and the next step where it is known."""
    said = _USER.sub("", failure.said)
    step = next((step for pattern, step in _NEXT if re.search(pattern, said)), None)
    words = _words(said) or str(failure)
    return words if step is None else f"{words} ({step})"


def _words(said: str) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]+", said)]
    kept = [line for line in lines if line and not _NOISE.search(line)]
    fatal = [line for line in kept if line.startswith(("fatal:", "error:", "remote:", "ssh:"))]
    joined = "; ".join(dict.fromkeys(re.sub(r"^(?:fatal|error): ", "", each) for each in fatal))
    text = shown_name(_VARYING.sub("", joined or "; ".join(kept[-3:])))
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
