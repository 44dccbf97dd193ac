"""The endpoint, served as its documentation says: `server PORT`."""

from __future__ import annotations

import sys

import uvicorn

if __name__ == "__main__":
    uvicorn.run("bench.baselines.app:app", port=int(sys.argv[1]), log_level="error")
