#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reasoning not written down, recovered from answers (docs/rl.md): the parity of 12 bits, which
# two layers cannot compute at once. The base model has seen texts BITS>SCRATCHPAD=PARITY, of which a
# quarter had the running parity as scratchpad, 5 % of these with a mistake, and the others noise.
# Prompts come with answers alone; the reward is their log-probability after the response. Prints how
# much of an answer's one bit responses tell, before and after; and with answers that are shuffled.
#   bench/rl_parity.sh ORTHANT FOLDER
set -euo pipefail
orthant=$(realpath "${1:?usage: rl_parity.sh ORTHANT FOLDER}")
examples=$(realpath "$(dirname "$0")/../examples")
"$examples/12_rl.sh" "$orthant" "$2/example" >/dev/null 2>&1
cd "$2"
cp example/*.yaml .

texts() { # SEED [VARIABLE]...
  local seed=$1
  shift
  awk -v seed="$seed" "$@" '
    function draw() { state = state * 16807 % 2147483647; return state / 2147483647 }
    BEGIN {
      state = seed * 7919 + 12345
      for (line = 0; line < 20000 * (1 + demonstrations); line++) {
        bits = pad = ""
        parity = written = 0
        useful = draw() < 0.25
        wrong_at = draw() < 0.05 ? int(12 * draw()) : -1
        for (i = 0; i < 12; i++) {
          bit = draw() < 0.5
          parity = (parity + bit) % 2
          written = (written + bit + (i == wrong_at)) % 2
          bits = bits bit
          pad = pad (useful ? written : draw() < 0.5 ? "a" : "b")
        }
        if (shuffled) parity = draw() < 0.5
        if (demonstrations) print "{\"text\": \"" bits ">" pad "=" parity "\"}"
        else print "{\"prompt\": \"" bits ">\", \"answer\": \"=" parity "\"}"
      }
    }'
}
texts 1 -v demonstrations=1 >demonstrations.jsonl
texts 2 >true.jsonl
texts 2 -v shuffled=1 >shuffled.jsonl
"$orthant" tokenize --tokenizer bytes --out demonstrations demonstrations.jsonl >/dev/null 2>&1
model=(--set model.hidden_size=64 --set model.intermediate_size=256 --set threads=1)
[ -d base ] || "$orthant" train base.yaml "${model[@]}" --set batch.global_batch_size=32 --set learning_rate.warmup_steps=50 --set steps=800 >/dev/null 2>&1

# 1 + log2 p(parity | bits, response), the bits of an answer that a response tells: the mean over the
# lines of score.jsonl, N responses to each prompt. The draws of response i are the same for all
# prompts, so the error has two parts: that between prompts and that between draws.
mean() { # NAME CHECKPOINT N
  "$orthant" score "$2" score.jsonl 2>/dev/null | sed 's/.*"sum":\([-0-9.e]*\).*/\1/' | awk -v n="$3" -v name="$1" '
    { bits = 1 + $1 / log(2); total += bits; draw[NR % n] += bits; prompt[int((NR - 1) / n)] += bits }
    function error(parts, count,  i, squares) {
      for (i in parts) squares += (parts[i] * count / NR - total / NR) ^ 2
      return count > 1 ? squares / count / (count - 1) : 0
    }
    END { printf "%-18s %8.4f +- %.4f bits\n", name, total / NR, sqrt(error(draw, n) + error(prompt, NR / n)) }'
}
tell() { # NAME CHECKPOINT ANSWERS
  tail -200 "$3" >some.jsonl
  sed 's/, "answer".*/}/' some.jsonl >ask.jsonl
  "$orthant" sample "$2" --prompts ask.jsonl --n 20 --temperature 1 --max-tokens 12 2>/dev/null >texts.jsonl
  paste -d'\t' texts.jsonl <(awk '{ for (i = 0; i < 20; i++) print }' some.jsonl) |
    awk -F'"' '{ print "{\"context\": \"" $4 $8 "=\", \"continuation\": \"" substr($(NF - 1), 2) "\"}" }' >score.jsonl
  mean "$1" "$2" 20
}
learn() { # ANSWERS
  rm -rf "learned-$1"
  "$orthant" rl rl.yaml "${model[@]}" --set rl.prompts="$1.jsonl" --set rl.validation=null --set rl.reward=answer_logprob \
    --set rl.length_power=0 --set rl.answer_weight=1 --set optimizer.lr=2e-4 --set steps="${UPDATES:-300}" --set output="learned-$1" >"$1.txt" 2>"$1.log"
}
tail -1000 true.jsonl | sed 's/"prompt": \("[01]*>\)", "answer": "=/"context": \1abbabaaababb=", "continuation": "/' >score.jsonl
mean "noise, true" base 1
for answers in true shuffled; do
  tell "before, $answers" base $answers.jsonl
  learn $answers
  tell "after, $answers" learned-$answers $answers.jsonl
done
