"""Published programs, each in a virtual environment of its own that is made once and kept."""

import fcntl
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import pytest


def installed(*packages, alone=(), seconds=300):
    """The bin folder of an environment with these packages, and those of `alone` without what they require. Skips the test,
    with the reason, if they cannot be had."""
    mark = hashlib.sha256("\n".join((sys.version, *packages, *alone)).encode()).hexdigest()[:12]
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
                subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True, timeout=60)
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
