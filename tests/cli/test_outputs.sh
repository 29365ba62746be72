#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Destination of results, verb by verb: user-named files (links stay, a special
# file is written to and never replaced), standard output, closed pipes.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_outputs.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,
  num_attention_heads: 2, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 2}
steps: 3
threads: 1
output: run
YAML
"$orthant" tokenize --tokenizer bytes --out train "$source_dir/LICENSE" >/dev/null
"$orthant" train run.yaml 2>talk.txt
plan=("$orthant" plan --model gpt2 --cluster h100 --gpus 4 --tp 1 --pp 1 --cp 1 --top 1)

# ---- output of a run: a line per step, a summary, memory in one unit ----
says() { grep -q -- "$1" talk.txt || { cat talk.txt; fail "training does not print $1"; }; }
says ', arena planned [0-9.]* kB$'
says '^step 3/3 100.0%  loss [0-9.]*  gnorm [0-9.]*  .* tok/s  eta 0s  peak [0-9.]* MB resident  lr [0-9.e-]*  [0-9.]* m*s/step$'
says '^3 steps, 384 tokens in [0-9.]* m*s, [0-9.k]* tok/s after the first step; loss [0-9.]* at first, [0-9.]* at last$'
says '^memory: arena planned [0-9.]* MB, process resident [0-9.]* MB at most$'
says '^checkpoint: .*/run/checkpoints/step-00000003$'
says 'never measured; after `orthant bench`, runs show MFU and predicted times$'
"$orthant" train run.yaml --set cluster=h100 --set output=priced 2>talk.txt
says '  MFU [0-9.]*% (plan [0-9.]*%)  peak '
grep 'never measured' talk.txt && fail "a run on a known cluster asks for measurements"

# ---- singular and plural ----
"$orthant" tokenize --tokenizer bytes --out single run.yaml >talk.txt
says ' tokens in 1 document from 1 file$'
"$orthant" train run.yaml --dry-run --set batch.micro_batch_size=4 --set steps=1 --set output=dry 2>talk.txt
says '^1 step, 128 tokens; first step: 4 sequences of 32 in 1 micro-batch, '

# ---- user-named files ----
# writes COMMAND...: the command, with FILE in place of an output: through a link, into a FIFO, and
# into devices. Devices are also links: a fault here damages no device of the machine.
writes() {
  local here
  rm -rf target link fifo full none
  ln -s target link
  "${@//FILE/link}" >out.txt 2>err.txt || { cat err.txt; fail "$* through a link"; }
  [ -L link ] && [ -s target ] || fail "$* replaced a link"
  mkfifo fifo
  timeout 60 cat fifo >got &
  here=$!
  "${@//FILE/fifo}" >out.txt 2>err.txt || { cat err.txt; fail "$* into a FIFO"; }
  wait "$here" || fail "$* wrote nothing into a FIFO"
  [ -p fifo ] && [ -s got ] || fail "$* replaced a FIFO"
  ln -s /dev/full full
  expect "$code_when_full" "No space left on device (full)" "${@//FILE/full}"
  [ -L full ] && [ -c /dev/full ] || fail "$* replaced a device"
  ln -s /dev/null none
  "${@//FILE/none}" >out.txt 2>err.txt || { cat err.txt; fail "$* into /dev/null"; }
  [ -L none ] && [ -c /dev/null ] || fail "$* replaced a device"
}
code_when_full=3
writes "${plan[@]}" --html FILE
writes "${plan[@]}" --trace FILE
writes "${plan[@]}" --emit run=FILE
writes "$orthant" simulate run.yaml --cluster h100 --trace FILE
code_when_full=0  # a trace does not end a run
writes "$orthant" train run.yaml --resume never --set output=traced-FILE --trace FILE:1-2

ln -s shard.bin linked.bin
ln -s shard.idx linked.idx
"$orthant" tokenize --tokenizer bytes --out linked run.yaml >/dev/null
[ -L linked.bin ] && [ -L linked.idx ] && [ -s shard.bin ] && [ -s shard.idx ] || fail "tokenize replaced a link"
"$orthant" tokenize --tokenizer bytes --out linked run.yaml >/dev/null
[ -L linked.idx ] || fail "tokenize replaced a link to an existing index"
mkfifo fifo.idx
expect 3 "the index is read back" "$orthant" tokenize --tokenizer bytes --out fifo run.yaml
ln -s learned.json tokenizer.json
learn=("$orthant" tokenize --train-vocab 260 --tokenizer)
"${learn[@]}" tokenizer.json --out learned run.yaml >/dev/null
[ -L tokenizer.json ] && [ -s learned.json ] || fail "tokenize replaced a link to a tokenizer"
expect 3 "the trained tokenizer must be read back (fifo)" "${learn[@]}" fifo --out learned run.yaml
ln -s exported dangling
"$orthant" convert run dangling >/dev/null 2>&1
[ -L dangling ] && [ -s exported/model.safetensors ] || fail "convert replaced a link"
expect 2 "already exists (fifo)" "$orthant" convert run fifo

# ---- output sent to standard output by name is the only content there ----
"${plan[@]}" --html /dev/stdout | tail -1 | found '^</html>' || fail "a report after a page"
"${plan[@]}" --html /dev/stdout >page.html
[ "$(head -c 15 page.html)" = '<!DOCTYPE html>' ] && tail -1 page.html | found '</html>' || fail "no page in a file"
expect 2 "both print on stdout" "${plan[@]}" --html /dev/stdout --json

