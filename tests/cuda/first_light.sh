#!/usr/bin/env bash
# first_light.sh FOLDER: everything that a GPU has to show, on a machine with the driver, CUDA 13 and PyTorch and
# nothing of ours but the bundle this script lies in (cmake --build --preset release --target troupe_cuda_bundle). Takes
# at most 9 minutes; every step has a timeout of its own, and later steps are left out when the time is used up. FOLDER
# receives the output of each step, NAME.txt, and results.json: an object with the GPU, the library, and the steps'
# exit statuses and seconds. Exit status: 0 if all steps passed, 1 if one failed or was left out, 77 without a GPU.
set -uo pipefail
limit=540 # seconds
results=${1:?first_light.sh FOLDER: the folder for results is missing}
here=$(cd "${BASH_SOURCE[0]%/*}" && pwd) || exit 1
mkdir -p "$results" || exit 1
export TROUPE_CUDA_REQUIRED=1 TROUPE_TEST_DATA=$here/tests/data
declare -a steps=()
gpu=null library=null all=0 last=0

quoted() { # a JSON string
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "${text//[$'\n\r\t']/ }"
}

write_results() {
  local IFS=,
  printf '{"gpu": %s, "library": %s, "seconds": %d, "steps": [%s]}\n' "$gpu" "$library" $SECONDS "${steps[*]-}" \
    >"$results/results.json"
}

# step NAME SECONDS COMMAND...
step() {
  local name=$1 most=$2 status begin=$SECONDS
  shift 2
  local left=$((limit - SECONDS - 10)) # timeout may need ten seconds to kill a program
  if [ $left -lt 5 ]; then
    status=null
    echo "left out, the time is used up: $name"
  else
    [ $left -lt "$most" ] && most=$left
    timeout -k 10 "$most" "$@" >"$results/$name.txt" 2>&1
    status=$?
    echo "$name: exit status $status, $((SECONDS - begin)) s"
  fi
  last=$status
  [ "$status" = 0 ] || all=1
  steps+=("{\"name\": $(quoted "$name"), \"status\": $status, \"seconds\": $((SECONDS - begin)), \"limit\": $most}")
  write_results
}

# 1. The GPU and the library.
if ! command -v nvidia-smi >"$results/nvidia-smi.path" || ! nvidia=$(timeout 20 nvidia-smi -L 2>&1) || [ -z "$nvidia" ]; then
  echo "no GPU: ${nvidia-nvidia-smi was not found}"
  write_results
  exit 77
fi
gpu=$(quoted "${nvidia%%$'\n'*}")
step nvidia-smi 20 nvidia-smi
step find_library 30 "$here/troupe_cuda_tests" --test-case="*cuBLASLt is found*"
while read -r line; do
  [[ $line == cuBLASLt\ *libcublasLt* ]] && library=$(quoted "$line") && echo "$line"
done <"$results/find_library.txt"

# 2, 3. Tests. A skipped case is a failure. What fails runs again without overlapping launches, to see whether they are
# at fault.
step tests 100 "$here/troupe_cuda_tests"
[ "$last" = 0 ] || step tests_serial 100 env TROUPE_CUDA_SERIAL=1 "$here/troupe_cuda_tests"
step decoder_tests 80 "$here/troupe_cuda_decoder_tests"
[ "$last" = 0 ] || step decoder_tests_serial 80 env TROUPE_CUDA_SERIAL=1 "$here/troupe_cuda_decoder_tests"

# 4. Kernels against the peaks of this GPU.
for part in linear attention sampling; do
  step "bench_$part" 60 "$here/troupe_cuda_bench" ${part:0:1}
done

# 5. A model's steps.
model=("$here/troupe" bench model --device cuda:0 --peaks --json --model synthetic:llama-8b)
decode=(--prompt 1024 --generate 64 --batch 1,64 --repeat 1 --step-tokens 4096)
step model_decode 75 "${model[@]}" "${decode[@]}"
for rows in 512 4096; do
  step "model_prefill_$rows" 60 "${model[@]}" --prompt 8192 --generate 1 --batch 1 --repeat 1 --step-tokens $rows
done

# 6. The server, with a CPU's tokens as what they should be.
step serve_storyteller 50 python3 "$here/serve_check.py" "$here/troupe" "$here/share/troupe/storyteller"
step serve_golden 50 python3 "$here/serve_check.py" "$here/troupe" "$here/tests/data/golden/llama-gqa"
step serve_hybrid 50 python3 "$here/serve_check.py" "$here/troupe" "$here/tests/data/golden/llama-gqa" \
  --layers cuda:0=0-1,cpu=2

# 7. What the emulation cannot see.
if sanitizer=$(command -v compute-sanitizer || compgen -G "/usr/local/cuda*/bin/compute-sanitizer"); then
  sanitizer=${sanitizer%%$'\n'*}
  cases="*rms_norm*,*embed*,*blocks*,*staged ahead*,*unified maximum*,*odd vocabularies*"
  for tool in memcheck racecheck; do
    step "$tool" 70 "$sanitizer" --tool $tool --error-exitcode 9 "$here/troupe_cuda_tests" --test-case="$cases"
  done
else
  echo "left out: compute-sanitizer was not found"
  steps+=('{"name": "compute-sanitizer", "status": null, "seconds": 0, "limit": 0}')
  all=1
fi

# 8. Others on the same machine.
step torch_attention 40 python3 "$here/cuda_sdpa.py"
step transformers_decode 60 python3 "$here/transformers_decode.py"

# What overlapping launches gain.
step model_decode_serial 75 env TROUPE_CUDA_SERIAL=1 "${model[@]}" "${decode[@]}"

write_results
exit $all
