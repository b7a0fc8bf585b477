"""`xgen-model cache …`: what this node's cache holds, and what of it can go."""

import typer

from reconciler.cli.cache_gc import gc
from reconciler.cli.cache_list import list_revisions
from reconciler.cli.cache_verify import verify

cache = typer.Typer(
    help="The model files of this node, in --models-dir. Works beside an agent, and without one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
cache.command("list", short_help="Show what is cached, and what needs it.")(list_revisions)
cache.command("verify", short_help="Read files and compare them with what was pushed.")(verify)
cache.command("gc", short_help="Remove what no model needs.")(gc)
