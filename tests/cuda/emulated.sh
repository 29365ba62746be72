# SPDX-License-Identifier: Apache-2.0
# Sourced by test scripts: `expect` (tests/support/expect.sh); `orthant`, the program; `emulated`, the
# program with an emulated GPU, which `on_gpu` lets it find; `no_gpu`, what the first says without a
# GPU; `here`, the source tree. Goes to an empty folder, removed at exit. Exits the script with 77
# (skipped) if this build has no emulated GPU.
#   . tests/cuda/emulated.sh build/orthant
. tests/support/expect.sh
orthant=$(realpath "${1:-build/orthant}")
emulated=$(dirname "$orthant")/tests/orthant_emulated
[ -x "$emulated" ] || exit 77
here=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset OT_TEST_DEVICE
export CUDA_VISIBLE_DEVICES=  # hides a GPU of this machine from `orthant`
no_gpu='no GPU can be used'
! "$orthant" doctor | grep -q 'not in this build' || no_gpu='error: this build of orthant has no CUDA (try device=cpu)'

on_gpu() { OT_TEST_DEVICE=cuda "$emulated" "$@"; }
