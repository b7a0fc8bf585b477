"""A profile in the credentials file of AWS's tools."""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.errors import Transient

_FILE = "AWS_SHARED_CREDENTIALS_FILE"
_NAME = "AWS_PROFILE"
PROFILE_VARIABLES = (_FILE, _NAME, "HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`said`: for messages."""

    name: str
    file: str
    said: str

    def read(self) -> Mapping[str, str]:
        """Its values. Raises Transient."""
        sections = _sections(self.file)
        if self.name not in sections:
            raise Transient(f"cannot use {self.said}: there is no such profile")
        return sections[self.name]


def profile_of(variables: Mapping[str, str]) -> Profile | None:
    """The profile that the variables ask for, or `default` where there happens to be one."""
    home = variables.get("HOME")
    file = variables.get(_FILE) or (f"{home}/.aws/credentials" if home else None)
    name = variables.get(_NAME, "default")
    if file is None:
        return None
    by = [
        f"{variable}={variables[variable]}" for variable in (_NAME, _FILE) if variable in variables
    ]
    asked = f" ({', '.join(by)})" if by else ""
    profile = Profile(name=name, file=file, said=f"profile {name} of {file}{asked}")
    return profile if by or _happens_to_be(profile) else None


def _happens_to_be(profile: Profile) -> bool:
    try:
        return profile.name in _sections(profile.file)
    except Transient:
        return False


def _sections(file: str) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        with open(file, encoding="utf-8") as opened:
            parser.read_file(opened)
    except OSError as exc:
        raise Transient(f"cannot read {file}: {exc.strerror}") from exc
    except (configparser.Error, UnicodeDecodeError):
        raise Transient(f"cannot read {file}: it is no credentials file") from None  # shows lines
    return {name: dict(parser[name]) for name in parser.sections()}
