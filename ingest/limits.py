"""What one ingest process takes on at most; beyond it a sender is told to come back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults suit one process on a small machine. `max_body` is the partner's and not here."""

    connections: int = 8192
    in_flight: int = 2000  # POSTs being verified and committed; one still uploading holds no place
    body_bytes: int = 256 << 20  # of all bodies in memory together
    head_bytes: int = 64 << 10  # request line and headers; Apache's and nginx's defaults sum up to about as much
    head_seconds: float = 10.0  # from the first byte (or the connection) to the end of the headers
    body_seconds: float = 30.0  # after which a body must have come at `body_rate` so far
    body_rate: int = 1024  # bytes per second
    keep_alive_seconds: int = 75  # longer than the 60 s for which load balancers keep idle connections
    drain_seconds: int = 10  # for requests begun before a stop
