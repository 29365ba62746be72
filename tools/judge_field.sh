#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps of real software, sound and with planted faults, before `orthant judge`, in an environment that
# is made in build/judge-venv if it is not there (torch is some 700 MB).
#   tools/judge_field.sh [--optional] [options]     options: tools/judge_field/run.py
#   --optional   an environment that cannot be made is no error
set -euo pipefail
cd "$(dirname "$0")/.."
environment=build/judge-venv
optional=no
if [ "${1:-}" = --optional ]; then
  optional=yes
  shift
fi

# DeepSpeed and megatron-core are wanted, but not on every machine can they be installed.
make_environment() {
  [ -x $environment/bin/python ] && return
  local pip="$environment/bin/pip install --quiet"
  python3 -m venv $environment &&
    $pip torch==2.13.0 'transformers>=5.23,<6' safetensors accelerate setuptools wheel || {
    rm -rf $environment
    return 1
  }
  DS_BUILD_OPS=0 $pip --no-build-isolation deepspeed==0.19.8 || true
  $pip megatron-core==0.16.1 || true
  $pip trl || true
}

if [ $optional = yes ]; then
  make_environment >build/judge-venv.log 2>&1 || {
    echo 'judge_field: pip cannot install torch and transformers here: the judge was not tried in the field'
    exit 0
  }
else
  make_environment
fi
exec $environment/bin/python tools/judge_field/run.py build/orthant "$@"
