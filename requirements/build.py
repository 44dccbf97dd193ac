"""Brings .venv to what a lock file says: `python3 requirements/build.py run|dev`.

Runs on the machine's own Python, before anything is installed, so it uses the standard library only and stays readable
by every Python 3: a Python that is too old is told so instead of meeting a syntax error. Nothing happens when .venv
already matches; two builds at once wait for each other.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")

# A shebang line holds neither spaces nor long paths; this file is a shell script to the kernel and a module to Python.
LAUNCHER = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys

from ops.cli import main

sys.exit(main())
"""


def main(kind):
    if sys.version_info < OLDEST:
        become_a_newer_python()
    with locked(os.path.join(ROOT, "requirements")):
        wanted = fingerprint(kind)
        if is_built(kind, wanted) or (kind == "run" and is_built("dev", fingerprint("dev"))):
            return
        print("building .venv from requirements/%s.txt (once; about a minute)" % kind, flush=True)
        if not venv_works():
            create_venv()
        install_lock(kind)
        install_checkout()
        replace_file(stamp(kind), wanted)


def become_a_newer_python():
    for minor in (13, 12, 11, 14):
        other = shutil.which("python3.%d" % minor)
        if other and subprocess.call([other, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(other, [other, *sys.argv])
    given = "%d.%d" % sys.version_info[:2]
    sys.exit("hookyard needs Python 3.11 or newer; %s is %s (choose with: make PYTHON=...)" % (sys.executable, given))


@contextlib.contextmanager
def locked(directory):
    """Holds the directory's lock; the operating system gives it back however this process ends."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def fingerprint(kind):
    """Changes when the lock, the project, this file or the checkout's place changes."""
    digest = hashlib.sha256(ROOT.encode())
    for name in ("requirements/%s.txt" % kind, "pyproject.toml", "requirements/build.py"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def stamp(kind):
    return os.path.join(VENV, "hookyard-%s.stamp" % kind)


def is_built(kind, wanted):
    try:
        with open(stamp(kind)) as file:
            return file.read() == wanted
    except OSError:
        return False


def venv_works():
    try:
        return subprocess.call([VENV_PYTHON, "-c", "import pip"], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def create_venv():
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        sys.exit("this Python cannot make virtual environments (Debian, Ubuntu: apt-get install python3-venv)")
    run([sys.executable, "-m", "venv", "--clear", VENV])


def install_lock(kind):
    lock = os.path.join(ROOT, "requirements", kind + ".txt")
    options = ["--require-hashes", "--no-deps", "--quiet", "--no-input", "--disable-pip-version-check"]
    run([VENV_PYTHON, "-m", "pip", "install", *options, "-r", lock])


def install_checkout():
    """The checkout itself is importable, has a version, and `.venv/bin/hookyard` runs it: no build backend involved."""
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([VENV_PYTHON, "-c", script], env=environment()).decode().strip()
    replace_file(os.path.join(packages, "hookyard.pth"), ROOT + "\n")
    version = project_version()
    for name in os.listdir(packages):
        if name.startswith("hookyard-") and name.endswith(".dist-info"):
            shutil.rmtree(os.path.join(packages, name))
    info = os.path.join(packages, "hookyard-%s.dist-info" % version)
    os.mkdir(info)
    replace_file(os.path.join(info, "METADATA"), "Metadata-Version: 2.1\nName: hookyard\nVersion: %s\n" % version)
    launcher = os.path.join(VENV, "bin", "hookyard")
    replace_file(launcher, LAUNCHER.format(python=VENV_PYTHON), 0o755)


def project_version():
    import tomllib

    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return tomllib.load(file)["project"]["version"]


def replace_file(path, text, mode=0o644):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path + ".new", mode)
    os.rename(path + ".new", path)


def environment():
    """Settings that would make pip install somewhere else, or Python import from somewhere else, are left out."""
    ours = {"PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def run(command):
    code = subprocess.call(command, env=environment())
    if code:
        sys.exit("building .venv failed (exit code %d): %s" % (code, " ".join(command)))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("run", "dev"):
        sys.exit("usage: python3 requirements/build.py run|dev")
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
