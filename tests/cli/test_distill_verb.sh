#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Distillation by the program: a store is made, continued and reused; a student
# learns the same from it as from a live teacher, and on every layout; other data are refused.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_distill_verb.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

cat >teacher.yaml <<'YAML'
model: {model_type: llama, vocab_size: 260, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 4}
optimizer: {lr: 3e-3}
steps: 20
threads: 1
output: teacher
YAML
sed 's/hidden_size: 32/hidden_size: 16/; s/^steps: .*/steps: 3/; s/^output: .*/output: student/
  s/global_batch_size: 8, micro_batch_size: 4/global_batch_size: 8, micro_batch_size: 2/' \
  teacher.yaml >student.yaml
cat >>student.yaml <<'YAML'
precision: {compute: fp64}
distill: {objective: sampled, teacher: teacher, draws: 20, targets: 8}
YAML
head -c 3000 "$source_dir/LICENSE" >text
"$orthant" tokenize --tokenizer bytes --out train text >/dev/null
"$orthant" train teacher.yaml 2>/dev/null

# ---- the store: forecast, stop and go on, the same bytes, reused ----
expect 3 'there is no store of a teacher' "$orthant" train student.yaml
expect 3 'there is no store of a teacher' "$orthant" train student.yaml --dry-run
expect 0 'more on each rank with the head' "$orthant" train student.yaml --dry-run --set distill.from=live
"$orthant" distill targets student.yaml --windows 40 >out.txt 2>err.txt
grep -q 'train.teacher: 40 of [0-9]* windows, .* ids a token; teacher: loss ' out.txt || fail "$(cat out.txt)"
grep -q 'bytes a token, .* ids; in all .* left$' err.txt || fail "no forecast: $(cat err.txt)"
[ ! -e train.teacher ] && [ -s train.teacher.partial ] || fail "an incomplete store is named as a whole one"
"$orthant" distill targets student.yaml --json 2>/dev/null >out.json
grep -q '"new": *53' out.json || fail "was not continued: $(cat out.json)"
mv train.teacher continued
"$orthant" distill targets student.yaml >/dev/null 2>&1
cmp train.teacher continued || fail "a continued store has other bytes"
"$orthant" distill targets student.yaml --json 2>/dev/null | found '"new": *0' || fail "recomputed"

# ---- a store and a live teacher teach the same, bit for bit ----
losses() { grep -o '"loss":[^,]*,"data_loss":[^,]*,"teacher_kl":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }
"$orthant" train student.yaml 2>/dev/null
losses student >want
[ "$(wc -l <want)" = 3 ] && ! grep -q null want || fail "$(cat want)"
"$orthant" train student.yaml --set distill.from=live --set output=live 2>/dev/null
losses live >want_live
bare() { sed 's/"teacher_kl":[^,]*,//' "$1"; }  # of a store its entropies are float32
cmp <(bare want_live) <(bare want) || fail "a live teacher differs"

# ---- every layout equals one rank ----
# close FILE [WANT]: the numbers of FILE and of WANT (`want`) agree to 1e-12.
close() {
  paste -d, "$1" "${2:-want}" | awk -F'[:,]' '{ for (i = 2; i <= 8; i += 2) { d = $i - $(i + 8)
    if (d < 0) d = -d; if (d > 1e-12 * ($i > 1 ? $i : 1)) { print; exit 1 } } }'
}
for layout in "tp=2" "pp=2" "cp=2" "zero=3" "tp=2 cp=2" "cp=2 context=ulysses"; do
  sets=() ranks=2
  for part in $layout; do sets+=(--set "parallel.$part"); done
  [ "$layout" = "tp=2 cp=2" ] && ranks=4
  rm -rf layout
  "$orthant" train student.yaml --ranks $ranks "${sets[@]}" --set output=layout 2>err.txt || fail "$layout: $(cat err.txt)"
  losses layout >got
  close got || fail "$layout is not as one rank"
done
rm -rf layout
"$orthant" train student.yaml --ranks 2 --set parallel.pp=2 --set distill.from=live --set output=layout 2>/dev/null
losses layout >got
close got want_live || fail "a live teacher under pp=2 is not as one rank"

