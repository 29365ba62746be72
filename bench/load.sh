#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cost of a training step next to other busy processes: the small run of examples/01_train.sh on one
# rank with all cores and on four ranks (threads; processes if mpirun exists), next to 0, 1 and 2
# busy processes, alternating.
#
#   [REPEATS=5] [STEPS=100] [BUSY="0 1 2"] bench/load.sh [ORTHANT]
#
# Two wait policies: the default of `orthant train`, and OMP_WAIT_POLICY=active. A line has the mean
# step of each repetition, their median, and its ratio to the fair share: T threads of ours and N
# others on C cores get C / (T + N) of a core each, so the step time may grow by a factor of max(1,
# (T + N) / C) / max(1, T / C). The reference is the run without busy processes, under the faster
# policy.
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
repeats=${REPEATS:-5} steps=${STEPS:-100} cores=$(nproc)
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
busy=
trap 'kill $busy 2>/dev/null; rm -rf "$work"' EXIT
"$here/examples/01_train.sh" "$orthant" "$work/run" >/dev/null 2>&1
cd "$work/run"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
runs="rank ranks4"
! command -v mpirun >/dev/null || runs+=" mpi4"

step_ms() {  # ORTHANT-OPTIONS...: mean step of a run, without the first tenth of its steps
  rm -rf out
  $launch "$orthant" train run.yaml --set output=out --set steps="$steps" --set log.every=1000000 "$@" >/dev/null 2>err.txt ||
    { cat err.txt >&2; exit 1; }
  grep -o '"step_seconds":[^,]*' out/metrics.jsonl | tail -n +$((steps / 10 + 1)) |
    awk -F: '{sum += $2} END {print 1e3 * sum / NR}'
}

turn() {  # NAME OTHERS: both wait policies, next to OTHERS busy processes
  local pids= i options= launch=
  [ "$1" = rank ] || options="--set parallel.pp=2 --set parallel.pipeline=zb-h1 --set batch.micro_batch_size=1"
  [ "$1" != ranks4 ] || options+=" --ranks 4"
  [ "$1" != mpi4 ] || launch="mpirun --oversubscribe -n 4"
  for ((i = 0; i < $2; i++)); do sh -c 'while :; do :; done' & pids="$pids $!"; done
  busy=$pids
  # shellcheck disable=SC2086
  {
    step_ms $options >>"$1.$2.short"
    OMP_WAIT_POLICY=active step_ms $options >>"$1.$2.active"
  }
  if [ -n "$pids" ]; then
    # shellcheck disable=SC2086
    kill $pids
    wait $pids 2>/dev/null || true
  fi
  busy=
}

median() { sort -g "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

for ((r = 0; r < repeats; r++)); do
  for others in ${BUSY:-0 1 2}; do
    for run in $runs; do turn "$run" "$others"; done
  done
done

printf '%s cores, median of %s means of %s steps\n' "$cores" "$repeats" "$steps"
printf '%-8s %6s %12s %8s %12s %8s\n' run others 'short ms' 'of fair' 'active ms' 'of fair'
for run in $runs; do
  threads=$cores
  [ $run = rank ] || threads=4
  for others in ${BUSY:-0 1 2}; do
    awk -v run=$run -v n="$others" -v t="$threads" -v c="$cores" -v short="$(median $run.$others.short)" \
      -v active="$(median $run.$others.active)" -v idle_short="$(median $run.0.short)" \
      -v idle_active="$(median $run.0.active)" '
      function most(a, b) { return a > b ? a : b }
      BEGIN {
        idle = idle_short < idle_active ? idle_short : idle_active
        fair = idle * most(1, (t + n) / c) / most(1, t / c)
        printf "%-8s %6d %12.2f %8.2f %12.2f %8.2f\n", run, n, short, short / fair, active, active / fair
      }'
  done
done
