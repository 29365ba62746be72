#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Stops a run in the middle, resumes it, and gets the same bits as a run that was never stopped. Then
# branches off: another learning-rate schedule from the same checkpoint.
#   examples/02_resume.sh [ORTHANT]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$(dirname "$0")/01_train.sh" "$orthant" "$folder" >/dev/null
cd "$folder"

"$orthant" train run.yaml --set output=half --set checkpoint.every=15 --set checkpoint.keep=0
mkdir -p second/checkpoints
cp -r half/checkpoints/step-00000015 second/checkpoints/
"$orthant" train run.yaml --set output=second
cmp half/checkpoints/step-00000030/model.safetensors second/checkpoints/step-00000030/model.safetensors
echo "the same bits"

"$orthant" train run.yaml --set output=branch --resume half/checkpoints/step-00000015 \
  --set learning_rate.decay=linear --set learning_rate.decay_steps=15
