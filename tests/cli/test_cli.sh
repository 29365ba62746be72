#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: alone. Common command-line handling and the verbs config, presets, doctor, completion:
# arguments, exit codes, output streams.  tests/cli/test_cli.sh build/orthant
set -uo pipefail
orthant=$(realpath "${1:-build/orthant}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

fail() {
  echo "FAILED: $1"
  sed 's/^/  out: /' out | head -5
  sed 's/^/  err: /' err | head -5
  failures=$((failures + 1))
}

# expect STATUS WHERE TEXT WORDS...: exit status, and TEXT in `out` or `err` (the other way: !TEXT).
expect() {
  local status=$1 where=$2 text=$3
  shift 3
  "$orthant" "$@" >out 2>err </dev/null
  local got=$?
  [ $got -eq "$status" ] || fail "orthant $*: exit $got, not $status"
  if [ "${text#!}" != "$text" ]; then
    grep -qF -- "${text#!}" "$where" && fail "orthant $*: $where has \"${text#!}\""
  else
    grep -qF -- "$text" "$where" || fail "orthant $*: $where lacks \"$text\""
  fi
}

# ---- common handling ----
expect 0 out 'verbs:'
expect 0 out 'verbs:' --help
expect 0 out 'verbs:' help
expect 0 out 'usage: orthant config' help config
expect 0 out 'usage: orthant config' config --help
expect 0 out 'usage: orthant config' config run.yaml -h
expect 0 out 'orthant 0.' --version
expect 2 err 'did you mean `orthant config`?' confg
expect 2 err 'unknown verb "x"' help x
expect 2 err 'unknown option --verbose before the verb' --verbose
expect 2 err 'did you mean --json?' doctor --jsom
expect 2 err '--json takes no value' doctor --json=1
for verb in serve score sample; do expect 2 err 'help: --ranks N shares a prompt by tp' $verb x --cp 2; done
expect 2 err 'unexpected argument "y"' doctor y
expect 2 err 'options start with two dashes' config -x
expect 2 err '--set needs a value' config --set
expect 2 err 'is not KEY=VALUE' config --set steps
expect 2 err 'is given twice' config --explain seed --explain seed
expect 2 err 'missing argument' completion
expect 2 out '!error' confg
for verb in $("$orthant" | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
  [ "$verb" = help ] || expect 0 out "usage: orthant $verb" "$verb" --help
  ! grep -nE '.{101}| $' out || fail "help $verb: a line of over 100 characters, or one that ends in a blank"
done

# ---- colours only on terminals ----
expect 2 err '!'$'\033' confg
if command -v script >/dev/null; then
  script -qec "$orthant confg" /dev/null </dev/null >out 2>err
  grep -q $'\033' out || fail 'no colour on a terminal'
  NO_COLOR=1 script -qec "$orthant confg" /dev/null </dev/null >out 2>err
  grep -q $'\033' out && fail 'colour in spite of NO_COLOR'
fi

# ---- a result that cannot be written ----
"$orthant" config --example >/dev/full 2>err
[ $? -eq 3 ] || fail 'a full disk is not exit 3'
"$orthant" config --example 2>err | head -1 >out
grep -q 'bug' err && fail 'a closed pipe is called a bug'

# ---- wait policy of threads: set by the program, unless the user has set it ----
unset OMP_WAIT_POLICY GOMP_SPINCOUNT KMP_BLOCKTIME
expect 0 out 'GOMP_SPINCOUNT: "1000"' doctor
expect 0 out 'OMP_WAIT_POLICY: passive' doctor
GOMP_SPINCOUNT=7 expect 0 out 'GOMP_SPINCOUNT: "7"' doctor
grep -q 'OMP_WAIT_POLICY' out && fail 'waits are not those that the user has set'
# The library has read it: libgomp prints it.
OMP_DISPLAY_ENV=verbose "$orthant" --version >/dev/null 2>err
! grep -q GOMP_SPINCOUNT err || tail -n 25 err | grep -q "GOMP_SPINCOUNT = '1000'" || fail 'threads spin for longer'

# ---- config ----
"$orthant" config --example >run.yaml || fail 'no example'
expect 0 out "default of llama" config run.yaml
expect 0 out "$scratch/run.yaml" config "$scratch/run.yaml"
"$orthant" config run.yaml >resolved.yaml
"$orthant" config resolved.yaml | sed 's/ *#.*//' >twice
sed 's/ *#.*//' resolved.yaml | cmp -s - twice || fail 'resolved settings do not read back'
expect 0 out '"optimizer.lr": "--set optimizer.lr"' config run.yaml --set optimizer.lr=1e-2 --json
python=$(command -v python3 || true)
if [ -n "$python" ]; then
  "$orthant" config run.yaml --json | "$python" -c '
import json, sys
d = json.load(sys.stdin)
assert d["config"]["batch"]["global_batch_size"] == 64 and d["parameters"] == 8030261248, d
assert d["config"]["optimizer"]["lr"] == 3e-4 and d["config"]["tokens"] == 0' || fail 'config --json'
  "$orthant" presets --json | "$python" -c '
import json, sys
text = sys.stdin.read()
sizes = {m["name"]: m["parameters"] for m in json.loads(text)["models"]}
assert sizes["gpt2"] == 124439808, sizes
d = json.loads(text)
h100 = d["cluster_details"][d["clusters"].index("h100")]
assert h100["name"] == "h100" and h100["basis"] == "fitted" and h100["flops_per_s"]["bf16"] == 989.5e12, h100
assert [l["size"] for l in h100["levels"]] == [8, 16384], h100
core = d["engine_details"][d["engines"].index("megatron-core")]
assert core["name"] == "megatron-core" and core["kernels"]["host_ops"] == 1 and core["bucket_bytes"] == 160000000, core
assert d["engines"][0] == "orthant", d["engines"]' || fail 'presets --json'
  "$orthant" doctor --json | "$python" -c '
import json, sys
d = json.load(sys.stdin)
assert d["processor"]["cores"] >= 1 and d["memory"]["total_bytes"] > 0, d
assert "blas" in d and "warnings" in d' || fail 'doctor --json'
fi
expect 2 err 'did you mean "optimizer"?' config run.yaml --set optimiser.lr=1
expect 2 err 'did you mean optimizer.lr?' config run.yaml --set lr=1
expect 2 err 'did you mean the preset llama3-8b?' config --set model=llama3-8
expect 3 err 'nothing.yaml' config nothing.yaml
expect 2 err 'did you mean "lr"?' config run.yaml --set optimizer.learning_rate=1
expect 2 err 'did you mean "warmup_steps"?' config run.yaml --set learning_rate.warmup=5
expect 2 err 'did you mean "num_hidden_layers"?' config run.yaml --set model.num_layers=2
expect 2 err 'did you mean "num_hidden_layers"?' config run.yaml --set model.n_layer=2
expect 2 err 'did you mean batch.global_batch_size?' config run.yaml --set batch_size=2
expect 2 err 'did you mean "llama"?' config --set 'model={model_type: lama}'
expect 2 err 'did you mean one of llama2-7b, ' config --set model=lama
expect 2 err 'did you mean the preset h100?' plan --model gpt2 --cluster h10O
expect 2 err 'steps: 1e30 is too large; allowed: at least 0 steps (--set steps)' config run.yaml --set steps=1e30
expect 2 err 'steps: "10.5" is not a whole number' config run.yaml --set steps=10.5
expect 2 err 'optimizer.lr: "3e-4s" is not a number' config run.yaml --set optimizer.lr=3e-4s
expect 2 err 'take at most 64 ranks' schedule run.yaml --ranks 100000
printf 'model: gpt2\nsteps: 5\nsteps: 6\n' >twice.yaml
expect 2 err 'duplicate key "steps", first at line 2 (twice.yaml:3:1)' config twice.yaml
printf 'model: gpt2\nbatch:\n  micro_batch_size: 0\n' >range.yaml
expect 2 err 'micro_batch_size: 0 is out of range; allowed: 1 to 1048576 sequences (range.yaml:3:21)' \
  config range.yaml
printf 'model: gpt2\nprecision: {compute: fp8}\n' >fp8.yaml
expect 0 out 'compute: fp8' config fp8.yaml
expect 3 err 'compute=fp8 is not supported by this back end' train fp8.yaml --dry-run
printf 'model: {model_type: llama, logits_scaling: 2}\n' >unknown.yaml
expect 2 err '--set model.logits_scaling=ignore' config unknown.yaml
expect 0 out 'model_type: llama' config unknown.yaml --set model.logits_scaling=ignore
expect 0 out 'allowed: 0 to 3' config --explain parallel.zero
expect 2 err 'unknown key "zer"' config --explain parallel.zer

# ---- presets ----
expect 0 out 'llama3.1-405b' presets
expect 0 out '989.5 bf16  fitted       nvlink of 8: 450, network of 16384: 50' presets
expect 0 out ' 197 bf16  guessed      ici of 256: 90, network of 16384: 6.25' presets
expect 0 out '125 fp16' presets
expect 0 out 'architectures: [Gemma3ForCausalLM]' presets gemma3-1b
expect 2 err 'no preset and no file' presets nobody
expect 0 out 'bf16-fp32-gradients  flash-3    reduce, update_gather, tensor, pipeline' presets
expect 0 out '  host_ops: 1.0' presets megatron-core
expect 0 out 'overlap_pipeline: all' presets orthant
expect 0 out 'device: h100' presets h100
expect 0 out 'n_layer: 3' presets gpt2 --set model.n_layer=3
ln -s "$orthant" elsewhere
./elsewhere presets >out 2>err || fail 'presets are not found through a link'

# ---- completion ----
expect 2 err 'bash, zsh, fish' completion tcsh
for shell in bash zsh fish; do
  "$orthant" completion $shell >script.$shell || fail "no completion for $shell"
  grep -q 'optimizer.lr' script.$shell || fail "no settings in completion for $shell"
  if command -v $shell >/dev/null; then
    $shell -n script.$shell 2>err || fail "completion for $shell is not valid"
  fi
done
try() {
  bash -c 'source script.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _orthant
    echo "${COMPREPLY[*]}"' bash "$@" >out 2>err
}
try orthant plan --cluster h10
grep -qx h100 out || fail 'presets of clusters are not completed'
try orthant plan --model gpt2-me
grep -qx gpt2-medium out || fail 'presets of models are not completed'
try orthant audit caus
grep -qx causality out || fail 'audits are not completed'
try orthant checkpoint ver
grep -qx verify out || fail 'the first word of checkpoint is not completed'
try orthant presets --se
grep -qx -- '--set' out || fail 'bash completes no option'
try orthant doct
grep -qx 'doctor' out || fail 'bash completes no verb'
try orthant config --set optimizer.weight
grep -qx 'optimizer.weight_decay=' out || fail 'bash completes no setting'

[ $failures -eq 0 ] && echo 'the frame holds'
exit $((failures > 0))
