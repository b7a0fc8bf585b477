"""Where the keys of a store may stand, what is said of wrong ones, and how they are renewed."""

import dataclasses
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.errors import Rejected, Transient, XgenError
from reconciler.hub.credentials import Keys, find_keys
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.hub.s3_settings import S3Settings
from tests.hub.fault_proxy import Fault, fault_proxy
from tests.hub.reading import read_all
from tests.s3_server import ACCESS_KEY, KEYS, SECRET_KEY, S3Server, s3_store
from tests.waiting import wait_until

MINIO = {"MINIO_ACCESS_KEY": "minio-id", "MINIO_SECRET_KEY": "minio-hush"}
AWS = {"AWS_ACCESS_KEY_ID": "aws-id", "AWS_SECRET_ACCESS_KEY": "aws-hush"}
PROFILES = """
[default]
aws_access_key_id = default-id
aws_secret_access_key = 100%hush

[ml]
aws_access_key_id = ml-id
aws_secret_access_key = ml-hush
aws_session_token = ml-token

[sso]
region = eu-central-1
"""


def found(variables: Mapping[str, str]) -> Keys:
    keys = find_keys(variables)
    assert keys is not None
    return keys


def pair(variables: Mapping[str, str]) -> tuple[str, str, str | None]:
    keys = found(variables).retrieve()
    return keys.access_key, keys.secret_key, keys.session_token


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Mounted secrets, which end in a newline, and a home with profiles."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(PROFILES)
    (tmp_path / "id").write_text("file-id\n")
    (tmp_path / "key").write_text("file-hush\r\n")
    (tmp_path / "token").write_text("file-token\n")
    return {
        "MINIO_ACCESS_KEY_FILE": str(tmp_path / "id"),
        "MINIO_SECRET_KEY_FILE": str(tmp_path / "key"),
    }


def test_the_first_source_that_is_set_counts(files: dict[str, str], tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    minio_token = {"MINIO_SESSION_TOKEN_FILE": str(tmp_path / "token")}
    aws_token = {"AWS_SESSION_TOKEN": "aws-token"}

    assert pair(MINIO | files | AWS | home) == ("minio-id", "minio-hush", None)
    assert pair(files | minio_token | AWS | home) == ("file-id", "file-hush", "file-token")
    mixed = {"MINIO_ACCESS_KEY": "minio-id"} | files
    assert pair(mixed) == ("minio-id", "file-hush", None)
    assert pair(AWS | aws_token | home | {"AWS_PROFILE": "ml"}) == (
        "aws-id",
        "aws-hush",
        "aws-token",
    )
    assert pair(home | {"AWS_PROFILE": "ml"}) == ("ml-id", "ml-hush", "ml-token")
    assert pair(home) == ("default-id", "100%hush", None)


def test_messages_know_which_source_it_is(files: dict[str, str], tmp_path: Path) -> None:
    credentials = tmp_path / ".aws" / "credentials"
    by_file = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials)}

    names = found(files).names
    assert names.secret_key == f"MINIO_SECRET_KEY_FILE={tmp_path}/key"
    assert found(AWS).names.together == "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    assert found({"HOME": str(tmp_path)}).names.together == f"profile default of {credentials}"
    said = found(by_file | {"AWS_PROFILE": "ml"}).names.together
    assert said.startswith(f"profile ml of {credentials} (AWS_PROFILE=ml, ")


