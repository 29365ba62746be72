#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Replaces golden schedules by the differing texts that test_golden wrote. Review the diff before you
# commit it.  tools/accept_golden.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
shopt -s nullglob
new=("$build"/golden/*.txt)
[ ${#new[@]} -gt 0 ] || { echo "nothing to accept in $build/golden (run $build/tests/test_golden)"; exit 0; }
mkdir -p tests/golden
mv "${new[@]}" tests/golden/
git --no-pager diff --stat -- tests/golden || true
