#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Names of clusters, devices, pools, engines, models and paths that hold commands,
# quotes, line breaks and comments: in whatever is written they stay names. Scripts run and leave no
# mark, files parse to the name where Python has a parser.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_hostile_names.sh ORTHANT}")
web=$PWD/web presets=$PWD/presets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user
python=$(command -v python3 || true)
parses() {  # parses MODULE CODE FILE...: where Python has the parser
  [ -n "$python" ] && "$python" -c "import $1" 2>/dev/null || return 0
  "$python" -c "import $1, sys; $2" "${@:3}" || fail "$1 does not read $3"
}

# Each name as a string of JSON. "mark" is what a command would leave.
names=('a\ntouch mark #' '\r\ntouch mark\r$(touch mark)`touch mark`' "'; touch mark; '"'\"; touch mark; \"'  ']]; touch mark # b: [c'
  '\u2028touch mark\u2029touch mark\u0085touch mark' '\\\nEND\ntouch mark\ncat <<END'
  '#SBATCH --wrap=x\n#SBATCH --wrap=touch %s%n%d {ranks} $1 ${HOME}\u007f\u001b[2J\u202e')
# A name longer than any buffer.
names+=("$(printf 'x%.0s' {1..6000})\ntouch mark")

# Programs that scripts start: one that fails, so that nothing else runs.
mkdir bin empty
for program in orthant torchrun scontrol srun mpirun; do printf '#!/bin/sh\nexit 0\n' >bin/$program; done
chmod +x bin/*

run_script() {  # run_script FILE INTERPRETER: neither its text nor what it writes leaves a mark
  bash -n "$1" || { cat "$1"; fail "$1 is no script"; }
  (cd empty && PATH=$work/bin:/usr/bin:/bin timeout 20 "$2" "../$1" data tokenizer >/dev/null 2>&1) || true
  [ -z "$(find . -name mark)" ] || { cat "$1"; fail "$1 ran a command of the name $name"; }
}
same_lines() {  # same_lines FILE: as many lines as with a harmless name
  [ "$(wc -l <"$1")" = "$(wc -l <"plain.$1")" ] || { cat "$1"; fail "$1 has other lines with the name $name"; }
}

config='"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256'
write_all() {  # write_all NAME: a file of each kind
  local name=$1
  sed "s|^name: .*||; s|^device: .*||" "$presets/clusters/h100.yaml" >c.yaml
  printf 'name: "%s"\ndevice: "%s"\n' "$name" "$name" >>c.yaml
  local options=(--model m --cluster c.yaml --gpus 16 --global-batch-size 32 --sequence-length 256 --top 1
    --tp 1 --pp 1 --cp 1 --micro-batch-size 1 --zero 1)
  local kind software
  for kind in run mpirun sbatch mpijob; do
    "$orthant" plan "${options[@]}" --emit $kind=$kind >/dev/null 2>err.txt || { cat err.txt; fail "no $kind for $name"; }
  done
  for software in megatron:megatron-core deepspeed:deepspeed nanotron:nanotron; do
    sed '/^name: /d' "$presets/engines/${software#*:}.yaml" >e.yaml
    printf 'name: "%s"\n' "$name" >>e.yaml
    "$orthant" plan "${options[@]}" --engine ./e.yaml --emit ${software%:*}=${software%:*} >/dev/null 2>err.txt ||
      { cat err.txt; fail "no ${software%:*} for $name"; }
  done
  "$orthant" plan "${options[@]}" --engine ./e.yaml --emit run=other.yaml >/dev/null
}

mkdir m
printf '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], %s}' "$config" >m/config.json
write_all harmless
for file in run mpirun sbatch mpijob megatron deepspeed nanotron other.yaml; do mv $file plain.$file; done
for name in "${names[@]}"; do
  write_all "$name"
  run_script mpirun sh
  run_script sbatch bash
  for script in megatron deepspeed nanotron; do run_script $script bash; done
  for file in run mpirun sbatch mpijob megatron deepspeed nanotron other.yaml; do same_lines $file; done
  parses yaml 'assert yaml.safe_load(open(sys.argv[1]))["kind"] == "MPIJob"' mpijob
  parses yaml 'assert "parallel" in yaml.safe_load(open(sys.argv[1]))' run
  "$orthant" config run --set data.train=x >/dev/null || fail "run is no RUN.yaml with the name $name"
done

# The name of a folder is a model's name, a title and a path. File names have no zero and no '/'.
for name in $'a\ntouch mark #' "it's \$(touch mark)" 'No' '1e3' '---' 'x: y # z' "$(printf 'y%.0s' {1..200})"; do
  mkdir -p "./$name"
  cp m/config.json "./$name"
  "$orthant" plan --model "./$name" --cluster h100 --gpus 2 --global-batch-size 8 --sequence-length 256 --top 1 --tp 1 --pp 1 --cp 1 \
    --emit mpijob=mpijob >/dev/null
  "$orthant" plan --model "./$name" --cluster h100 --gpus 2 --global-batch-size 8 --sequence-length 256 --top 1 --tp 1 --pp 1 --cp 1 \
    --emit sbatch=sbatch --json >plan.json
  run_script sbatch bash
  parses json 'json.loads(open(sys.argv[1], errors="surrogateescape").read())' plan.json
  parses yaml 'import re; n = yaml.safe_load(open(sys.argv[1]))["metadata"]["name"]
assert isinstance(n, str) and re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", n), n' mpijob
  grep -qE '^#SBATCH --job-name=[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$' sbatch || fail "no name for Slurm from $name"
done

# The launch line of a run.
for i in $(seq 40); do echo "a text of line $i"; done >text.txt
"$orthant" tokenize --tokenizer bytes --out train text.txt 2>/dev/null >&2
mkdir "it's a \$(touch mark)"
cat >"it's a \$(touch mark)/run.yaml" <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1,
  num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 64}
data: {train: ../train, validation: ../train, validation_tokens: 64, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 2, micro_batch_size: 2}
optimizer: {lr: 1e-3}
learning_rate: {decay: constant}
steps: 3
threads: 1
YAML
run="it's a \$(touch mark)/run.yaml"
"$orthant" train "$run" --dry-run --json --set "output=o'; touch mark #" >dry.json 2>/dev/null
command=$("$orthant" train "$run" --dry-run --set "output=o'; touch mark #" 2>&1 | sed -n 's/.*\(orthant train .*\)/\1/p' | tail -1)
# As a shell reads it: the words that were given.
printf '#!/bin/sh\nprintf "<%%s>" "$@" >words\n' >bin/orthant
PATH=$work/bin:/usr/bin:/bin sh -c "$command"
[ "$(cat words)" = "<train><$run><--set><output=o'; touch mark #>" ] || { cat words; fail "the launch line has other words"; }
[ -z "$(find . -name mark)" ] || fail "the launch line ran a command"

# Files of a ledger hold paths and settings as YAML, not as lines.
"$orthant" ledger init "$run" --ledger l >/dev/null 2>err.txt || { cat err.txt; fail "no ledger"; }
"$orthant" config "l/$(sed -n 's/^base: "\(.*\)"$/\1/p' l/policy.yaml)" >/dev/null || fail "the base of a ledger is not found"
"$orthant" ledger add one --ledger l --set $'optimizer.lr=2e-3\n' --note $'a\nprogram: ./mark' >/dev/null 2>err.txt ||
  { cat err.txt; fail "no change"; }
[ "$(grep -c '^program' l/changes/one.yaml)" = 0 ] || { cat l/changes/one.yaml; fail "a note became a key"; }

# The page's command line, where node runs its scripts.
if command -v node >/dev/null; then
  { echo 'const textOf = () => "{\"state\": {\"model\": \"m\"}}", parts = {};'; cat "$web/job.js" "$web/state.js"; cat <<'JS'
const state = { ...givenState(), 'x; touch mark': '$(touch mark)' };
state.files = { cluster: { name: "it's; touch mark", text: '' } };
state.settings = { 'model.a': "';touch mark;'" };
state.compared = [{ name: 'a\ntouch mark', text: '' }];
console.log(commandOf(state));
JS
  } >page.js
  node page.js >command.sh || fail "the page's command line"
  PATH=$work/bin:/usr/bin:/bin sh command.sh
  [ ! -e mark ] || { cat command.sh; fail "the page's command line runs a file's name"; }
fi
