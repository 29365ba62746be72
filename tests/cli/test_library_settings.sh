#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels that OpenBLAS uses: those of the oldest CPUs only where the CPU has no AVX2, and those
# of OPENBLAS_CORETYPE if it is set.
set -euo pipefail
orthant=$1

core() { "$orthant" doctor --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["blas"].get("core"))'; }

fail() { echo "$*" >&2; exit 1; }

unset OPENBLAS_CORETYPE
chosen=$(core)
[ "$chosen" != None ] || { echo "the BLAS is not OpenBLAS" >&2; exit 77; }
if grep -qw avx2 /proc/cpuinfo; then
  [ "$chosen" != Prescott ] || fail "kernels of Prescott on a CPU with AVX2"
  [ "$(OPENBLAS_CORETYPE=Haswell core)" = Haswell ] || fail "OPENBLAS_CORETYPE has no effect"
fi
