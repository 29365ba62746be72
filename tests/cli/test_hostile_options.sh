#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine with Python. hostile_options.py: one hostile value for each option of each verb; all
# of them with OT_TESTS=full.
#   tests/cli/test_hostile_options.sh PROGRAM
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 tests/cli/hostile_options.py "$1"