def test_without_any_source_there_are_no_keys(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()

    assert find_keys({}) is None
    assert find_keys({"HOME": str(tmp_path)}) is None
    (tmp_path / ".aws" / "credentials").write_text("[work]\naws_access_key_id = x\n")
    assert find_keys({"HOME": str(tmp_path)}) is None  # nobody asked for a profile


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MINIO_ACCESS_KEY": "hush"}, "MINIO_ACCESS_KEY alone: MINIO_SECRET_KEY or MINIO_S"),
        ({"MINIO_SECRET_KEY": "hush"} | AWS, "MINIO_SECRET_KEY alone: MINIO_ACCESS_KEY or MIN"),
        ({"MINIO_SESSION_TOKEN": "hush"}, "MINIO_SESSION_TOKEN alone"),
        ({"AWS_ACCESS_KEY_ID": "hush"}, "AWS_ACCESS_KEY_ID alone: AWS_SECRET_ACCESS_KEY is not"),
        (MINIO | {"MINIO_ACCESS_KEY": "hush hush"}, "cannot use MINIO_ACCESS_KEY: it is no key"),
        (MINIO | {"MINIO_ACCESS_KEY": "hüsh"}, "cannot use MINIO_ACCESS_KEY: it is no key"),
        (MINIO | {"MINIO_SECRET_KEY": "hush\nhush"}, "cannot use MINIO_SECRET_KEY: it is no"),
    ],
)
def test_half_a_pair_and_what_is_no_key_are_refused(
    variables: Mapping[str, str], said: str
) -> None:
    """What cannot stand in a header would else be shown by the HTTP client's error."""
    with pytest.raises(Rejected, match=said) as refused:
        find_keys(variables)

    assert not any(value in str(refused.value) for value in variables.values())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read MINIO_SECRET_KEY_FILE={}: No such file or directory"),
        (b"\n", "cannot use MINIO_SECRET_KEY_FILE={}: it is empty"),
        (b"hush\nhush\n", "cannot use MINIO_SECRET_KEY_FILE={}: it is no key"),
        (b"\xff\xfehush", "cannot read MINIO_SECRET_KEY_FILE={}: it is no text"),
    ],
)
def test_a_file_that_is_not_right_is_named_and_read_again_once_it_is(
    files: dict[str, str], tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "key"
    keys = found(files)
    file.unlink() if content is None else file.write_bytes(content)

    with pytest.raises(Transient) as refused:
        keys.retrieve()
    file.write_text("another-hush\n")

    assert str(refused.value).startswith(said.format(file))
    assert "hush" not in str(refused.value)
    assert keys.retrieve().secret_key == "another-hush"


def test_a_secret_where_a_path_belongs_is_not_shown(files: dict[str, str]) -> None:
    for mistake in ("hush+hush/hush", "/hush+hush"):
        with pytest.raises(Transient, match="the file that MINIO_SECRET_KEY_FILE names") as refused:
            found(files | {"MINIO_SECRET_KEY_FILE": mistake}).retrieve()
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone", PROFILES, "cannot use profile gone of {} (AWS_PROFILE=gone, "),
        ("sso", PROFILES, "cannot use aws_access_key_id of profile sso of {} "),
        ("ml", "aws_secret_access_key = hush", "cannot read {}: it is no credentials file"),
        ("ml", "[ml]\nhush\n", "cannot read {}: it is no credentials file"),
        ("ml", None, "cannot read {}: No such file or directory"),
    ],
)
def test_a_profile_that_is_not_right_is_named(
    tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    file = tmp_path / "credentials"
    if content is not None:
        file.write_text(content)

    with pytest.raises(Transient) as refused:
        found({"AWS_PROFILE": name, "AWS_SHARED_CREDENTIALS_FILE": str(file)}).retrieve()

    assert str(refused.value).startswith(said.format(file))
    assert "hush" not in str(refused.value)


class Mounted:
    """A secret as kubelet mounts it: a swap of one link renews all of its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in ("id", "key"):
            (folder / name).symlink_to(f"..data/{name}")

    @property
    def variables(self) -> dict[str, str]:
        return {
            "MINIO_ACCESS_KEY_FILE": str(self._folder / "id"),
            "MINIO_SECRET_KEY_FILE": str(self._folder / "key"),
        }

    def renew(self, access_key: str, secret_key: str) -> None:
        version = self._folder / f"..{len(list(self._folder.iterdir()))}"
        version.mkdir()
        (version / "id").write_text(access_key)
        (version / "key").write_text(f"{secret_key}\n")
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        os.rename(link, self._folder / "..data")


def test_renewed_keys_are_taken_up_here_and_in_the_process_that_fetches(
    server: S3Server, tmp_path: Path
) -> None:
    content = os.urandom(9 << 20)
    server.put("models", "gguf/renewed_x/x.gguf", content)
    mounted = Mounted(tmp_path / "secret")
    mounted.renew(ACCESS_KEY, SECRET_KEY)
    contents: list[bytes] = []
    with fault_proxy(server.port) as proxy:
        settings = S3Settings(endpoint=proxy.endpoint, bucket="models", keys=mounted.variables)
        with closing(S3StoreApart(settings)) as store:
            (stored,) = store.objects("gguf/renewed_x")
            proxy.plan = lambda _get: Fault(at=0, stall=True)
            reader = threading.Thread(target=lambda: contents.append(read_all(store, stored)))
            reader.start()  # it keeps the one process alive meanwhile
            wait_until(lambda: proxy.stalled > 0, what="the first read is under way")
            proxy.plan = lambda _get: None

            mounted.renew(ACCESS_KEY, "hush")
            wrong = f"the secret key is wrong; check MINIO_SECRET_KEY_FILE={tmp_path}/secret/key"
            with pytest.raises(Transient, match=wrong):
                store.objects("gguf/renewed_x")
            with pytest.raises(Transient, match=f"cannot fetch .* {wrong}"):
                read_all(store, stored)

            mounted.renew(ACCESS_KEY, SECRET_KEY)
            assert store.objects("gguf/renewed_x") == (stored,)
            contents.append(read_all(store, stored))
            proxy.release()
            reader.join()
    assert contents == [content, content]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "access denied: no credentials are set; set MINIO_ACCESS_KEY and MINIO_SECRET_KEY"),
        (AWS, "the store does not know this access key; check AWS_ACCESS_KEY_ID"),
        (
            AWS | {"AWS_ACCESS_KEY_ID": ACCESS_KEY},
            "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_keys_that_do_not_let_us_in_are_named(
    server: S3Server, variables: dict[str, str], said: str
) -> None:
    settings = S3Settings(endpoint=server.endpoint, bucket="models", keys=variables)

    with s3_store(settings) as store, pytest.raises(XgenError, match=said) as refused:
        store.prefixes()

    assert not any(value in str(refused.value) for value in variables.values())


def test_what_a_store_says_of_token_or_region_is_said_of_its_variable(server: S3Server) -> None:
    server.put("models", "gguf/token_x/x.gguf", b"x")
    keys = KEYS | {"MINIO_SESSION_TOKEN": "hush-token"}
    answers = {
        "ExpiredToken": "has expired; renew MINIO_SESSION_TOKEN",
        "InvalidToken": "does not know .*; check MINIO_SESSION_TOKEN",
        "AuthorizationHeaderMalformed": "in another region; check AWS_REGION",
    }
    with fault_proxy(server.port) as proxy:
        settings = server.settings(endpoint=proxy.endpoint)
        settings = dataclasses.replace(settings, keys=keys, region_from="AWS_REGION")
        with s3_store(settings) as store:
            (stored,) = store.objects("gguf/token_x")
            for code, said in answers.items():
                fault = Fault(answer=(400, code))
                proxy.plan = lambda _get, fault=fault: fault  # type: ignore[misc]
                with pytest.raises(Transient, match=said) as refused:
                    read_all(store, stored)
                assert "hush" not in str(refused.value)