# ---- a teacher on ranks of its own: the same bits on any ranks, with alpha and a batch ramp too ----
# apart LAYOUT RANKS TEACHERS [--set ...]: RANKS ranks of the student with and without TEACHERS more.
apart() {
  local own=(train student.yaml --set distill.from=live --set "parallel.$1" "${@:4}")
  rm -rf together layout
  "$orthant" "${own[@]}" --ranks "$2" --set output=together 2>err.txt || fail "$1: $(cat err.txt)"
  "$orthant" "${own[@]}" --ranks $(($2 + $3)) --set distill.teacher_ranks="$3" --set output=layout 2>err.txt || fail "$1, $3 teachers: $(cat err.txt)"
  losses together >got
  cmp got <(losses layout) || fail "$1: $3 ranks with a teacher change bits"
}
apart tp=1 1 1
cmp got want_live || fail "one rank and a teacher differ from one rank"
apart dp=2 2 1 --set distill.alpha=0.5
apart dp=2 2 2 --set 'batch.ramp=[{from_step: 1, global_batch_size: 16}]'
apart pp=2 2 1
apart tp=2 2 3
expect 2 'teacher_ranks=1 needs from=live' "$orthant" train student.yaml --set distill.teacher_ranks=1 --set output=no
expect 2 'cannot be ahead of what the model writes' "$orthant" train student.yaml --set distill.teacher_ranks=1 \
  --set distill.from=live --set distill.objective=reverse_kl --set output=no
expect 4 'teacher_ranks=1 leaves no rank for the model of 1' "$orthant" train student.yaml --set distill.teacher_ranks=1 \
  --set distill.from=live --set output=no
expect 3 'no-such' "$orthant" train student.yaml --ranks 2 --set distill.teacher_ranks=1 --set distill.from=live \
  --set distill.teacher=no-such --set output=no

# ---- prices: the step waits for a teacher next to it, and for what exceeds it on ranks of its own ----
# price KEY [--set ...]: of simulate, the first of the name.
price() {
  "$orthant" simulate student.yaml --cluster h100 --set precision.compute=fp32 --json "${@:2}" |
    sed -n 's/.*"'"$1"'": *\([0-9.e+-]*\).*/\1/p' | head -1
}
alone=$(price step_seconds) live=$(price step_seconds --set distill.from=live)
waits=$(price teacher_seconds --set distill.from=live)
apart=(--set distill.from=live --set distill.teacher_ranks=1)
awk -v a="$alone" -v l="$live" -v t="$waits" 'BEGIN { exit !(t > 0 && l - a - t < 1e-9 && a + t - l < 1e-9) }' ||
  fail "priced $live with a teacher of $waits, $alone without"
[ "$(price step_seconds "${apart[@]}")" = "$alone" ] || fail "a small teacher of its own rank is not hidden"
[ "$(price teacher --set distill.from=live)" -gt 27000 ] || fail "no memory of the teacher"

# ---- plans: the teacher next to the model or on devices of its own; simulate of what is emitted says the same ----
cat >small.json <<'JSON'
{"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 48, "num_hidden_layers": 4,
 "num_attention_heads": 4, "max_position_embeddings": 64}
JSON
figure() {  # figure FILE KEY: the first; of plan.json in its list of plans, but for the teacher's ranks
  if [ "$1" = plan.json ] && [ "$2" != ranks ]; then sed -n '/"plans"/,$p' plan.json; else cat "$1"; fi |
    sed -n 's/.*"'"$2"'": *\([0-9.e+-]*\).*/\1/p' | head -1
}
planned() {  # planned RANKS OPTION...: plan 1 has a teacher of RANKS ranks of its own; "some": at least one
  local plan=("$orthant" plan --model small.json --cluster h100 --gpus 8 --global-batch-size 48 --sequence-length 32 --top 1
    --set distill.objective=sampled --set distill.from=live --set distill.teacher=teacher "${@:2}")
  "${plan[@]}" --json --emit run=run.yaml >plan.json
  printf 'data: {train: train, tokenizer: bytes, sequence_length: 32}\nsteps: 1\n' >>run.yaml
  "$orthant" simulate run.yaml --cluster h100 --json >step.json
  local ranks
  ranks=$(figure plan.json ranks)
  [ "$ranks" = "$1" ] || [ "$1" = some ] && [ "$1 $ranks" != "some 0" ] || fail "$*: teacher on $ranks devices"
  [ "$ranks" = 0 ] || grep -q "teacher_ranks: $ranks\$" run.yaml || fail "$*: $(cat run.yaml)"
  [ "$((8 - ranks))" = "$(figure step.json ranks)" ] || fail "$*: model on $(figure step.json ranks)"
  awk -v a="$(figure plan.json step_seconds)" -v b="$(figure step.json step_seconds)" \
    'BEGIN { exit !(a > 0 && a <= b * (1 + 1e-9) && b <= a * (1 + 1e-9)) }' ||
    fail "$*: planned $(figure plan.json step_seconds), simulated $(figure step.json step_seconds)"
  [ "$(figure plan.json peak)" = "$(($(figure step.json peak) + $(figure step.json teacher)))" ] || fail "$*: other memory"
}
planned some
planned 0 --set distill.teacher_ranks=0
planned 0 --pp 2 --pipeline zb-v --set distill.teacher_ranks=0
planned 2 --tp 2 --set distill.teacher_ranks=2 --set distill.alpha=0.5
expect 2 'teacher_ranks=8 leaves no device for the model' "$orthant" plan --model small.json --cluster h100 --gpus 8 \
  --set distill.objective=sampled --set distill.from=live --set distill.teacher=teacher --set distill.teacher_ranks=8

