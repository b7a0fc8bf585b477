"""The keys of a store, and where an operator has put them.

The first of these that is set counts. Half of one is an error, no reason to look further:

    MINIO_ACCESS_KEY + MINIO_SECRET_KEY (+ MINIO_SESSION_TOKEN), or the files of MINIO_…_FILE
    AWS_ACCESS_KEY_ID + AWS_SECRET_ACCESS_KEY (+ AWS_SESSION_TOKEN)
    the profile AWS_PROFILE in AWS_SHARED_CREDENTIALS_FILE, else in ~/.aws/credentials
    none: requests are anonymous

Not minio's own providers: they read the environment by themselves, pass over what is missing, and
show a line of the file in their errors.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minio.credentials.credentials import Credentials
from minio.credentials.providers import Provider

from reconciler.errors import Rejected, Transient
from reconciler.hub.key_place import AWS, FILE, MINIO, KeyPlace, place_of
from reconciler.hub.profile import Profile, profile_of

_Stamp = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNames:
    """Where each key stands, for messages: a variable, with its file, or a profile."""

    access_key: str
    secret_key: str
    session_token: str

    @property
    def together(self) -> str:
        """For one line of a report."""
        if self.access_key == self.secret_key:
            return self.access_key
        return f"{self.access_key} and {self.secret_key}"


class Keys(Provider):
    """The keys as they are now: files are read again once they have changed. Thread-safe.

    `retrieve` raises Transient where a file is not as it must be: it may be written just now.
    """

    def __init__(
        self, names: KeyNames, files: tuple[str, ...], read: Callable[[], Credentials]
    ) -> None:
        self.names = names
        self._files = files
        self._read = read
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._credentials: Credentials | None = None

    def retrieve(self) -> Credentials:
        with self._lock:
            # Once more after a read: key and secret may stand in two files, of one swap.
            while (stamp := _stamp(self._files)) != self._stamp:
                self._credentials = self._read()
                self._stamp = stamp
            assert self._credentials is not None
            return self._credentials


def find_keys(variables: Mapping[str, str]) -> Keys | None:
    """None: there are none. `variables`: of KEY_VARIABLES, those that are set.

    Raises Rejected for half a pair, and for a variable whose value can be no key.
    """
    for family in (MINIO, AWS):
        places = [place_of(variables, name) for name in family]
        if any(places):
            return _pair(family, places)
    profile = profile_of(variables)
    return _keys_of_profile(profile) if profile else None


def _pair(family: tuple[str, ...], places: list[KeyPlace | None]) -> Keys:
    access, secret, token = places
    if access is None or secret is None:
        missing = family[0] if access is None else family[1]
        given = next(place for place in places if place is not None)
        more = f" or {missing}{FILE}" if family is MINIO else ""
        raise Rejected(f"cannot use {given.said} alone: {missing}{more} is not set")

    def read() -> Credentials:
        return Credentials(
            access_key=access.read(in_header=True),
            secret_key=secret.read(in_header=False),
            session_token=token.read(in_header=True) if token else None,
        )

    names = KeyNames(
        access_key=access.said,
        secret_key=secret.said,
        session_token=token.said if token else family[2],
    )
    files = tuple(place.file for place in places if place and place.file)
    if not files:
        try:
            read()
        except Transient as exc:  # a variable stays as it is
            raise Rejected(str(exc)) from exc
    return Keys(names, files, read)


def _keys_of_profile(profile: Profile) -> Keys:
    said = profile.said

    def read() -> Credentials:
        values = profile.read()
        access, secret, token = (
            KeyPlace(said=f"{name.lower()} of {said}", value=values.get(name.lower(), ""))
            for name in AWS
        )
        return Credentials(
            access_key=access.read(in_header=True),
            secret_key=secret.read(in_header=False),
            session_token=token.read(in_header=True) if token.value else None,
        )

    names = KeyNames(access_key=said, secret_key=said, session_token=said)
    return Keys(names, (profile.file,), read)


def _stamp(files: tuple[str, ...]) -> _Stamp:
    """Another one once the files, or what their links lead to, are others."""
    found: list[tuple[int, ...] | None] = []
    for file in files:
        try:
            stat = os.stat(file)
            found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)
