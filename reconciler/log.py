"""Structured logs of the agent: for people on a terminal, JSON lines elsewhere."""

import logging
import sys
import threading
from types import TracebackType
from typing import Literal, TextIO

import structlog

LogFormat = Literal["auto", "console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure(
    *, form: LogFormat = "auto", level: LogLevel = "info", stream: TextIO | None = None
) -> None:
    """Set up structlog once, at the start of the process.

    `auto`: console lines on a terminal, JSON elsewhere. Libraries that use `logging` are shown
    from warning on, in the same form; so is what Python itself would print to stderr.
    """
    out = stream or sys.stderr
    console = is_console(form, out)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty())
        if console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processor=renderer, foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared]
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _catch_the_rest()


def is_console(form: LogFormat, stream: TextIO) -> bool:
    return form == "console" or (form == "auto" and stream.isatty())


def _catch_the_rest() -> None:
    """Warnings, and exceptions that nobody caught, would tear the lines of a JSON log."""
    python = logging.getLogger("python")

    def uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            python.critical("uncaught exception", exc_info=error)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "unknown"
        python.error("uncaught exception in thread %s", name, exc_info=args.exc_value)

    def unraisable(args: "sys.UnraisableHookArgs") -> None:
        python.error("exception ignored in %r", args.object, exc_info=args.exc_value)

    logging.captureWarnings(True)
    sys.excepthook = uncaught
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable
