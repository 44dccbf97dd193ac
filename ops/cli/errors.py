"""What went wrong, in one line, and the exit code it means."""

import typer

from ops.cli.send import NotAccepted
from ops.processes import CannotStart
from ops.settings import WrongSetting
from storage.errors import BadData, Conflict, Invalid, NotFound, StorageUnavailable
from storage.secrets import CannotOpen

TOLD = (BadData, CannotOpen, CannotStart, Conflict, Invalid, NotAccepted, NotFound, StorageUnavailable, WrongSetting)
WRONG_USAGE = 2


def verdict(problem: Exception) -> tuple[str, int] | None:
    """The line and the exit code; None for what nobody expected."""
    if isinstance(problem, TOLD):
        return f"hookyard: {_line(str(problem))}", 1
    if isinstance(problem, typer.Abort):
        return "hookyard: nothing was done", 1
    if isinstance(problem, typer.TyperException):
        return _usage(problem), problem.exit_code
    return None


def _usage(problem: typer.TyperException) -> str:
    """One line that names the command and where its usage is told; the help itself where nothing was given."""
    text = problem.format_message().removeprefix("Invalid value: ")
    context = getattr(problem, "ctx", None)
    if text.startswith("Usage:"):
        return text
    command = context.command_path if context else "hookyard"
    reason = _line(text).replace("Value error, ", "").rstrip(".")
    reason = reason[:1].lower() + reason[1:]
    return f"{command}: {reason} (see {command} --help)"


def _line(text: str) -> str:
    return " ".join(text.split())
