#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: alone. Runs each rule of tools/lint on a small tree that breaks it: every rule must fail.
set -euo pipefail
lint=$(pwd)/tools/lint
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
spdx='// SPDX-License-Identifier: Apache-2.0'
failures=0

fresh_tree() {
  rm -rf "$tree"/*
  mkdir -p src/core/base src/step/graph src/training/train src/step/ops tests tools build
  echo '# SPDX-License-Identifier: Apache-2.0' | tee CMakeLists.txt >Makefile
  printf '%s\n' 'plan | core | base | | values' 'plan | step | ops | | ops' 'plan | step | graph | ops | graphs' \
    'engine | training | train | graph+ | the loop' >src/modules.txt
  printf '%s\n' "$spdx" '#pragma once' 'int ot_one(void);' >src/core/base/one.h
  printf '%s\n' "$spdx" '#include "base/one.h"' 'int ot_one(void) { return 1; }' >src/core/base/one.c
}

build_library() {
  local objects=()
  for source in src/core/base/*.c src/step/graph/*.c; do
    [ -f "$source" ] || continue
    cc -std=c17 -O1 -Isrc/core -Isrc/step -c "$source" -o "build/$(basename "$source").o"
    objects+=("build/$(basename "$source").o")
  done
  ar rcs build/liborthant_plan.a "${objects[@]}"
}

# expect TEXT: the lint fails on the tree and prints TEXT.
expect() {
  build_library
  if "$lint" "$tree" build >said 2>&1 || ! grep -qF -- "$1" said; then
    echo "not found: $1"
    cat said
    failures=$((failures + 1))
  fi
  fresh_tree
}

source_file() {
  local path=$1
  shift
  printf '%s\n' "$spdx" "$@" >"$path"
}

# A function ot_NAME whose body is the given lines.
function_of() { printf '%s\n' "int ot_$1(int x);" "int ot_$1(int x) {" "${@:2}" '  return x;' '}'; }

repeat() { for ((i = 0; i < $1; i++)); do echo "$2"; done; }

fresh_tree
build_library
"$lint" "$tree" build || { echo 'the clean tree is not clean'; exit 1; }

source_file src/step/graph/two.c '#include "schedule/order.h"'
mkdir -p src/step/schedule && source_file src/step/schedule/order.h '#pragma once'
sed -i 's/^#include.*/\/\/ &/' src/step/graph/two.c && build_library && sed -i 's/^\/\/ #inc/#inc/' src/step/graph/two.c
if "$lint" "$tree" build >said 2>&1 || ! grep -qF 'graph/ may not include "schedule/order.h"' said; then
  echo 'not found: a room that includes one above it'
  failures=$((failures + 1))
fi
fresh_tree

source_file src/step/graph/two.c '#include <stdio.h>'
expect 'graph/ may not include <stdio.h>'

source_file src/step/ops/two.c '#include "device/device.h"'
expect 'ops/ may not include "device/device.h"'

mkdir src/core/other
expect 'src/core/other: a module has a folder and a row in src/modules.txt'

mkdir docs && printf '%s\n' '<!-- modules -->' '| graph |' '<!-- end of modules -->' >docs/architecture.md
expect 'docs/architecture.md: not the table of src/modules.txt'

{ echo "$spdx"; function_of two "$(repeat 69 '  x++;')"; } >src/core/base/two.c
expect 'function of 72 lines'

{ echo "$spdx"; repeat 600 '// line'; } >src/core/base/two.c
expect 'file of more than 600 lines'

source_file src/core/base/two.c "// $(printf 'x%.0s' {1..99})"
expect 'line of 102 columns'

{ echo "$spdx"; function_of two '#if 1' '  x++;' '#endif'; } >src/core/base/two.c
expect 'preprocessor condition inside a function'

{ echo "$spdx"; function_of two '  if (x) {' 'if (x) {' 'if (x) {' 'if (x) {' 'x++;' '}}}}'; } >src/core/base/two.c
expect 'nested deeper than three'

source_file src/core/base/two.c 'int ot_two(int a, int b, int c,' '           int d, int e, int f);'
expect 'more than five parameters'

{ echo "$spdx"; function_of two '  printf("%d", x);'; } >src/training/train/two.c
expect 'printing and exiting belong to cli/'

{ echo "$spdx"; function_of two '  fprintf(stderr, "%d", x);'; } >src/training/train/two.c
expect 'printing and exiting belong to cli/'

echo 'int ot_two(void);' >src/core/base/two.h
expect 'the first line is not the SPDX line'

echo 'echo' >tools/two.sh
expect 'tools/two.sh: no SPDX line'

source_file src/training/train/one.h '#pragma once'
expect 'file name used twice: one.h'

source_file src/core/base/two.h '#pragma once' 'int64_t ot_two(void);'
expect 'src/core/base/two.h: does not compile alone'

source_file src/core/base/two.c 'double log(double);' 'double ot_two(double x);' 'double ot_two(double x) { return log(x); }'
expect 'the planning half may not use log'

source_file src/core/base/two.c 'int two(void) { return 2; }'
expect 'exports two'

source_file src/core/base/two.c 'int ot_two(void);' 'int ot_two(void) { static int calls; return calls++; }'
expect 'mutable global'

rm -f build/liborthant_plan.a
if "$lint" "$tree" build >said 2>&1 || ! grep -q 'missing, so' said; then
  echo 'not found: a missing library'
  failures=$((failures + 1))
fi

# Includes through others, as a build recorded them, in a tree that lies below a folder called src.
deep=$tree/src/orthant
built() { (cd build && ninja >/dev/null && cd .. && "$lint" "$deep" build) >"$tree/said" 2>&1; }
fresh_tree
mkdir "$deep" && cp -r src/core/base src/step/graph "$deep" --parents && cd "$deep" && mkdir -p src/training/train src/step/ops build
cp ../../CMakeLists.txt ../../Makefile . && cp ../modules.txt src && build_library
source_file src/core/base/three.h '#pragma once' '#include "base/one.h"'
source_file src/core/base/two.c '#include "base/three.h"'
printf '%s\n' 'rule cc' "  command = cc -I$deep/src/core -I$deep/src/training -MD -MF \$out.d -c \$in -o \$out" '  deps = gcc' '  depfile = $out.d' \
  "build src/core/base/two.c.o: cc $deep/src/core/base/two.c" >build/build.ninja
built || { echo 'a tree below src is not clean'; cat "$tree/said"; failures=$((failures + 1)); }
source_file src/training/train/four.h '#pragma once'
source_file src/core/base/three.h '#pragma once' '#include "train/four.h"'
if built || ! grep -q 'src/core/base/two.c: includes train/ through others' "$tree/said"; then
  echo 'not found: an include through others'
  failures=$((failures + 1))
fi
[ "$failures" -eq 0 ] || { echo "$failures rules did not fail"; exit 1; }
echo 'every rule fails where it must'
