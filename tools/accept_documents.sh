#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of pages and updates the outputs that the pages show. Review the diff before you
# commit it. OT_TESTS=full includes slow commands.
#   tools/accept_documents.sh [PAGE...]      default: README.md and docs/*.md;   BUILD=build
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- README.md docs/*.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
for page; do
  [ -f "$page" ] || { echo "error: no such page ($page)" >&2; exit 2; }
  # Differences of outputs are expected here; other failures are printed.
  bash tests/docs/run_page.sh "${BUILD:-build}/orthant" "$page" "$new" || true
  cmp -s "$new" "$page" || cat "$new" >"$page"
done
git --no-pager diff --stat -- "$@" || true
