#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpi_run.sh LAUNCHER ARGUMENTS...: runs a launcher of MPI processes for at most 60 s (then 124) and
# returns its exit code. Returns 99 if only the launcher hangs or crashes, so that the caller can retry:
# the launcher of Open MPI 4.1 (with PMIx 4.2) occasionally deadlocks in PMIx_server_finalize after a
# job has failed and its processes have ended, and that of Open MPI 5.0 dies of a segmentation fault.

# Ends a launcher that times out or hangs. Returns the reason as exit code, 0 if it was not ended.
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

# Bash writes to this file that a signal ended the launcher, whose own exit code may be that of a process.
notice=$(mktemp)
exec 7>&2 2>"$notice"
"$@" <&0 2>&7 7>&- &
launcher=$!
watch $launcher >/dev/null 2>&1 </dev/null &
watcher=$!
trap 'kill -TERM $launcher' TERM INT
wait $launcher
code=$?
[ ! -s "$notice" ] || code=99
rm -f "$notice"
exec 2>&7 7>&-
kill -TERM $watcher 2>/dev/null
wait $watcher
verdict=$?
[ $verdict = 0 ] || code=$verdict
exit $code
