#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: test_comm_mpi.sh build/orthant. Ranks as processes: the conformance suite on 2 to 4 of them,
# over TCP only, and the failure modes: all processes end within seconds, with one message.
set -uo pipefail
program=${RANKS_PROGRAM:-$(dirname "$1")/tests/test_comm_ranks}
[ -x "$program" ] || { echo "skipped: no $program"; exit 77; }
. tests/support/mpi_launch.sh "$program"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failures=0

complain() {  # WHAT
  echo "FAILED: $1"
  sed 's/^/  | /' "$output"
  failures=$((failures + 1))
}

# The launcher of Open MPI 4.1 occasionally crashes or hangs when a process aborts.
launcher_broke() {
  [ $got = "$launcher_hung" ] || grep -qE 'ORTE_ERROR_LOG|Data unpack|PMIx_server_finalize' "$output"
}

# Runs a command and expects exit code CODE and exactly one line "error: ..." that matches PATTERN
# (none if it is empty).
expect() {  # CODE PATTERN COMMAND...
  local code=$1 pattern=$2 errors start got
  shift 2
  for _ in {1..6}; do
    start=$SECONDS
    "$@" >"$output" 2>&1
    got=$?
    launcher_broke || break
  done
  errors=$(grep -c '^error: ' "$output")
  [ "$code" = any ] || [ $got = "$code" ] || complain "exit code $got, not $code: $*"
  [ "$errors" = "${pattern:+1}" ] || [ "$errors:$pattern" = 0: ] ||
    complain "$errors lines 'error:' of: $*"
  [ -z "$pattern" ] || grep -q "^error: .*$pattern" "$output" || complain "no '$pattern' from: $*"
  [ $((SECONDS - start)) -lt 20 ] || complain "took $((SECONDS - start)) s: $*"
}

for ranks in 2 3 4; do
  expect 0 '' "${launch[@]}" -n $ranks "$program"
done
expect 0 '' env OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo "${launch[@]}" -n 3 "$program"
expect 3 'rank 2 on .*: cannot read the shard' "${launch[@]}" -n 3 "$program" fails
expect 3 'rank 2 on .*: cannot read the shard' "${launch[@]}" -n 3 "$program" fails_in_call
expect 3 'rank 2 on .*: cannot read the shard' "${launch[@]}" -n 3 "$program" fails_in_exchange
expect 4 "rank [01] waits in 'rows' (all_to_all_v 2 of group world, ranks 0-2) for rank 2, which has" \
  "${launch[@]}" -n 3 "$program" late_in_exchange
expect 4 "rank [01] waits in 'patient' (barrier 2 of group world, ranks 0-2) for rank 2, which has" \
  "${launch[@]}" -n 3 "$program" late
expect 4 "rank . waits in 'circle' (receive 1 from rank ., tag 0, of group world" \
  "${launch[@]}" -n 3 "$program" all_late
expect 4 "rank 0 waits in 'patient' (barrier 2 of group world, ranks 0-2) for rank 2, which has" \
  "${launch[@]}" -n 3 "$program" late_beside
expect 4 "for rank 1, which has not arrived in 0.5 s and waits itself; rank 2 does not respond$" \
  "${launch[@]}" -n 3 "$program" late_behind
expect 5 'rank 2 on .*: the loss is not a number' "${launch[@]}" -n 3 "$program" agrees
expect 4 "ranks differ in 'uneven' (all_gather 1 of group world" \
  "${launch[@]}" -n 3 "$program" differs
rows="ranks differ in 'uneven rows' (all_to_all_v 1 of group world, ranks 0-2): rank"
expect 4 "$rows 1 sends 3 rows to rank 0, which expects 5" "${launch[@]}" -n 3 "$program" fewer_rows
expect 4 "$rows 0 sends more than the 4 rows that rank 2 expects" \
  "${launch[@]}" -n 3 "$program" more_rows
expect 4 "$rows 2 sends 0 rows to rank 1, which expects 1" "${launch[@]}" -n 3 "$program" no_rows
expect 4 "$rows 2 sends more than the 0 rows that rank 1 expects" \
  "${launch[@]}" -n 3 "$program" unexpected_rows
expect 4 "$rows 1 sends 1 rows to rank 1, which expects 2" "${launch[@]}" -n 3 "$program" own_rows
expect 75 'stopped by a signal' "${launch[@]}" -n 3 "$program" stops
# The launcher itself reports that.
expect any '' "${launch[@]}" -n 3 "$program" killed
expect any '' "${launch[@]}" -n 3 "$program" killed_in_exchange
# Inconsistent sizes: as if one family's launcher started the other's program.
expect 4 'started 3 processes, but MPI sees 1' env OMPI_COMM_WORLD_SIZE=3 "$program"
expect 4 'started 2 processes, but MPI sees 1' env SLURM_STEP_NUM_TASKS=2 "$program"
expect 4 '' env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$program"
expect 0 '' env SLURM_NTASKS=2 "$program"

[ $failures = 0 ] || exit 1
echo "passed with $family ($launcher)"
