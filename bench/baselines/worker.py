"""An rq worker as `rq worker` starts it: a process per job."""

from __future__ import annotations

from rq import Worker

from bench.baselines.app import queue

if __name__ == "__main__":
    Worker([queue()], connection=queue().connection).work(logging_level="ERROR")
