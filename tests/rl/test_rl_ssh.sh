#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: ssh and sshd. Generators that rl.launch starts over ssh, by an sshd of this test with keys in
# its folder: a synchronous run has the bits of one without ssh, a run in flight those of its tape,
# and a generator that is killed is started again.
set -euo pipefail
orthant=$(realpath "${1:?usage: test_rl_ssh.sh ORTHANT}")
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
sshd=$(PATH=$PATH:/usr/sbin:/sbin; command -v sshd) || skip "no sshd"
command -v ssh >/dev/null || skip "no ssh"
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
data=$(realpath "$(dirname "$0")/../../examples/sorting.awk")
cd "$work"
awk -f "$data" -v lines=500 -v seed=2 >prompts.jsonl
cat >"a run.yaml" <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64, initializer_range: 0.1}
init: random
data: {tokenizer: bytes, sequence_length: 64}
batch: {micro_batch_size: 8}
optimizer: {lr: 1e-3, weight_decay: 0}
learning_rate: {warmup_steps: 0, decay: constant}
steps: 8
rl: {prompts: prompts.jsonl, reward: edit_similarity, max_tokens: 24, clock: real, generators: 2, slots: 8, group: 4, batch: 16}
log: {every: 1}
threads: 1
YAML

# ---- an sshd with keys of its own ----
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
port=$((20000 + RANDOM % 20000))
cat >sshd_config <<TEXT
ListenAddress 127.0.0.1
Port $port
HostKey $work/host_key
PidFile none
AuthorizedKeysFile $work/user_key.pub
StrictModes no
UsePAM no
TEXT
cat >ssh_config <<TEXT
Host node*
  HostName 127.0.0.1
  Port $port
  IdentityFile $work/user_key
  IdentitiesOnly yes
  UserKnownHostsFile $work/known
  StrictHostKeyChecking accept-new
  LogLevel ERROR
  BatchMode yes
TEXT
"$sshd" -D -e -f "$work/sshd_config" 2>sshd.log &
server=$!
for _ in $(seq 30); do ssh -F ssh_config node0 true 2>ssh.log && break; sleep 0.1; done
ssh -F ssh_config node0 true 2>ssh.log || skip "sshd does not serve here: $(tail -1 sshd.log)"

# ---- runs ----
launch="[ssh, -F, $work/ssh_config, 'node{}', 'cd $work && exec {command}']"
rl() { # OUTPUT ARGUMENTS
  local output=$1
  shift
  timeout 300 "$orthant" rl "a run.yaml" --set output="$output" "$@" >"$output.txt" 2>"$output.log" || fail "$(cat "$output.log")"
}
weights=checkpoints/step-00000008/model.safetensors
rl here --set rl.updates=synchronous
rl there --set rl.updates=synchronous --set "rl.launch=$launch"
cmp here/$weights there/$weights || fail "weights of a synchronous run over ssh"
rl flight --set "rl.launch=$launch"
rl again --replay flight/tape.txt --set "rl.launch=$launch"
cmp flight/metrics.jsonl again/metrics.jsonl || fail "metrics of a run over ssh"
cmp flight/$weights again/$weights || fail "weights of a run over ssh"

# ---- a generator is killed on its host ----
rl killed --set "rl.launch=$launch" --set steps=200 &
run=$!
for _ in $(seq 200); do [ -s killed/metrics.jsonl ] && break; sleep 0.05; done
generator=$(pgrep -f "^$orthant rl a run.yaml --set output=killed .*--generator 1/2") || fail "generator 1 is not there"
kill -9 "$generator"
wait "$run" || fail "$(cat killed.log)"
grep -q "generator 1 has ended after .*it is started again (1 of 3 times)" killed.log || fail "$(cat killed.log)"
grep -q "^200 updates" killed.txt || fail "$(cat killed.txt)"
echo "passed"
