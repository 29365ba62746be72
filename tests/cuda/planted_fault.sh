#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plants one fault of a table in a copy of a source, compiles it for the emulated GPU, links it into a
# test instead of the sound object, and runs the test, which must fail in the expected way.
#   tests/cuda/planted_fault.sh TABLE NUMBER BUILD      prints one line; exit 1 if the fault survives
set -euo pipefail
table=$1 number=$2 build=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The row: its title, files, test and cases, environment, the text before and after, what is expected.
awk -v number="$number" -v work="$work" '
  /^(#|$)/ { next }
  /^[^ ]/ { row++ }
  row != number { next }
  /^[^ ]/ { print > (work "/title") }
  /^  in / { print $2, $3 > (work "/files") }
  /^  by / { sub(/^  by /, ""); print > (work "/test") }
  /^  with / { sub(/^  with /, ""); print > (work "/environment") }
  /^  - / { print substr($0, 5) > (work "/before") }
  /^  \+ / { print substr($0, 5) > (work "/after") }
  /^  > / { print substr($0, 5) > (work "/expected") }' "$table"
[ -s "$work/expected" ] || { echo "row $number of $table is incomplete"; exit 1; }
touch "$work/after" "$work/environment"
title=$(cat "$work/title") expected=$(cat "$work/expected")
read -r source unit <"$work/files"
read -r test cases <"$work/test"
fail() { echo "FAILED: $title ($source): $*"; exit 1; }

# ---- the fault, at the only place where the text stands ----
planted=$work/$source
mkdir -p "$(dirname "$planted")"
awk -v before="$work/before" -v after="$work/after" '
  function text_of(file,   text, line) {
    while ((getline line <file) > 0) text = text line "\n"
    return substr(text, 1, length(text) - 1)
  }
  { all = all $0 "\n" }
  END {
    old = text_of(before)
    at = index(all, old)
    if (!at || index(substr(all, at + 1), old)) exit 1
    printf "%s%s%s", substr(all, 1, at - 1), text_of(after), substr(all, at + length(old))
  }' "$source" >"$planted" || fail "its text is not there, or more than once"

# ---- compile and link as the build does, the faulty object before the libraries ----
unit=${unit:-$source}
commands() { ninja -C "$build" -t commands "$1"; }
compile=$(commands "$(ninja -C "$build" -t targets all | sed -n "s|: CXX_.*||; s|: C_.*||; \|/$unit\.o\$|p" | head -1)" | tail -1)
at=$PWD/$unit
[ "$unit" = "$source" ] && at=$planted
compile=$(sed -E "s| -MD .*||; s| -O[23]||g; s| -I| -I$work/$(cut -d/ -f1-2 <<<"$source") -I|" <<<"$compile")
(cd "$build" && $compile -O1 -w -o "$work/fault.o" -c "$at") >"$work/log" 2>&1 || fail "$(tail -5 "$work/log")"
link=$(commands "tests/$test" | tail -1)
link=${link#: && } link=${link% && :}
link=$(sed -E "s|^([^ ]+) |\1 $work/fault.o |; s| -o +tests/$test | -o $work/$test |" <<<"$link")
(cd "$build" && $link) >"$work/log" 2>&1 || fail "$(tail -5 "$work/log")"

# ---- the test must fail in an order of threads that `make check` or check-full has, and say why ----
for order in backward forward random; do
  status=0
  # The subshell keeps quiet about a process that a signal ends.
  (OT_TEST_DEVICE=cuda OT_TEST_CASES=${cases:-'*'} OMP_WAIT_POLICY=passive OT_SHIM_ORDER=$order \
    env $(cat "$work/environment") timeout 100 "$work/$test" >"$work/out" 2>&1; exit $?) 2>"$work/log" || status=$?
  [ "$status" = 0 ] || break
done
[ "$status" -ne 0 ] || fail "survives $test ${cases:-}"
[ "$expected" = 'any failure' ] || grep -qE -- "$expected" "$work/out" ||
  fail "$test does not say '$expected' (exit $status) but: $(grep -vE '^\[|^$' "$work/out" | head -3)"
echo "$title ($source): $test, $order: $(grep -aE -m1 -- "$expected" "$work/out" | cut -c1-100)"
