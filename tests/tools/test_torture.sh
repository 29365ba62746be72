#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A few trials of each kind of tools/torture.py: all of them hold.
set -u
program=$1
build=$(dirname "$program")
[ -f "$build/tests/libbreak_calls.so" ] || { echo "skipped: built without break_calls"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
exec python3 tools/torture.py --build "$build" --short
