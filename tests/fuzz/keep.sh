#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adds to tests/fuzz/corpus what fuzzing found:  tests/fuzz/keep.sh [NAME...]
# Of build/fuzz/corpus/NAME (tests/fuzz/run.sh), the shortest inputs of at most 700 bytes that reach code
# which no input of tests/fuzz/corpus/NAME reaches.
set -euo pipefail
cd "$(dirname "$0")/../.."
names=("$@")
[ $# -gt 0 ] || for source in tests/fuzz/fuzz_*.c; do names+=("$(basename "${source#*fuzz_}" .c)"); done
for name in "${names[@]}"; do
  to=tests/fuzz/corpus/$name
  before=$(find "$to" -type f | wc -l)
  build/fuzz/tests/fuzz_"$name" -merge=1 -use_counters=0 -max_len=700 -timeout=25 \
    "$to" build/fuzz/corpus/"$name" >build/fuzz/keep.log 2>&1 || { tail build/fuzz/keep.log; exit 1; }
  echo "$name: $before files, now $(find "$to" -type f | wc -l)"
done
