#!/usr/bin/env bash
# Runs the published programs that CI leaves out (those that are marked so). Their environments take 14 GB, are made in
# $TROUPE_PROGRAMS on first use (some ten minutes) and kept. Arguments are pytest's, for example -k aider.
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
exec "${PYTHON:-.venv/bin/python}" -m pytest --programs -m programs tests/e2e "$@"
