"""How git reaches a repository: files with credentials, and an environment of its own (PURE).

Nothing of the user's or the machine's git is taken: no configuration, no hooks, no helper, no
.netrc, no ssh configuration, no agent. Secrets stay in their files: git asks a helper that reads
the token when it is needed, so a token that is replaced counts at once.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.errors import Rejected
from reconciler.source.git_address import GitAddress, Transport

REMOTE = "source"
_DEFAULT_USER = "x-access-token"
"""GitHub's name for tokens; GitLab and others take any."""
_SSH_SILENCE = ("ServerAliveInterval=15", "ServerAliveCountMax=3")
_CONNECT_SECONDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAccess:
    """Files that git needs, each read again whenever it is used.

    `allowed_signers`: who may sign commits (ssh-keygen(1)); None: nobody needs to. `proxies`: the
    variables of the environment that name proxies. `timeout_seconds`: of one command of git.
    `max_bytes`: of the pack that one fetch may bring.
    """

    token_file: Path | None = None
    ssh_key: Path | None = None
    known_hosts: Path | None = None
    ca_file: Path | None = None
    allowed_signers: Path | None = None
    search_path: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 60.0
    max_bytes: int = 256 << 20

    def files(self) -> Iterator[tuple[str, Path]]:
        """Those that are given, each with the flag that gives it."""
        given = {
            "--git-token-file": self.token_file,
            "--git-ssh-key": self.ssh_key,
            "--git-known-hosts": self.known_hosts,
            "--git-ca-file": self.ca_file,
            "--git-allowed-signers": self.allowed_signers,
        }
        return ((flag, path) for flag, path in given.items() if path is not None)

    def needed(self, address: GitAddress) -> Iterator[Path]:
        """Those without which this repository cannot be read."""
        https, ssh = (self.token_file, self.ca_file), (self.ssh_key, self.known_hosts)
        by_transport = {Transport.HTTPS: https, Transport.SSH: ssh}
        for path in (*by_transport.get(address.transport, ()), self.allowed_signers):
            if path is not None:
                yield path


PUBLIC = GitAccess()
"""Without credentials."""


def check_access(address: GitAddress, access: GitAccess) -> None:
    """Raises Rejected where this transport needs a file that is not named."""
    if address.transport is not Transport.SSH:
        return
    if access.ssh_key is None:
        raise Rejected(
            "cannot use git+ssh without a key: name a private key with --git-ssh-key FILE"
        )
    if access.known_hosts is None:
        raise Rejected(
            "cannot use git+ssh without the host's key: name a file of known hosts with "
            "--git-known-hosts FILE (ssh-keyscan prints its lines; compare them with what the "
            "host's owner publishes)"
        )


def configuration(address: GitAddress, access: GitAccess) -> str:
    """The text of the only configuration that git reads. It names files, and holds no secret.

    What is larger than a manifest may be passes through git in pieces: 400 MiB of zeros, 400 KiB on
    the wire, took 405 MiB of memory else, and take 22.
    """
    lines = [
        *("[safe]", "directory = *"),
        *("[core]", "hooksPath = /dev/null", "fsmonitor = false", 'askPass = ""'),
        *("bigFileThreshold = 1m", "[pack]", "threads = 1"),
        *("[gc]", "auto = 0", "[maintenance]", "auto = false"),
        *("[fetch]", "unpackLimit = 1", "recurseSubmodules = false", "writeCommitGraph = false"),
        *("[protocol]", "version = 2"),
        *("[http]", "lowSpeedLimit = 100", f"lowSpeedTime = {max(1, int(access.timeout_seconds))}"),
    ]
    if access.ca_file is not None:
        lines.append(f"sslCAInfo = {_quoted(str(access.ca_file))}")
    lines += ["[credential]", 'helper = ""']
    if address.transport is Transport.HTTPS and access.token_file is not None:
        # By URL: a host that the server redirects to is told nothing.
        lines += [
            f"[credential {_quoted(_origin(address.url))}]",
            f"helper = {_quoted(_helper(address.user or _DEFAULT_USER, access.token_file))}",
        ]
    lines += ["[gpg]", "format = ssh", "program = false", '[gpg "x509"]', "program = false"]
    if access.allowed_signers is not None:
        lines += ['[gpg "ssh"]', f"allowedSignersFile = {_quoted(str(access.allowed_signers))}"]
    lines += [f'[remote "{REMOTE}"]', f"url = {_quoted(address.url)}"]
    return "\n".join(lines) + "\n"


def environment(address: GitAddress, access: GitAccess, home: Path) -> dict[str, str]:
    """All that git gets. `home`: a folder of ours with `.gitconfig`.

    Where git is older than GIT_CONFIG_GLOBAL (2.32), the home folder leads it to the same file.
    """
    proxies = access.proxies if address.transport is Transport.HTTPS else {}
    return {
        **proxies,
        "PATH": access.search_path,
        "HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": address.transport,
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CEILING_DIRECTORIES": str(home.parent),
        "GIT_SSH_VARIANT": "ssh",
        "GIT_SSH_COMMAND": _ssh(access),
    }


def _origin(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _helper(user: str, token_file: Path) -> str:
    """In a shell, whose printf is its own: the token is in no list of processes."""
    read = f"$(tr -d '\\r\\n' < {shlex.quote(str(token_file))})"
    say = f"printf 'username=%s\\npassword=%s\\n' {shlex.quote(user)} \"{read}\""
    return f'!f() {{ test "$1" != get || {say}; }}; f'


def _ssh(access: GitAccess) -> str:
    words = ["ssh", "-F", "/dev/null"]
    options = [
        *("BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "ForwardAgent=no"),
        *("StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no"),
        *("PasswordAuthentication=no", f"ConnectTimeout={_CONNECT_SECONDS}", *_SSH_SILENCE),
        f"UserKnownHostsFile={_ssh_path(access.known_hosts)}",
        f"IdentityFile={_ssh_path(access.ssh_key)}",
    ]
    for option in options:
        words += ["-o", option]
    return shlex.join(words)


def _ssh_path(path: Path | None) -> str:
    """ssh splits at blanks, and takes `%` for its own."""
    text = str(path or "/dev/null").replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
