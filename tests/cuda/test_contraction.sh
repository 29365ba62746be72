#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: builds with the emulated GPU. No compiler merges a product of a kernel with a sum, on a GPU (where
# nvcc is) or on the emulated one: of `a * b + c` and fma(a, b, c), in float and double, compiled by the
# options of the build, the second alone is one instruction.
set -euo pipefail
build=$(dirname "$(realpath "${1:-build/orthant}")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/probe.cu" <<'END'
#include <cuda_runtime.h>
template <class R>
__device__ void both(R *x) {
  x[0] = x[1] * x[2] + x[3];
  x[4] = fma(x[5], x[6], x[7]);
}
__global__ void probe(float *x, double *y) {
  both(x);
  both(y);
}
END

# The command that compiles linear.cu for the target, without its source and object.
command_of() {
  sed -n 's/^ *"command": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
    grep -- "/$1\.dir/.*/linear\.cu\.o\( \|$\)" | sed 's/\\"/"/g; s/ -o [^ ]*//; s/ -c [^ ]*//'
}

# fused WHO FILE PATTERN: the text of FILE has exactly one fused instruction for each type.
fused() {
  local found
  found=$(grep -cE "$3" "$2" || true)
  [ "$found" = 2 ] || { echo "$1: $found fused instructions instead of the 2 that are written"; exit 1; }
  echo "$1: only what is written as fma is fused"
}

emulated=$(command_of cuda_shim)
[ -n "$emulated" ] || { echo 'skipped: no emulated GPU'; exit 77; }
if [ "$(uname -m)" = x86_64 ]; then
  (cd "$build" && eval "$emulated -mfma -S -o '$work/probe.s' '$work/probe.cu'")
  fused 'the emulated GPU' "$work/probe.s" 'vfn?m(add|sub)'
fi
device=$(command_of orthant_cuda || true)
[ -n "$device" ] || exit 0
(cd "$build" && eval "$device -ptx -o '$work/probe.ptx' '$work/probe.cu'" 2>"$work/log") ||
  { cat "$work/log"; exit 1; }
fused nvcc "$work/probe.ptx" 'fma\.rn\.f(32|64)'
