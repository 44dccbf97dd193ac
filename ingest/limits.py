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
    body_rate: int = 1024  # bytes per second that a body has to come at
    patience_seconds: float = 8.0  # that a body may fall behind it; longer than TCP takes to repeat a lost packet twice
    answer_seconds: float = 30.0  # in which a sender has to fetch what it was answered
    keep_alive_seconds: int = 75  # longer than the 60 s for which load balancers keep idle connections
    drain_seconds: float = 10.0  # for requests begun before a stop


SIDE = Limits(connections=128, head_seconds=5.0)
"""Of the door for health and metrics."""
