# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of runs, in the source tree, after `orthant` is set: goes to an empty folder, which is
# removed at the end, with the tokens `train` of some sources (tokenizer `bytes`). Sets `work` and
# `source_dir`.
. tests/support/expect.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work" || exit 1
"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null 2>&1
