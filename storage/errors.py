"""What storage raises, named for the fact; psycopg's and redis's own exceptions do not leave this folder."""

import psycopg


class StorageUnavailable(Exception):
    """The database did not do it, or did not say whether it did: away, stopping, read-only, full, locked, too slow."""


class Locked(StorageUnavailable):
    """Another transaction holds what it needs for longer than it may wait; nothing was changed."""


class BadData(Exception):
    """The database refuses a value of this item; the same item alone would fail again."""


class LeaseLost(Exception):
    """This worker's lease was taken over; nothing was changed."""


class NotFound(Exception):
    """No such partner, destination, subscription or event."""


class Conflict(Exception):
    """It would contradict what is there, e.g. a name that is taken."""


class Invalid(ValueError):
    """A value outside what is allowed; the message says which, what was given, what is allowed."""


LEASE_LOST = "HY001"  # the SQLSTATE that the functions of storage/sql raise


def translate(problem: psycopg.Error) -> Exception:
    """The domain's name for a database error. What is neither lost lease nor bad data may pass if tried again."""
    if problem.sqlstate == LEASE_LOST:
        return LeaseLost(str(problem).splitlines()[0])
    if isinstance(problem, psycopg.DataError) or (
        isinstance(problem, psycopg.IntegrityError) and problem.diag.constraint_name is not None
    ):
        return BadData(str(problem).splitlines()[0])
    unavailable = Locked if isinstance(problem, psycopg.errors.LockNotAvailable) else StorageUnavailable
    return unavailable(f"database: {first_line(problem)}")


def first_line(problem: BaseException) -> str:
    """An error's text on one line, or its type where it has none."""
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__
