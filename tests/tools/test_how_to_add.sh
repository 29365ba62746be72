#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: anywhere, with OT_TESTS=full in the environment (minutes). Adds an op, an optimizer, a model family
# and a pipeline schedule to a copy of the tree, in no other files than "How to add" in
# docs/architecture.md names, and uses them in the program that the copy builds.
set -euo pipefail
[ "${OT_TESTS:-}" = full ] || { echo 'skipped: OT_TESTS is not full'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
page=$PWD/docs/architecture.md fixtures=$PWD/tests/fixtures/parity
git ls-files -z 2>/dev/null | xargs -0 cp --parents -t "$work" 2>/dev/null || { echo 'skipped: not a checkout'; exit 77; }
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }

# begin WHAT: the row of the page. edit NAME FILE SED: a file that the row names so. new NAME FILE FROM
# SED: one that is made of another.
files=0
begin() { row=$(grep -F "| $1 |" "$page") || fail "no row: $1"; what=$1 files=0; }
count() {
  grep -qF "\`$1\`" <<<"$row" || fail "$what: the page does not name $1"
  files=$((files + 1))
}
edit() {
  count "$1"
  cp "$2" before
  sed -i "$3" "$2"
  ! cmp -s before "$2" || fail "$2: nothing was changed"
}
new() { count "$1"; sed "$4" "$3" >"$2"; }
end() { echo "$what: $files files"; }

begin 'an op'
ops=src/step/ops kernels=src/machine/kernels
rename='s/checksum/probe/g; s/CHECKSUM/PROBE/g'
new 'ops/x.{h,c}' $ops/probe.h $ops/checksum.h "$rename"
new 'ops/x.{h,c}' $ops/probe.c $ops/checksum.c "$rename"
edit 'ops/op.h' $ops/op.h '/^  OT_OP_CHECKSUM,/a\  OT_OP_PROBE,'
edit 'ops/catalog.c' $ops/catalog.c '/OT_OP_CHECKSUM/a\    [OT_OP_PROBE] = &ot_probe_info,
  s/^#include "ops\/checksum.h"/&\n#include "ops\/probe.h"/'
new 'x_cpu.c' $kernels/probe_cpu.c $kernels/checksum_cpu.c "$rename"
edit 'kernels/cpu_tables.h' $kernels/cpu_tables.h '/ot_checksum_cpu_f32/{p;s/checksum/probe/g}'
edit 'kernels/kernels.c' $kernels/kernels.c 's/ot_checksum_cpu_f\(..\),/& ot_probe_cpu_f\1,/'
end

begin 'an optimizer'
describe=src/core/describe
edit 'base/choices.h' src/core/base/choices.h 's/^  OT_OPTIMIZER_MUON,/  OT_OPTIMIZER_PROBE,\n&/'
edit 'describe/optimizer_rules.c' $describe/optimizer_rules.c \
  's/\[OT_OPTIMIZER_MUON\] = "muon",/[OT_OPTIMIZER_PROBE] = "probe", &/
   s/^    \[OT_OPTIMIZER_MUON\] = {/    [OT_OPTIMIZER_PROBE] = {.name = OT_OPTIMIZER_PROBE, .moments = 2,\
       .decays = {{"betas[0]", offsetof(ot_run_optimizer, betas[0])},\
                  {"betas[1]", offsetof(ot_run_optimizer, betas[1])}}},\n&/'
edit 'ops/optimizer.c' $ops/optimizer.c 's/\[OT_OPTIMIZER_MUON\] = OT_OP_MUON/[OT_OPTIMIZER_PROBE] = OT_OP_ADAMW, &/'
end

begin 'a model family'
new 'describe/families' $describe/families/probed.c $describe/families/llama.c \
  's/ot_family_llama/ot_family_probed/; s/"llama"/"probed"/; s/Llama/Probed/'
edit 'describe/model.h' $describe/model.h 's/^  OT_FAMILY_LLAMA,/&\n  OT_FAMILY_PROBED,/'
edit 'describe/family.c' $describe/family.c \
  's/^extern const ot_family_row ot_family_llama;/&\nextern const ot_family_row ot_family_probed;/
   s/^    \[OT_FAMILY_LLAMA\] = .*/&\n    [OT_FAMILY_PROBED] = \&ot_family_probed,/'
end

begin 'a pipeline schedule'
edit 'describe/run.h' $describe/run.h 's/^  OT_PIPELINE_GPIPE,/&\n  OT_PIPELINE_PROBE,/'
edit 'describe/pipeline_rules.c' $describe/pipeline_rules.c 's/\[OT_PIPELINE_GPIPE\] = "gpipe",/& [OT_PIPELINE_PROBE] = "probe",/
  s/^    \[OT_PIPELINE_GPIPE\] = {.*/&\n    [OT_PIPELINE_PROBE] = {.fills = true, .min_chunks = 1, .max_chunks = 1},/'
edit 'pipeline/pipeline_formulas.c' src/step/pipeline/pipeline_formulas.c 's/^    case OT_PIPELINE_GPIPE:/&\n    case OT_PIPELINE_PROBE:/'
end

cat >examples/probe.c <<'C'
#include "kernels/kernels.h"
#include "ops/catalog.h"
int main(void) { return !ot_kernel_find(OT_BACKEND_CPU, OT_OP_PROBE, OT_F32) || !ot_op_info_of(OT_OP_PROBE)->cost; }
C
cmake -S . -B build -G Ninja -DOT_CUDA=OFF -DOT_MPI=OFF >log && cmake --build build --target orthant probe >log 2>&1 ||
  { tail -20 log; fail 'the copy does not build'; }
orthant=$work/build/orthant
build/examples/probe || fail 'the op has no kernel'
mkdir model
sed 's/"llama"/"probed"/; s/LlamaForCausalLM/ProbedForCausalLM/' "$fixtures/llama/config.json" >model/config.json
"$orthant" plan --model model --cluster h100 --gpus 8 --global-batch-size 8 --sequence-length 64 --pp 2 --pipeline gpipe \
  --top 1 --emit run=run.yaml >plan || fail 'no plan of the family'
for value in gpipe probe; do
  "$orthant" schedule run.yaml --set "parallel.pipeline=$value" --set data.sequence_length=64 \
    --set optimizer.name=probe --ranks 8 >"$value.txt" || fail "no schedule of $value"
done
grep -q adamw probe.txt || fail 'the optimizer has no tasks'
cmp <(sed 's/gpipe/probe/g' gpipe.txt) probe.txt || fail 'the schedule is another one'
echo 'all of it is used'
