"""A hub whose BASE lies in another hub: what is below it is no model of that one."""

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import Transient
from reconciler.hub.catalog import CATALOG
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.nested import OtherHub
from reconciler.hub.s3_writer import S3Writer
from reconciler.node.hub_models import contents_of
from tests.cli.command import xgen_model
from tests.hub.hubs import Hub, hub, reader, servers
from tests.hub.test_push import PREFIX, folder_of, pushed

__all__ = ["hub", "servers"]

INNER = "base"


def inside(hub: Hub) -> Hub:
    """A hub in its folder `base`."""
    location = f"{hub.location}/{INNER}"
    if hub.settings is None:
        Path(location).mkdir()
        return replace(hub, writer=DirectoryWriter(Path(location)), location=location)
    settings = replace(hub.settings, base=f"{hub.settings.base}/{INNER}")
    return replace(hub, writer=S3Writer(settings), location=location)


def test_another_hub_s_folders_are_no_models(hub: Hub, tmp_path: Path) -> None:
    folder, prefix = folder_of(tmp_path, {"x.gguf": b"1"}), f"{INNER}/{PREFIX.split('/')[0]}"
    inner = inside(hub)
    pushed(inner, folder)
    pushed(hub, folder)
    said = f"it is no model, models of another hub lie in it; say --hub {inner.location}$"

    with reader(hub) as store:
        with pytest.raises(Transient, match=said):
            store.objects(prefix)
        assert [item.path for item in store.objects(PREFIX)] == ["x.gguf"]
    with pytest.raises(OtherHub, match=said):
        pushed(hub, folder, prefix)
    found = contents_of(hub.writer)

    assert [row["prefix"] for row in found.models] == [PREFIX]
    assert found.others == [inner.location]
    assert [row["prefix"] for row in contents_of(inner.writer).models] == [PREFIX]
    inner.writer.close()


@pytest.mark.parametrize("hub", ["directory"], indirect=True)
def test_commands_refuse_them_and_name_the_hub(hub: Hub, tmp_path: Path) -> None:
    inner, prefix = inside(hub), f"{INNER}/{PREFIX.split('/')[0]}"
    pushed(inner, folder_of(tmp_path, {"x.gguf": b"1"}))

    for words in (["rm", prefix, "--yes"], ["pull", prefix, str(tmp_path / "to")]):
        refused = xgen_model("hub", *words, "--hub", hub.location)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.endswith(f"; say --hub {inner.location}\n")
    listed = xgen_model("hub", "list", "--hub", hub.location)
    cleaned = xgen_model("hub", "gc", "--hub", hub.location)
    assert f"another hub lies in this one: --hub {inner.location}" in listed.stderr
    assert f"stays as it is: --hub {inner.location}" in cleaned.stderr

    # One that has a catalog is a model, and still no reason to remove what another has put there.
    hub.writer.save(prefix, CATALOG, b"{}")
    removed = xgen_model("hub", "rm", prefix, "--yes", "--hub", hub.location)
    assert (removed.returncode, removed.stdout) == (1, "")
    assert "remove these first" in removed.stderr
