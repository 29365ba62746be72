#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real models of transformers, sound and with planted faults, before `orthant judge`, in an environment
# that is made in build/judge-venv if it is not there (torch is some 700 MB).
#   tools/judge_field.sh [--optional] [--seeds N] [--only WORD] [--sample N]     see tools/judge_field.py
#   --optional   an environment that cannot be made is no error
set -euo pipefail
cd "$(dirname "$0")/.."
environment=build/judge-venv
optional=no
if [ "${1:-}" = --optional ]; then
  optional=yes
  shift
fi

make_environment() {
  [ -x $environment/bin/python ] && return
  python3 -m venv $environment &&
    $environment/bin/pip install --quiet torch==2.13.0 'transformers>=5.23,<6' safetensors && return
  rm -rf $environment
  return 1
}

if [ $optional = yes ]; then
  make_environment >build/judge-venv.log 2>&1 || {
    echo 'judge_field: pip cannot install torch and transformers here: the judge was not tried in the field'
    exit 0
  }
else
  make_environment
fi
exec $environment/bin/python tools/judge_field.py build/orthant "$@"
