"""The command line: `hookyard`. What it says and asks is here; what it does is in storage.

Errors are one line on stderr: exit code 1, or 2 for wrong usage. Nothing heavy is imported before it is needed, so that
a short command stays short.
"""

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Sequence

ROLES = ("ingest", "worker", "jobs", "ops")
UNWRITABLE = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # what writing to stdout meets
GARBAGE = 100_000  # objects between two looks for it: while a command loads there is none, and looking took 20 % of it


def main() -> None:
    """Runs the command of the process's arguments and ends the process with its exit code."""
    if sys.argv[1:2] and sys.argv[1] not in ("up", *ROLES):
        gc.set_threshold(GARBAGE)
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """The exit code of a command; what went wrong is told on stderr."""
    from ops.cli.app import app

    try:
        code = int(app(list(argv), prog_name="hookyard", standalone_mode=False) or 0)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except Exception as problem:  # noqa: BLE001 - the last door: nobody is shown a traceback unasked
        return _failed(problem, argv[0] if argv else "")


def _failed(problem: Exception, command: str) -> int:
    """The exit code of what went wrong, told on stderr; a reader that has had enough is told nothing."""
    from ops.cli.errors import tell

    if not isinstance(problem, OSError) or problem.errno not in UNWRITABLE:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        return tell(problem, command)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still buffered
    if problem.errno != errno.EPIPE:
        print(f"hookyard: the output cannot be written: {problem.strerror}", file=sys.stderr)
    return 1
