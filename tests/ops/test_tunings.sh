#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: serial. The tiles of kernels have the same bits whatever processor a compiler tunes for: some
# tunings fuse products and sums in some loops and not in others. Each compiler that is there compiles
# tunings.c for instruction sets of this machine; OT_TESTS=full takes all tunings, else four.
set -euo pipefail
build=$(dirname "$(realpath "${1:-build/orthant}")")
if grep -q '^OT_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" 2>/dev/null; then
  echo "skipped: programs for other tunings lack the sanitizers of $build/liborthant_plan.a"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -m) in
  x86_64)
    kinds=(generic: x86-64-v3:haswell x86-64-v3:znver3)
    [ "${OT_TESTS:-}" = full ] &&
      kinds+=(x86-64-v3:{generic,znver1,znver2,znver4,znver5,alderlake,skylake})
    if grep -qw avx512vl /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo; then
      kinds+=(x86-64-v4:sapphirerapids)
      [ "${OT_TESTS:-}" = full ] && kinds+=(x86-64-v4:{generic,znver4,znver5,skylake-avx512})
    fi ;;
  *) kinds=(generic:) ;;
esac
compilers=(cc)
[ "${OT_TESTS:-}" = full ] && compilers=(gcc-12 gcc-13 gcc-14 gcc-15 clang cc)

# COMPILER ARCHITECTURE:TUNING BITS  prints one line: what was compared, or why nothing was.
one() {
  local flags=() program="$work/$1-${2/:/-}-$3" arch=${2%:*} tune=${2#*:}
  [ "$arch" = generic ] || flags+=("-march=$arch")
  [ -z "$tune" ] || flags+=("-mtune=$tune")
  if ! echo | "$1" "${flags[@]}" -E - >/dev/null 2>&1; then
    echo "not compared: $1 does not know ${flags[*]}"
    return
  fi
  "$1" -std=c17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp -Wall -Wextra -Werror "${flags[@]}" -D_GNU_SOURCE \
    "-DOT_REAL_BITS=$3" $(tools/modules.sh includes) tests/ops/tunings.c -o "$program" "$build/liborthant_plan.a" -lm || return
  if "$program" >"$program.txt"; then
    echo "same bits: $1 ${flags[*]} float$3"
  else
    echo "DIFFERENT BITS: $1 ${flags[*]} float$3: $(head -1 "$program.txt") ($(wc -l <"$program.txt") in all)"
    return 1
  fi
}
export -f one
export work build
for compiler in "${compilers[@]}"; do
  command -v "$compiler" >/dev/null || { echo "not compared: there is no $compiler" >&2; continue; }
  for kind in "${kinds[@]}"; do printf '%s\n' "$compiler $kind 32" "$compiler $kind 64"; done
done >"$work/list"
xargs -P 2 -L 1 bash -c 'one "$@"' _ <"$work/list"
