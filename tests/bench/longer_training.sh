#!/usr/bin/env bash
# "The more trained, the more quantisation hurts" (Ouyang et al. 2024, Kumar et al. 2024): trains a storyteller of 0.09 M rounded
# weights (n1 of the k-bit law) on 32 million tokens, keeps it after 0.5, 1.5, 4.5, 12 and 32, and rounds each to 8, 4 and 3 bits.
#   tests/bench/longer_training.sh FOLDER [PICTURE.svg]
# Takes about an hour of one core. Needs torch, transformers, tokenizers, safetensors and, for the picture, matplotlib in
# PYTHON (python3). What is in FOLDER already is not made again. TROUPE names the program (build/release/troupe).
set -euo pipefail
mkdir -p "$1"
folder=$(readlink -f "$1") picture=${2:+$(readlink -m "$2")}
cd "$(dirname "$(readlink -f "$0")")/../.."
python=${PYTHON-python3} storyteller=examples/storyteller

# chats SEED COUNT FILE: as few_bits.py has them
chats() {
  [ -e "$3" ] && return
  "$python" $storyteller/make_corpus.py --count "$2" --seed "$1" --out "$folder/chats.jsonl"
  "$python" - "$folder/chats.jsonl" >"$3" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    turns = json.loads(line).get("messages", [])
    chat = "".join(f"<|im_start|>{m['role']}\n{m['content'].strip()}<|im_end|>\n" for m in turns)
    print("<|begin_of_text|>" + chat if chat else "", end="")
PYTHON
}
chats held-out 150 "$folder/held-out.txt"
chats calibration 400 "$folder/calibration.txt"

tokens=(500000 1500000 4500000 12000000 32000000)
if [ ! -e "$folder/small-32000000" ]; then
  "$python" $storyteller/make_corpus.py --count 150000 --seed trained --out "$folder/corpus.jsonl"
  "$python" $storyteller/train.py --corpus "$folder/corpus.jsonl" --tokenizer $storyteller/model --batch 2048 --lr 4e-3 --warm-up 50 \
    --longest 320 --copy-weight 1 --tokens 32e6 --seed 5 --threads 1 --hidden 64 --layers 2 --heads 2 --kv-heads 1 --ffn 160 \
    --keep "${tokens[@]}" --out "$folder/small"
fi
"$python" tests/bench/k_bit_law.py "${TROUPE-build/release/troupe}" "${tokens[@]/#/$folder/small-}" --by tokens --context 128 \
  --text "$folder/held-out.txt" --calibration "$folder/calibration.txt" ${picture:+--picture "$picture"}
