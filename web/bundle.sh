#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# web/bundle.sh MODULE PAGE: fills web/index.html into one file. A line "@include NAME" becomes the
# file web/NAME, "@include colours" the colours of the reports (src/report/page_style.c), and
# "@payload" the module or the presets, compressed, in base64.
set -euo pipefail
module=$1 page=$2
cd "$(dirname "$0")/.."

colours() {  # light|dark: the custom properties in the C strings
  sed -n "/ot_colours_$1\[\]/,/;\$/p" src/report/page_style.c | grep -o '"[^"]*"' | tr -d '"\n'
}

put_colours() {
  echo ":root{color-scheme:light;$(colours light)}"
  echo "@media (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;$(colours dark)}}"
  echo ":root[data-theme=dark]{color-scheme:dark;$(colours dark)}"
}

# Without whole lines of comment, and indentation; no text of the scripts spans lines.
strip() { sed -e '/^ *\/\/ /d' -e '/SPDX-License-Identifier/d' -e 's/^ *//'; }

pack() { gzip -9n | base64 -w0; }

# Each file after a line "%%% KIND/NAME".
put_presets() {
  local file
  for file in presets/*/*; do
    echo "%%% ${file#presets/}"
    cat "$file"
  done
}

fill() {
  local line
  while IFS= read -r line; do
    case $line in
      '@include colours') put_colours ;;
      '@include '*) strip <"web/${line#@include }" ;;
      *'@payload module'*)
        printf '%s' "${line%@payload*}"; pack <"$module"; echo "${line#*@payload module}" ;;
      *'@payload presets'*)
        printf '%s' "${line%@payload*}"; put_presets | pack; echo "${line#*@payload presets}" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done <web/index.html
}

fill >"$page.new"
mv "$page.new" "$page"
bytes=$(stat -c %s "$page")
echo "$page: $bytes bytes, $(gzip -9c "$page" | wc -c) with gzip"
[ "$bytes" -le 400000 ] || { echo "error: the page has more than 400,000 bytes" >&2; exit 3; }
