#!/usr/bin/env bash
# Runs the published programs that CI leaves out (test_heavy_programs.py). Their environments take 14 GB, are made in
# $TROUPE_PROGRAMS on first use (some ten minutes) and kept. Arguments are pytest's, for example -k aider.
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
exec "${PYTHON:-.venv/bin/python}" -m pytest --programs tests/e2e/test_heavy_programs.py "$@"
