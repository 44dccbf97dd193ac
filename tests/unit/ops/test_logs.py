"""Logs: one line per event, with the process's context, whoever wrote it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest
import structlog

from ops import logs
from ops.cli.errors import tell


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def broken() -> Exception:
    """A defect with a traceback."""
    try:
        raise ExceptionGroup("unhandled", [RuntimeError("it is\nbroken")])
    except ExceptionGroup as problem:
        return problem


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


def test_what_does_not_apply_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "console")
    structlog.get_logger().info("delivery.attempted", status=None, park_reason=None, attempt=0)
    told = capsys.readouterr().err
    assert ("None" in told, "attempt=0" in told) == (False, True)


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "console")
    structlog.get_logger().info("quiet")
    assert capsys.readouterr().err == ""


def test_what_nobody_expected_is_one_line_of_a_role_with_its_traceback_as_a_field(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOKYARD_LOG_FORMAT", "json")
    assert tell(broken(), "worker") == 1
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["role"], told["level"]) == ("process.defect", "worker", "critical")
    assert told["problem"] == "RuntimeError: it is broken"
    assert "Traceback" in told["exception"]


def test_what_nobody_expected_is_one_line_of_a_command_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "hookyard: internal error: RuntimeError: it is broken; this is a defect, details: HOOKYARD_LOG_LEVEL=debug"
    assert tell(broken(), "partner") == 1
    assert capsys.readouterr().err.splitlines() == [line]
    monkeypatch.setenv("HOOKYARD_LOG_LEVEL", "debug")
    tell(broken(), "partner")
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == line
    assert any("in broken" in text for text in trace)


def test_a_thread_that_ends_by_a_defect_is_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    problem = broken()
    logs.thread_defect(threading.ExceptHookArgs((type(problem), problem, None, None)))
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "process.defect"
