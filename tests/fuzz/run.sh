#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Searches for inputs that break a reader of files:  tests/fuzz/run.sh SECONDS [NAME...]
# SECONDS in total, shared by the targets (all, or tests/fuzz/fuzz_NAME.c), which start from
# tests/fuzz/corpus/NAME. New inputs are kept in build/fuzz/corpus/NAME. A target fails on a crash,
# a leak, an input of more than 25 seconds, or memory beyond the limits of fuzz.h; the input is then
# in build/fuzz/found. Needs the programs of the preset `fuzz` (make fuzz).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 3
seconds=${1:?seconds in total}
shift
names=("$@")
[ $# -gt 0 ] || for source in tests/fuzz/fuzz_*.c; do names+=("$(basename "${source#*fuzz_}" .c)"); done
each=$((seconds / ${#names[@]}))
[ "$each" -gt 0 ] || each=1
mkdir -p build/fuzz/found
failed=0
for name in "${names[@]}"; do
  kept=build/fuzz/corpus/$name log=build/fuzz/$name.log
  mkdir -p "$kept"
  # The sanitizer's own tables and its quarantine need several times the memory of the reader; the
  # exact limit is that of the harness.
  ASAN_OPTIONS=quarantine_size_mb=16:detect_leaks=1 build/fuzz/tests/fuzz_"$name" \
    -max_total_time="$each" -timeout=25 -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 \
    -dict=tests/fuzz/dictionary.txt -artifact_prefix=build/fuzz/found/"$name"- \
    "$kept" "tests/fuzz/corpus/$name" >"$log" 2>&1
  status=$?
  awk -v name="$name" -v status=$status '
    $2 == "INITED" { for (i = 1; i < NF; i++) if ($i == "cov:") first = $(i + 1) }
    /cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") last = $(i + 1) }
    /stat::number_of_executed_units/ { runs = $2 }
    /stat::peak_rss_mb/ { rss = $2 }
    END { printf "%-12s %10d inputs  coverage %5d -> %5d  %5d MB  %s\n", name, runs, first, last, rss,
          status == 0 ? "ok" : "FAILED" }' "$log"
  [ $status -eq 0 ] && continue
  failed=1
  grep -aE 'ERROR|SUMMARY|runtime error|bug:|fuzz:|Test unit written' "$log" | head -5
done
exit $failed
