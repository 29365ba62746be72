#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpi_run.sh LAUNCHER ARGUMENTS...: runs a launcher of MPI processes, for 60 s at most (then 124), and
# ends with its exit code. With 99 where the launcher hangs alone, for the caller to try again: that of
# Open MPI 4.1 (with PMIx 4.2) now and then waits for itself in PMIx_server_finalize, when a job has
# failed and its processes have ended.

# Ends a launcher that takes too long or hangs. Exit code: what it was ended for, 0 if it was not.
watch() {  # LAUNCHER
  local verdict=0 alone=0
  trap 'exit $verdict' TERM
  for _ in {1..60}; do
    sleep 1 & wait $!
    if ps --ppid "$1" -o stat= | grep -qv '^Z'; then alone=0; else alone=$((alone + 1)); fi
    [ $alone -lt 10 ] || { verdict=99; kill -KILL "$1"; exit 99; }
  done
  verdict=124
  kill -TERM "$1"
  sleep 5 & wait $!
  kill -KILL "$1"
  exit 124
}

"$@" <&0 &
launcher=$!
watch $launcher >/dev/null 2>&1 </dev/null &
watcher=$!
trap 'kill -TERM $launcher' TERM INT
wait $launcher
code=$?
kill -TERM $watcher 2>/dev/null
wait $watcher
verdict=$?
[ $verdict = 0 ] || code=$verdict
exit $code
