#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: first
# run: test_equality_mpi.sh build/orthant. A covering sample of configurations on 4 and 8 MPI
# processes: equal to one rank, and bit for bit to ranks that are threads. Skipped without MPI.
set -uo pipefail
program=$(dirname "$1")/tests/test_equality_ranks
[ -x "$program" ] || { echo "skipped: no $program"; exit 77; }
. tests/support/mpi_launch.sh "$program"
failures=0
cases=0
while read -r case ranks; do
  "${launch[@]}" -n "$ranks" "$program" "$case" </dev/null || failures=$((failures + 1))
  cases=$((cases + 1))
done < <("$program")
[ $cases -gt 0 ] || { echo "FAILED: no cases"; exit 1; }
[ $failures = 0 ] || { echo "FAILED: $failures of $cases cases"; exit 1; }
echo "passed: $cases cases with $family"
