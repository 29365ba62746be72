#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: builds with ninja and the emulated GPU. Each fault of planted_faults.txt, in a kernel or in what
# waits for work on streams, is found by the test that the table names, and its text still stands in
# the source. A sample of the faults; all of them with OT_TESTS=full in the environment.
set -euo pipefail
build=$(dirname "$(realpath "${1:-build/orthant}")")
table=tests/cuda/planted_faults.txt
[ -f "$build/build.ninja" ] && [ -x "$build/tests/orthant_emulated" ] ||
  { echo 'skipped: no emulated GPU or another generator than ninja'; exit 77; }
! grep -q '^OT_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" ||
  { echo 'skipped: with sanitizers'; exit 77; }
faults=$(sed '/^# ---- sample end/q' "$table" | grep -c '^  in ')
[ "${OT_TESTS:-}" != full ] || faults=$(grep -c '^  in ' "$table")
seq "$faults" | xargs -P 2 -I{} bash tests/cuda/planted_fault.sh "$table" {} "$build"
echo "$faults of $faults planted faults are found"
