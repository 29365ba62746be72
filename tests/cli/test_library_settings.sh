#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. The kernels that OpenBLAS uses: those of the oldest CPUs only where the CPU has no AVX2, and those
# of OPENBLAS_CORETYPE if it is set.
set -euo pipefail
orthant=$1

core() { "$orthant" doctor --json | sed -n 's/^ *"core": "\(.*\)".*/\1/p'; }

fail() { echo "$*" >&2; exit 1; }

unset OPENBLAS_CORETYPE
chosen=$(core)
[ -n "$chosen" ] || { echo "the BLAS is not OpenBLAS" >&2; exit 77; }
if grep -qw avx2 /proc/cpuinfo; then
  [ "$chosen" != Prescott ] || fail "kernels of Prescott on a CPU with AVX2"
  [ "$(OPENBLAS_CORETYPE=Haswell core)" = Haswell ] || fail "OPENBLAS_CORETYPE has no effect"
fi
