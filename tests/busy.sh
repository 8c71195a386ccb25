#!/usr/bin/env bash
# Tests on a machine that is busy: the unit tests of the release build, and e2e, with a fifth of one core (20 ms of processor
# time in each 100, by a control group). Run before every release; takes hours. What fails here depends on the clock.
#   tests/busy.sh              both
#   tests/busy.sh COMMAND...   a command, for example build/release/troupe_server_tests -tc="*WebSocket*"
# Needs root, build/release and what ./test.sh e2e installs. SHARE=50 gives half of a core.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# Control groups of version 2, or of version 1, where the quota has two files.
share=${SHARE-20}
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  group=/sys/fs/cgroup/troupe-busy
  echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
  mkdir "$group"
  echo "$((share * 1000)) 100000" >"$group/cpu.max"
else
  group=/sys/fs/cgroup/cpu/troupe-busy
  mkdir "$group"
  echo 100000 >"$group/cpu.cfs_period_us"
  echo $((share * 1000)) >"$group/cpu.cfs_quota_us"
fi
trap 'rmdir "$group"' EXIT

# busy COMMAND...: runs it in the group.
busy() { bash -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@"; }

if [ $# -gt 0 ]; then
  busy "$@"
  exit
fi
status=0
busy ctest --preset release --timeout 14400 || status=1
python=python3
[ ! -x .venv/bin/python ] || python=.venv/bin/python
busy "$python" -m pytest tests/e2e || status=1
exit $status
