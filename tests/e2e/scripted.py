"""Models whose answers are written down (tests/data/make_scripted.py), for tests."""

import sys

from server import ROOT

sys.path.insert(0, str(ROOT / "tests" / "data"))

from make_scripted import SCRIPTS, prompt_of, write_folder, write_gguf # noqa: E402, F401

# Text that a guide forces comes in tokens of its own, so what stands under a guide must be one piece.
WHOLE = {key: ["".join(pieces)] if "{" in pieces[0] else pieces for key, pieces in SCRIPTS.items()}
SCRIPTED = ROOT / "tests" / "data" / "scripted"