# ---- alpha: 0 is the data's loss, and a mixture lies between ----
"$orthant" train student.yaml --set distill.alpha=0 --set output=data 2>/dev/null
awk -F'[:,]' '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-6) exit 1 }' <(losses data) || fail "alpha=0: $(losses data)"
"$orthant" train student.yaml --set distill.alpha=0.5 --set output=mixed 2>/dev/null
paste -d, <(losses mixed | head -1) <(head -1 want) | awk -F'[:,]' '{ m = 0.5 * $10 + 0.5 * $12 - $2
  if (m < 0) m = -m; if (m > 0.02) exit 1 }' || fail "alpha=0.5 is not half of both"

# ---- on-policy: what the student writes, judged by a teacher; on every layout as on one rank ----
reverse=(--set distill.objective=reverse_kl --set distill.from=live --set distill.prompt_tokens=8)
rm -rf written
"$orthant" train student.yaml "${reverse[@]}" --set output=written 2>/dev/null
losses written >want
for layout in tp=2 pp=2 cp=2 zero=3; do
  rm -rf layout
  "$orthant" train student.yaml "${reverse[@]}" --ranks 2 --set "parallel.$layout" --set output=layout 2>err.txt || fail "$layout: $(cat err.txt)"
  losses layout >got
  close got || fail "reverse_kl: $layout is not as one rank"
done
"$orthant" audit step student.yaml "${reverse[@]}" >audit.txt 2>&1 || fail "audit of reverse_kl: $(cat audit.txt)"
"$orthant" audit step student.yaml >audit.txt 2>&1 || fail "audit of sampled: $(cat audit.txt)"
# A model that is its own teacher has nothing to learn.
"$orthant" train student.yaml "${reverse[@]}" --set model=teacher/checkpoints/step-00000020 --set init=teacher --set output=own 2>err.txt || fail "$(cat err.txt)"
kl() { grep -o '"teacher_kl":[^,]*' "$1/metrics.jsonl" | head -1 | cut -d: -f2; }
awk -v kl="$(kl own)" 'BEGIN { if (kl < 0) kl = -kl; exit !(kl < 1e-9) }' || fail "its own teacher: KL $(kl own)"
awk -v kl="$(kl written)" 'BEGIN { exit !(kl > 0.01) }' || fail "another teacher: KL $(kl written)"
awk -v kl="$(kl student)" 'BEGIN { exit !(kl > 0.01 && kl < 5) }' || fail "sampled: KL $(kl student)"

# ---- what does not match is refused, and told why ----
refused() { rm -rf no; expect 2 "$1" "$orthant" train student.yaml --set output=no "${@:2}"; }
refused 'data.sequence_length=32, the run has 16' --set data.sequence_length=16
refused 'data.document_mask=1, the run has 0' --set data.document_mask=false
refused 'distill.draws=20, the run has 21' --set distill.draws=21
refused 'another teacher' --set distill.teacher=student
refused 'objective=reverse_kl needs from=live' --set distill.objective=reverse_kl
refused 'needs teacher' --set distill.from=live --set distill.teacher=null
# One byte changed in a window that is compared at once, and in one that is compared when it is read.
for place in 5 101; do
  { head -c $place text; printf '\001'; tail -c +$((place + 2)) text; } >other
  "$orthant" tokenize --tokenizer bytes --out train other >/dev/null
  why='was made for another training set, or another order of it'
  [ $place = 5 ] || why='window 3 of the store was made for other tokens than those of the run'
  refused "$why" --set steps=12
done
"$orthant" distill targets student.yaml --set distill.objective=top_k 2>&1 >/dev/null | found 'note: top_k is biased' || fail "no warning"
