#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The page in headless Chromium (tests/web/browser.js): only with OT_TESTS=full, and only where make
# page has built it and a browser is there. playwright-core and axe-core come from npm.
#   tests/web/test_page_browser.sh PROGRAM
set -euo pipefail
page=$(dirname "$1")/page
skip() { echo "skipped: $1"; exit 77; }
[ "${OT_TESTS:-}" = full ] || skip 'the browser runs in make check-full'
command -v chromium >/dev/null || skip 'there is no chromium'
command -v npm >/dev/null || skip 'there is no npm'
[ -f "$page/orthant.html" ] || skip "make page has not built $page/orthant.html"
if [ ! -d "$page/test/node_modules/playwright-core" ] || [ ! -d "$page/test/node_modules/axe-core" ]; then
  mkdir -p "$page/test"
  (cd "$page/test" && npm install --silent --no-audit --no-fund playwright-core@1 axe-core@4) ||
    skip 'npm cannot install playwright-core and axe-core'
fi
"$1" plan --model qwen3-8b --cluster a100-80g --gpus 32 --tp 2 --html "$page/plan.html" >"$page/test/plan"
"$1" plan --from tests/fixtures/import/megatron_script.sh --cluster h100 --compare tests/fixtures/import/megatron_script.sh \
  --html "$page/from.html" >"$page/test/plan"
cat >"$page/test/run.yaml" <<'END'
model: llama3-8b
data: {sequence_length: 8192}
batch: {global_batch_size: 64, micro_batch_size: 1}
parallel: {tp: 4, pp: 2, vpp: 2, pipeline: interleaved, zero: 1, recompute: full}
END
"$1" plan --model llama3-8b --cluster h100 --gpus 64 --global-batch-size 64 --sequence-length 8192 \
  --engine presets/engines/megatron-core.yaml --compare "$page/test/run.yaml" --html "$page/compared.html" >"$page/test/plan"
"$1" plan --from tests/fixtures/import/megatron_script.sh --cluster h100 --json >"$page/test/script.json"
"$1" plan --model llama3-8b --cluster h100 --pp 1 --cp 1 --sweep gpus=1..32 --sweep zero=1,3 --html "$page/swept.html" >"$page/test/sweep.csv"
node tests/web/browser.js "$page/orthant.html" "$page" "$page/test" | tee "$page/test/results"
grep -qE '^[1-9][0-9]+ passed, 0 failed$' "$page/test/results"  # an empty run is no success
