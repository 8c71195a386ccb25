"""Published programs, each in a virtual environment of its own that is made once and kept."""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest


def interpreter(least):
    """A Python of at least this version, (3, 12) for example; skips the test if there is none."""
    if sys.version_info >= least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(least[1], 15)]
    there = [shutil.which(name) for name in names]
    there += [str(path) for name in names for path in pathlib.Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for found in filter(None, there):
        if subprocess.run([found, "-c", "import venv"], capture_output=True).returncode == 0:
            return found
    pytest.skip(f"there is no Python {least[0]}.{least[1]} or newer")


def installed(*packages, alone=(), seconds=1200, python=None):
    """The bin folder of an environment with these packages, and those of `alone` without what they require, made by
    `python` (this one). Skips the test, with the reason, if they cannot be had."""
    mark = hashlib.sha256("\n".join((sys.version, *packages, *alone, *filter(None, [python]))).encode()).hexdigest()[:12]
    name = re.split(r"[\[=]", packages[0])[0] + "-" + mark
    root = pathlib.Path(os.environ.get("TROUPE_PROGRAMS", pathlib.Path(tempfile.gettempdir()) / f"troupe-{os.getuid()}"))
    place = root / name
    root.mkdir(parents=True, exist_ok=True)
    with open(root / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = root / (name + ".failed") # not tried again for an hour
        if failed.is_file() and time.time() - failed.stat().st_mtime < 3600:
            pytest.skip(failed.read_text())
        if not (place / "whole").is_file():
            try:
                subprocess.run([python or sys.executable, "-m", "venv", str(place)], check=True, capture_output=True, timeout=300)
                for wanted in filter(None, (packages, ["--no-deps", *alone] if alone else ())):
                    subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet",
                                    "--disable-pip-version-check", *wanted],
                                   check=True, capture_output=True, text=True, timeout=seconds)
                (place / "whole").touch()
            except (subprocess.SubprocessError, OSError) as e:
                last = (getattr(e, "stderr", None) or str(e) or "").strip().splitlines()[-1:]
                failed.write_text(f"{', '.join(packages)} cannot be installed: {' '.join(last)}")
                pytest.skip(failed.read_text())
    return place / "bin"