# ---- every verb gives one JSON document ----
python=$(command -v python3) || fail "no python3 to parse JSON"
json() {  # json EXPRESSION COMMAND...: stdout is one document d for which EXPRESSION holds
  local expression=$1
  shift
  "$@" --json >out.json 2>err.txt || { cat err.txt; fail "$* --json"; }
  "$python" -c 'import json, sys
def refuse(word): raise ValueError(word + " is no JSON")
d = json.load(open("out.json"), parse_constant=refuse)
sys.exit(not ('"$expression"'))' || { head -c 2000 out.json; fail "$* --json: not $expression"; }
}
json 'd["plans"][0]["step_seconds"] > 0' "${plan[@]}"
json 'd["ranks"] == 1 and d["memory"]["peak"] > 0' "$orthant" simulate run.yaml --cluster h100
json 'd["steps"] == 3 and d["tokens"] == 384 and d["seconds"] > 0 and d["first_loss"] > d["last_loss"] > 0
  and d["checkpoint"].endswith("step-00000003") and d["memory_peak_bytes"] > d["memory_planned_bytes"] > 0' \
  "$orthant" train run.yaml --set output=again
json 'd["steps"] == 0 and d["first_loss"] is None' "$orthant" train run.yaml --set output=again
json 'd["parameters"] > 0 and d["ranks"] == 2 and d["command"].startswith("orthant train run.yaml --set")
  and sum(v for k, v in d["memory"].items() if k not in ("peak", "rank", "machine")) == d["memory"]["peak"]
  and d["step_seconds"] is None and d["steps"] == 3 and d["checkpoint_bytes"] > 0' \
  "$orthant" train run.yaml --dry-run --ranks 2 --set parallel.pp=2 --set output=dry
json 'd["cluster"] == "h100" and d["step_seconds"] > 0 and d["mfu"] > 0 and d["exposed_seconds"]["dp"] >= 0' \
  "$orthant" train run.yaml --dry-run --set cluster=h100 --set output=dry
json '{"key": "optimizer.betas", "type": "number", "list": True, "default": [0.9, 0.95]}.items() <=
  [k for k in d["keys"] if k["key"] == "optimizer.betas"][0].items()' "$orthant" config --example
json 'd["default"] == 64 and d["unit"] == "sequences"' "$orthant" config --explain batch.global_batch_size
json 'd["config"]["steps"] == 3' "$orthant" config run.yaml
json 'len(d["models"]) > 10' "$orthant" presets
json 'd["config"]["n_layer"] == 12' "$orthant" presets gpt2
json 'd["processor"]["cores"] > 0' "$orthant" doctor
json 'any(t["op"] == "embedding" for s in d["segments"] for t in s["tasks"]) and d["arena_bytes"] > 0
  and all(0 <= e["segment"] < len(d["segments"]) for o in d["orders"] for e in o["entries"])' \
  "$orthant" schedule run.yaml
json 'd["programs"][0]["ops"][0]["part"] == "F"' "$orthant" schedule run.yaml --programs
json 'd["tokens"] > 100' "$orthant" tokenize --tokenizer bytes --out third run.yaml
json 'd["tokens"] > 100' "$orthant" data inspect third
json 'd[0]["document"] == 0 and "model_type" in d[0]["text"]' "$orthant" data decode third
json 'd["tensors"] > 0 and d["bytes"] > 0' "$orthant" convert run converted
json 'len(d["tokens"]) <= 4' "$orthant" sample run --prompt a --max-tokens 4
printf '{"text": "abc"}\n{"context": "a", "continuation": "bc"}\n' >lines.jsonl
json 'len(d["scores"]) == 2 and len(d["scores"][1]["logprobs"]) == 2' "$orthant" score run lines.jsonl
json 'd["verdict"] == "clean"' "$orthant" audit causality run.yaml
for verb in $("$orthant" | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
  case $verb in help | completion) continue ;; esac
  "$orthant" help "$verb" >help.txt  # no pipe: grep ends at the first match
  grep -q -- '--json' help.txt || fail "$verb: no JSON"
done

# ---- a closed pipe ends a verb silently; files and training are completed ----
mkfifo gone
exec 4<>gone 5>gone 4>&-  # 5: a pipe without a reader
leaves() {  # leaves COMMAND...
  local got=0
  "$@" >&5 2>err.txt || got=$?
  [ "$got" = 141 ] || { cat err.txt; fail "$* ended with $got after its reader closed the pipe"; }
  grep '^error\|^help' err.txt && fail "$* printed an error after its reader closed the pipe"
  return 0
}
leaves "$orthant"
leaves "${plan[@]}" --html late.html
tail -1 late.html | found '^</html>' || fail "a page is not complete"
leaves "$orthant" plan --model llama3-8b --cluster h100 --gpus 1 --tp 1
leaves "$orthant" sample run --prompt a --max-tokens 20000
printf '{"text": "abc"}\n' >lines.jsonl
leaves "$orthant" score run lines.jsonl
"$orthant" train run.yaml --set output=unheard >&5 2>&5 || fail "training ended with $? after its reader closed the pipe"
[ "$(wc -l <unheard/metrics.jsonl)" = 3 ] || fail "training stopped after its reader closed the pipe"
expect 3 "cannot write the result" sh -c "$orthant presets >/dev/full"
expect 3 "cannot write the result" sh -c "$orthant presets >&-"
