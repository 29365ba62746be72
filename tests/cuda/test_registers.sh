#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: builds with nvcc. No kernel has a warning, spills registers or has a stack frame; on sm_90a, its
# registers and shared memory are those of registers.txt, where the compiler is the one that wrote it.
# tools/accept_registers.sh accepts new ones.
set -euo pipefail
table=tests/cuda/registers.txt
build=$(dirname "$(realpath "${1:-build/orthant}")")
now=$(mktemp)
trap 'rm -f "$now"' EXIT
tests/cuda/registers.sh "$build" >"$now" || exit $?
if [ "$(head -1 "$now")" != "$(head -1 "$table")" ]; then
  echo "registers are not compared: $(head -1 "$now"); $table has $(head -1 "$table")"
elif ! diff "$table" "$now"; then
  echo "the registers of kernels have changed (<: $table, >: this build); if they may, accept them with
  tools/accept_registers.sh"
  exit 1
fi
echo "$(grep -vc '^#' "$now") kernels without spills and stack frames"
