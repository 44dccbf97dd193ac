"""What went wrong, in one line, and the exit code it means.

2 is wrong usage: what was typed can never be right here (unknown commands and options, missing ones, a value that is
malformed or outside what is allowed, a --yes that is missing where nobody can be asked). 1 is everything else: what was
typed is refused by what is there (unknown names, taken names, states), or cannot be done now.
"""

import re
import sys
import traceback

import typer
from pydantic import ValidationError

from domain.values import shown
from ops.cli import ROLES
from ops.cli.send import NotAccepted
from ops.processes import CannotStart
from ops.settings import Settings, WrongSetting, load
from storage.errors import BadData, Conflict, Invalid, NotFound, StorageUnavailable
from storage.secrets import CannotOpen

TOLD = (BadData, CannotOpen, CannotStart, Conflict, NotAccepted, NotFound, StorageUnavailable, WrongSetting)
WRONG_USAGE = 2
NUMBER = re.compile(r"Input should be a valid (integer|number).*", re.DOTALL)  # pydantic's words, by way of typer


def tell(problem: Exception, command: str) -> int:
    """The exit code, after one line on stderr: what is wrong, or that nobody expected it.

    A role logs the unexpected, with its traceback as a field; a command shows that at HOOKYARD_LOG_LEVEL=debug.
    """
    known = verdict(problem)
    if known is not None:
        print(known[0], file=sys.stderr)
        return known[1]
    from ops import logs

    settings = _settings()
    if settings is not None and command in ROLES:
        logs.configure(settings.log_level, settings.log_format, role=settings.slot or command)
        logs.defect(problem)
        return 1
    if settings is not None and settings.log_level == "debug":
        traceback.print_exception(problem)
    told = logs.describe(problem)
    print(f"hookyard: internal error: {told}; this is a defect, details: HOOKYARD_LOG_LEVEL=debug", file=sys.stderr)
    return 1


def verdict(problem: Exception) -> tuple[str, int] | None:
    """The line and the exit code; None for what nobody expected."""
    if isinstance(problem, TOLD):
        return f"hookyard: {_line(str(problem))}", 1
    if isinstance(problem, Invalid):
        return f"hookyard: {_line(str(problem))}", WRONG_USAGE
    if isinstance(problem, typer.Abort):
        return "hookyard: nothing was done", 1
    if isinstance(problem, typer.TyperException):
        return _usage(problem), problem.exit_code
    return None


def _usage(problem: typer.TyperException) -> str:
    """One line that names the command and where its usage is told; the help itself where nothing was given."""
    text = _in_our_words(problem).removeprefix("Invalid value: ")
    context = getattr(problem, "ctx", None)
    if text.startswith("Usage:"):
        return text
    command = context.command_path if context else "hookyard"
    reason = _line(text).replace("Value error, ", "").rstrip(".")
    reason = reason[:1].lower() + reason[1:]
    return f"{command}: {reason} (see {command} --help)"


def _in_our_words(problem: typer.TyperException) -> str:
    """The message; of a text that is no number it says which text."""
    text = problem.format_message()
    told = NUMBER.search(text)
    if told is None or not isinstance(problem.__cause__, ValidationError):
        return text
    given = shown(str(problem.__cause__.errors()[0]["input"]))
    return f"{text[: told.start()]}{given} is no {'whole number' if told[1] == 'integer' else 'number'}"


def _settings() -> Settings | None:
    try:
        return load()
    except WrongSetting:
        return None


def _line(text: str) -> str:
    return " ".join(text.split())
