"""Logs: one line per event, with the process's context, whoever wrote it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from ops import logs


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_json_with_the_context_of_its_process(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", slot="worker-0")
    structlog.get_logger().info("delivery.attempted", attempt=1)
    logging.getLogger("library").warning("odd: %s", "thing")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["attempt"], ours["slot"], ours["level"]) == (
        "delivery.attempted",
        1,
        "worker-0",
        "info",
    )
    assert (theirs["event"], theirs["slot"], theirs["level"]) == ("odd: thing", "worker-0", "warning")


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "console")
    structlog.get_logger().info("quiet")
    assert capsys.readouterr().err == ""
