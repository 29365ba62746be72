#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# web/shorten.sh SOURCE SHORT: a table of keys (base/schema.h) without its texts of help, which are
# for the commented example and lists of the program. Those of values that are not supported stay:
# they are the reason in a message.
set -euo pipefail
text='\.help\s*=\s*("([^"\\]|\\.)*"\s*)+'
sed -zE -e 's/(OT_KEY_FIXED[^}]*)\.help/\1.reason/g' -e "s/$text/.help = \"\"/g" \
  -e 's/\.reason/.help/g' "$1" >"$2"
