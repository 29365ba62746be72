#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# web/bundle.sh FOLDER PROGRAM: fills web/index.html into FOLDER/orthant.html, one file. A line
# "@include NAME" becomes the file web/NAME; "@packed NAME" becomes, with gzip and as text
# (web/text_of.awk), the module `orthant.wasm`; or `parts`: all other scripts, the style with the
# colours of the reports (src/tools/report/page_style.c), the presets, and, of PROGRAM, its options and the plan that the page shows first.
set -euo pipefail
folder=$(realpath "$1") program=$(realpath "$2")
cd "$(dirname "$0")/.."

colours() {  # light|dark: the custom properties in the C strings
  sed -n "/ot_colours_$1\[\]/,/;\$/p" src/tools/report/page_style.c | grep -o '"[^"]*"' | tr -d '"\n'
}

put_style() {
  echo ":root{color-scheme:light;$(colours light)}"
  echo "@media (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;$(colours dark)}}"
  echo ":root[data-theme=dark]{color-scheme:dark;$(colours dark)}"
  cat web/style.css
}

# Without whole lines of comment, and indentation; no text of the scripts spans lines.
strip() { sed -e '/^ *\/\/ /d' -e '/SPDX-License-Identifier/d' -e 's/^ *//'; }

# Each file after a line "%%% KIND/NAME", without comments.
put_presets() {
  local file
  for file in presets/*/*; do
    echo "%%% ${file#presets/}"
    sed -e '/^ *#/d' -e 's/  *#.*//' "$file"
  done
}

# A line "KEY<tab>WORDS<tab>HELP" for each option of a plan; WORDS: of a choice.
put_options() {
  "$program" completion fish |
    sed -nE "s/^.*_from plan' -l ([a-z-]+) -d '(([^'\\\\]|\\\\.)*)'( -x -a '(.*)')?.*/\\1\t\\5\t\\2/p" |
    sed -E -e ':key s/^([a-z_]*)-/\1_/; t key' -e 's/\\(.)/\1/g'
}

# The state that the page starts with, and its answer.
put_given() {
  echo '{"state":{"model":"llama3-8b","cluster":"h100","gpus":"64"},"answer":'
  "$program" plan --model llama3-8b --cluster h100 --gpus 64 --json | sed 's/^ *//' | tr -d '\n'
  echo '}'
}

put_parts() {
  echo '%%%% style'
  put_style | strip
  echo '%%%% page'
  local name
  for name in yaml job format dom state service knobs charts timeline result sections compare sweep files tour main; do
    strip <"web/$name.js"
  done
  echo '%%%% options'
  put_options
  echo '%%%% presets'
  put_presets
  echo '%%%% given'
  put_given
}

fill() {
  local line name
  while IFS= read -r line; do
    case $line in
      '@include '*) strip <"web/${line#@include }" ;;
      *'@packed '*)
        name=${line#*@packed }
        name=${name%%<*}
        printf '%s' "${line%%@packed*}"
        gzip -9nc "$folder/$name" | od -An -v -tu1 | LC_ALL=C awk -f web/text_of.awk
        echo "${line#*@packed "$name"}" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done <web/index.html
}

put_parts >"$folder/parts"
fill >"$folder/orthant.html.new"
mv "$folder/orthant.html.new" "$folder/orthant.html"
bytes=$(stat -c %s "$folder/orthant.html") small=$(gzip -9c "$folder/orthant.html" | wc -c)
echo "$folder/orthant.html: $bytes bytes, $small with gzip"
[ "$bytes" -le 400000 ] && [ "$small" -le 340000 ] ||
  { echo "error: the page has more than 400,000 bytes, or 340,000 with gzip" >&2; exit 3; }
