"""Keys and endpoint of a store as the environment gives them, to `hub` and to `doctor`."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.cli.checks.finding import Level
from reconciler.cli.checks.hub import hub_findings
from reconciler.cli.options import hub_settings
from reconciler.errors import XgenError
from reconciler.node.hub import STORE_VARIABLES, make_writer
from reconciler.settings import HubSettings
from tests.cli.command import xgen_model
from tests.hub.hubs import Servers, servers
from tests.s3_server import ACCESS_KEY, KEYS, SECRET_KEY

__all__ = ["servers"]

AWS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def settings(monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str]) -> HubSettings:
    for name in STORE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return hub_settings("s3://models")


def test_takes_what_other_s3_tools_take(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = servers.settings("rclone").endpoint
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[ml]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n"
    )
    (tmp_path / "key").write_text(f"{SECRET_KEY}\n")
    by_file = {"MINIO_ACCESS_KEY": ACCESS_KEY, "MINIO_SECRET_KEY_FILE": f"{tmp_path}/key"}
    wrong = {"AWS_ENDPOINT_URL": "h/models", "AWS_ENDPOINT_URL_S3": "h/models"}
    home = {"HOME": str(tmp_path)}

    for env in (
        KEYS | wrong | {"MINIO_ENDPOINT": endpoint},
        AWS | wrong | {"AWS_ENDPOINT_URL_S3": endpoint},
        by_file | {"AWS_ENDPOINT_URL": endpoint, "MINIO_ENDPOINT": " "},
        home | {"AWS_PROFILE": "ml", "MINIO_ENDPOINT": endpoint},
    ):
        with closing(make_writer(settings(monkeypatch, env), "s3://models")) as hub:
            assert hub.prefixes() == ()

    for env, said in (
        (home | {"AWS_PROFILE": "gone"}, r"\(AWS_PROFILE=gone\): there is no such profile"),
        (AWS | {"AWS_SECRET_ACCESS_KEY": "hush"}, "is wrong; check AWS_SECRET_ACCESS_KEY"),
        (
            AWS | {"AWS_ENDPOINT_URL_S3": f"https{endpoint[4:]}", "AWS_CA_BUNDLE": "/gone.pem"},
            "cannot be read from AWS_CA_BUNDLE=/gone.pem",
        ),
        (AWS | wrong, r"\(AWS_ENDPOINT_URL_S3\): it must end after"),
    ):
        given = settings(monkeypatch, {"AWS_ENDPOINT_URL_S3": endpoint} | env)
        with pytest.raises(XgenError, match=said) as refused:
            make_writer(given, "s3://models").prefixes()
        assert "hush" not in f"{refused.value} {given!r}"


def test_the_command_says_that_no_keys_are_set(servers: Servers) -> None:
    env = {"MINIO_ENDPOINT": servers.settings("rclone").endpoint, "HOME": "/nonexistent"}

    result = xgen_model("hub", "list", "--hub", "s3://models", env=env)

    assert result.returncode == 1
    assert "no credentials are set; set MINIO_ACCESS_KEY and MINIO_SECRET_KEY" in result.stderr


def test_doctor_says_where_the_keys_stand(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"MINIO_ENDPOINT": servers.settings("rclone").endpoint, "HOME": "/nonexistent"}

    keys, hub = hub_findings(settings(monkeypatch, env | AWS), None)
    assert (keys.subject, keys.level, hub.level) == ("hub keys", Level.OK, Level.OK)
    assert keys.said == "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

    keys, hub = hub_findings(settings(monkeypatch, env), None)
    assert keys.said == "none are set: requests are anonymous"
    assert (hub.level, "no credentials are set" in hub.said) == (Level.FAIL, True)
