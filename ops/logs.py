"""How every process of Hookyard logs: one line per event on stderr, readable on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import structlog

_QUIET = ("httpx", "httpcore", "asyncio", "rq.worker", "uvicorn.access", "alembic")


def configure(level: str, shape: str, **context: str) -> None:
    """structlog and the standard library's loggers write to stderr in one shape ("auto", "console" or "json").

    `context` (the role, the slot) is part of every line. May be called again: the last call counts.
    """
    as_json = shape == "json" or (shape == "auto" and not sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _adder(context),
        _without_nothing,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_render(as_json)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def defect(problem: BaseException) -> None:
    """A line that says what nobody expected, with its traceback as a field. The logs must be configured."""
    structlog.get_logger("defect").critical("process.defect", problem=describe(problem), exc_info=problem)


def thread_defect(ended: threading.ExceptHookArgs) -> None:
    """The same for a thread that ended by it."""
    if ended.exc_value is not None:
        defect(ended.exc_value)


def describe(problem: BaseException) -> str:
    """An exception on one line; of a group with one inside, that one."""
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    return " ".join(f"{type(problem).__name__}: {problem}".split()).removesuffix(":")


def _render(as_json: bool) -> list[Any]:
    if as_json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
    ]


def _without_nothing(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """What is not known, or does not apply, is not told."""
    return {name: value for name, value in line.items() if value is not None}


def _adder(context: dict[str, str]) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**context, **line}

    return add
