"""`make test-browser`: brings Chromium where it may, and runs these tests; where there is no browser it says so."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

INSTALL = (
    ["apt-get", "update", "-qq"],
    ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"],
)


def main() -> int:
    """The exit code."""
    if importlib.util.find_spec("playwright") is None:
        return skip("the driver (playwright) is not installed")
    if shutil.which("chromium") is None and not install():
        return skip("there is no Chromium, and it cannot be installed here")
    return subprocess.call([sys.executable, "-m", "pytest", "-n0", "tests/browser", *sys.argv[1:]])


def install() -> bool:
    """Chromium is there, from Debian's packages."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print("installing chromium (once)", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = all(subprocess.call(command, env=quiet, stdout=subprocess.DEVNULL) == 0 for command in INSTALL)
    return done and shutil.which("chromium") is not None


def skip(why: str) -> int:
    """One line, and nothing has failed."""
    print(f"browser tests skipped: {why}")
    return 0


sys.exit(main())
