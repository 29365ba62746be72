#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine with Python. The pages show what the newest report of a GPU shows and no other
# figure of one: here as they are, then with changed pages and made-up reports in a copy.
set -euo pipefail
command -v python3 >/dev/null || exit 77
fail() { echo "FAILED: $*" >&2; exit 1; }
report() { PYTHONDONTWRITEBYTECODE=1 python3 tools/gpu_report.py "$@"; }

report check . || fail "a page and the newest report differ"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/docs"
cp README.md "$copy"
cp -r docs/*.md docs/gpu "$copy/docs"
rm -f "$copy"/docs/gpu/*.json
report docs "$copy" >/dev/null
report check "$copy" >/dev/null || fail "pages without a report"

# refuses PAGE LINE MESSAGE: with LINE at its end, the page is refused with MESSAGE.
refuses() {
  cp "$copy/$1" "$copy/saved"
  echo "$2" >>"$copy/$1"
  report check "$copy" >"$copy/out" && fail "$1 may say: $2"
  grep -q "$3" "$copy/out" || fail "$1: no '$3' in: $(cat "$copy/out")"
  mv "$copy/saved" "$copy/$1"
}
refuses docs/gpu.md 'A step takes 8.7 s.' 'without a mark'
refuses docs/gpu.md 'It reaches 58,900 tokens/s.' 'without a mark'
refuses docs/speed.md 'On an H100, MFU is 57 %.' 'without a mark'
refuses README.md 'On a GPU it is 1.2 times as fast.' 'without a mark'
refuses docs/plan.md '<!-- gpu: mfu.gpt2-124m-T1024 -->52.0 %<!-- /gpu -->' 'not what the newest report shows'
echo 'Threads take 8 ms.' >>"$copy/docs/speed.md"  # of no GPU
echo 'MFU <!-- gpu: mfu.gpt2-124m-T1024 -->not run yet<!-- /gpu -->' >>"$copy/docs/speed.md"
report check "$copy" || fail "a mark that says that nothing was run"

# Parts as tools/gpu_check.sh writes them, with figures that are easy to follow.
python3 - "$copy" <<'PYTHON'
import json, sys
limits = {"device": "D", "driver": "", "library": "", "copy_bytes_per_s": 1e12, "product_flops_per_s": 1e14,
          "launch_s": 2e-6}
rows = [{"op": "add", "key": "add", "kind": "pass", "count": 10, "rows": 4096, "matrix_flops": 0, "bytes": 9e8,
         "step_s": 1e-2, "predicted_s": 9.5e-4},
        {"op": "linear", "key": "linear", "kind": "product", "count": 2, "rows": 4096, "matrix_flops": 1e11,
         "bytes": 1e6, "step_s": 4e-3, "predicted_s": 1.9e-3}]
memory = {"planned_bytes": 5 << 30, "created_bytes": (5 << 30) + (32 << 20) + 1024, "code_bytes": 1, "grown_bytes": 0,
          "context_bytes": 1, "state_bytes": 1 << 30}
step = {"step_s": 2.0, "tokens_per_s": 500.0, "mfu": 0.5, "memory": memory, "predicted_s": 1.9,
        "one_micro_batch": {"step_s": 0.0143, "traced_s": 0.02, "kernels_s": 0.0199, "rows": rows}}
alone = {"rows": [{**rows[0], "alone_s": 1e-3}, {**rows[1], "alone_s": 2e-3}]}
other = {"program": "pytorch", "variant": "", "micro_batch": 8, "step_s": 2.4, "tokens_per_s": 1.0, "peak_bytes": 1, "reserved_bytes": 1,
         "state_bytes": 1, "beyond_bytes": 8 << 30}
case = {"sequence": 1024, "head_dim": 64, "forward_s": 2e-3, "backward_s": 4e-3, "forward_flops_per_s": 1.0,
        "backward_flops_per_s": 1.0}
library = {"sequence": 1024, "head_dim": 64, "cudnn": {"forward_s": 1.9e-3, "deterministic_backward_s": 3e-3},
           "flash": {"error": "refused"}}
parts = {"limits (bench)": limits, "step gpt2-124m T1024": step, "step again gpt2-124m T1024": {**step, "step_s": 2.2},
         "operators gpt2-124m T1024": alone, "pytorch gpt2-124m T1024": other, "attention": [case],
         "attention of PyTorch": [library]}
report = {"format": 1, "emulated": False,
          "parts": {n: {"mode": "bench", "state": "passed", "seconds": 1, "data": d} for n, d in parts.items()}}
json.dump(report, open(sys.argv[1] + "/docs/gpu/2026-01-01-D.json", "w"))
json.dump({**report, "emulated": True}, open(sys.argv[1] + "/emulated.json", "w"))
sys.path.insert(0, "tools")
sys.dont_write_bytecode = True
from gpu_figures import figures_of
found = figures_of(report)
model = "gpt2-124m-T1024"
wanted = {f"mfu.{model}": 0.5, f"step_s.{model}": 2.0, f"memory.{model}": 1024, "passes.worst": 0.9,
          "gaps.worst": 0.005, "simulator.worst_step": 0.05, "simulator.worst_operator": 0.05,
          "floors.worst": 0.0143 / (10 * 9e-4 + 2 * 2e-3), "pytorch.worst_speed": 2.4 / 2.1,
          "pytorch.worst_memory": 0.5, "attention.worst_forward": 0.95, "attention.worst_backward": 0.75,
          "limits.launch_s": 2e-6}
for key, value in wanted.items():
    if key not in found or abs(found[key] - value) > 1e-9 * max(1, abs(value)):
        sys.exit(f"FAILED: figure {key}: {found.get(key)} in place of {value}")
PYTHON
report check "$copy" >"$copy/out" && fail "pages that do not show a new report"
report docs "$copy" >/dev/null
report check "$copy" || fail "pages that were just made"
grep -q 'MFU <!-- gpu: mfu.gpt2-124m-T1024 -->50.0 %<' "$copy/docs/speed.md" || fail "no figure in speed.md"
grep -q '| attention relative to cuDNN, forward | at least 0.90 | 0.95 | yes |' "$copy/docs/gpu.md" || fail "no goal met"
grep -q 'deterministic backward | at least 0.85 | 0.75 | no |' "$copy/docs/gpu.md" || fail "no goal missed"
grep -q '| MFU, gpt2-1.5b T1024 | at least 55 %, aim 59 % | not run yet |  |' "$copy/docs/gpu.md" || fail "no goal left"
sed -i 's/-->50.0 %</-->50.1 %</' "$copy/docs/speed.md"
report check "$copy" >"$copy/out" && fail "a page that claims more than the report shows"
report docs "$copy" >/dev/null

# A later report counts; one of an emulated GPU never does; merging keeps what only one of them has.
cp "$copy/emulated.json" "$copy/docs/gpu/2026-01-02-D.json"
report check "$copy" >"$copy/out" && fail "a report of an emulated GPU"
grep -q 'of an emulated GPU' "$copy/out" || fail "the message about it: $(cat "$copy/out")"
report merge "$copy/docs/gpu/2026-01-01-D.json" "$copy/emulated.json" "$copy/merged"
grep -q '"emulated": true' "$copy/merged/report.json" || fail "a merged report is emulated if a part is"
echo '{"format": 2}' >"$copy/docs/gpu/2026-01-03-D.json"
report check "$copy" >"$copy/out" 2>&1 && fail "a report in another format"
grep -q 'not a report' "$copy/out" || fail "the message about its format: $(cat "$copy/out")"
