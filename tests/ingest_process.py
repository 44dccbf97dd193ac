"""An ingest process for tests: `python tests/ingest_process.py DATABASE_URL REDIS_URL FD DRAIN_SECONDS`."""

import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

MASTER_KEY = b"k" * 32

if __name__ == "__main__":
    from ingest.limits import Limits
    from ingest.server import IngestConfig, run

    database_url, redis_url, fd, drain = sys.argv[1:]
    limits = Limits(drain_seconds=int(drain))
    uvloop.run(run(IngestConfig(database_url, redis_url, [MASTER_KEY], fd=int(fd), limits=limits)))
