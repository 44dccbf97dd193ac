"""The command line: `hookyard`. What it says and asks is here; what it does is in storage.

Errors are one line on stderr: exit code 1, or 2 for wrong usage. Nothing heavy is imported before it is needed, so that
a short command stays short.
"""

import os
import sys
from collections.abc import Sequence

ROLES = ("up", "ingest", "worker", "jobs", "ops")  # they log for themselves: a defect shows its traceback


def main() -> None:
    """Runs the command of the process's arguments and ends the process with its exit code."""
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
    except BrokenPipeError:  # whoever read has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as problem:
        from ops.cli.errors import verdict

        told = verdict(problem)
        if told is None and argv[:1] and argv[0] in ROLES:
            raise
        text, code = told or (f"hookyard: this is a defect: {type(problem).__name__}: {problem}", 1)
        sys.stdout.flush()
        print(text, file=sys.stderr)
        return code
