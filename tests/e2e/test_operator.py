"""examples/operator: the day of a server, as its README has it."""

import subprocess
import sys

import pytest

from server import ROOT, STORYTELLER, binary


@pytest.mark.skipif(not (STORYTELLER / "config.json").is_file(), reason="the bundled storyteller is absent")
def test_an_operators_day_goes_well():
    ended = subprocess.run([sys.executable, ROOT / "examples" / "operator" / "day.py", binary()], capture_output=True,
                           text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = ended.stdout.splitlines()
    assert len(told) == 6 and "none was torn" in told[4] and " as recorded" in told[5], ended.stdout
