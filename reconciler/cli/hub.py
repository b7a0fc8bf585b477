"""`xgen-model hub …`: what the hub holds, and putting models there."""

import typer

from reconciler.cli.hub_list import list_prefixes
from reconciler.cli.hub_pull import pull
from reconciler.cli.hub_push import push
from reconciler.cli.hub_remove import gc, rm
from reconciler.cli.hub_verify import verify
from reconciler.cli.import_ import import_

hub = typer.Typer(
    help="What the hub holds. The hub is --hub or XGEN_HUB: s3://BUCKET (with MINIO_ENDPOINT, "
    "MINIO_ACCESS_KEY, MINIO_SECRET_KEY, or the AWS_* ones) or a directory.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
hub.command("list", short_help="Show what the hub holds.")(list_prefixes)
hub.command("push", short_help="Put a folder's files there, with a catalog.")(push)
hub.command("pull", short_help="Bring a model's files into a folder.")(pull)
hub.command("import", short_help="Bring a model from Hugging Face there.")(import_)
hub.command("verify", short_help="Check that files are as they were pushed.")(verify)
hub.command("rm", short_help="Remove a model from the hub.")(rm)
hub.command("gc", short_help="Give the room of old pushes back.")(gc)
