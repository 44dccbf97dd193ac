"""A partner: who sends to us, how it proves that, and what is read from its events."""

from dataclasses import dataclass
from typing import Literal

OnBacklogFull = Literal["reject", "accept"]
PartnerState = Literal["active", "paused"]


@dataclass(frozen=True, slots=True)
class Partner:
    """A partner's settings in force. `dedupe`, `type` and `order_key` are sources: `header:NAME`, `json:/pointer`,
    `none`.
    """

    id: int
    name: str
    shard: int
    state: PartnerState
    verify: str
    verify_options: dict[str, str]
    secrets: tuple[str, ...]  # every one that is valid now, newest first
    max_backlog: int
    on_backlog_full: OnBacklogFull
    rate: float | None  # events per second
    max_body: int  # bytes
    dedupe: str
    type: str
    order_key: str
