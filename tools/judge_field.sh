#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real models of transformers, sound and with planted faults, before `orthant judge`, in an environment
# that is made in build/judge-venv if it is not there (torch is some 700 MB).
#   tools/judge_field.sh [--seeds N] [--only WORD]     see tools/judge_field.py
set -euo pipefail
cd "$(dirname "$0")/.."
environment=build/judge-venv
if [ ! -x $environment/bin/python ]; then
  python3 -m venv $environment
  $environment/bin/pip install --quiet torch==2.13.0 'transformers>=5.23,<6' safetensors
fi
exec $environment/bin/python tools/judge_field.py build/orthant "$@"
