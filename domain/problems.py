"""A refusal as HTTP tells it: `application/problem+json` (RFC 9457)."""

import json
from dataclasses import dataclass
from http import HTTPStatus

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Problem:
    """`reason` is for programs and stays; `detail` is for people and may change. Neither tells what was sent."""

    status: int
    reason: str
    detail: str

    def document(self) -> bytes:
        """The JSON document. `title` is the status's own phrase, as `about:blank` asks (RFC 9457 section 4.2.1)."""
        title = HTTPStatus(self.status).phrase
        members = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return json.dumps(members | {"reason": self.reason}).encode()
