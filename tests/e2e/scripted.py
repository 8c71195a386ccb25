"""Models whose answers are written down (tests/data/make_scripted.py), for tests."""

import sys

from server import ROOT

sys.path.insert(0, str(ROOT / "tests" / "data"))

from make_scripted import SCRIPTS, prompt_of, write_folder, write_gguf # noqa: E402, F401

SCRIPTED = ROOT / "tests" / "data" / "scripted"
