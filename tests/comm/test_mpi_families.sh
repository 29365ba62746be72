#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: test_mpi_families.sh. The same tests with every MPI family on this machine other than that of
# the build: the required library files are compiled with that family's compiler.
set -uo pipefail
. tests/support/mpi_launch.sh "$(dirname "$1")/tests/test_comm_ranks"
taken=$family
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tried=0
for other in openmpi mpich; do
  [ $other != "$taken" ] && command -v mpicc.$other >/dev/null || continue
  tried=$((tried + 1))
  mpicc.$other -std=c17 -O1 -D_GNU_SOURCE -DOT_MPI=1 $(tools/modules.sh includes) -Itests -o "$folder/test_comm_ranks" \
    src/machine/comm/*.c src/core/base/*.c src/machine/host/clock.c tests/support/comm_*.c tests/comm/test_comm_ranks.c \
    -lpthread -lm || exit 1
  RANKS_PROGRAM=$folder/test_comm_ranks bash tests/comm/test_comm_mpi.sh || exit 1
done
[ $tried -gt 0 ] || { echo "skipped: no MPI family but $taken"; exit 77; }
