"""Stand-ins for the roles, so that the supervisor is tested by itself: `python stand_in_roles.py ROLE`.

`up` runs the supervisor with these stand-ins. ingest and ops answer every GET with 200 and their slot on the inherited
socket; worker and jobs wait; all end on SIGTERM and say so on stdout. `FAILING` in the environment names a role that
ends at once.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def serve(descriptor: int) -> None:
    listening = socket.socket(fileno=descriptor)
    body = os.environ["HOOKYARD_SLOT"].encode()
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


def main(role: str) -> int:
    if role == "up":
        from ops.settings import load
        from ops.supervisor import run_up

        return run_up(load(), lambda name: [sys.executable, __file__, name])
    if role in os.environ.get("FAILING", "").split(","):
        return 3
    if role == "migrate":
        os.write(1, b"migrated\n")
        return 0

    def end(_number: int, _frame: object) -> None:
        os.write(1, f"{os.environ['HOOKYARD_SLOT']} stopped\n".encode())  # one write: lines of others stay whole
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if role in ("ingest", "ops"):
        serve(int(os.environ[f"HOOKYARD_{role.upper()}_FD"]))
    while True:
        time.sleep(60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
