# SPDX-License-Identifier: Apache-2.0
# Compares the output that a page shows with that of a run:
#   awk -v words="WORDS" -f compare_output.awk SHOWN OUTPUT           exit 1 and the first difference
#   awk -v renew=1 -f compare_output.awk SHOWN OUTPUT                 prints what the page should show
# A line "..." (and the end of a portion, a form feed) stands for any number of lines. Text must be equal
# except for the width of white space. Numbers:
#   integers               equal
#   others                 within 1e-3, or `within X`, or one unit of the last place shown
#   both below 1e-5        equal: rounding errors
#   before us ms s min h (also a step) tok/s MiB, and the units of `free UNIT...`   any number; `numbers free`: all of them
#   `exact`                every number as it is shown

function squeeze(text) {
  gsub(/[ \t]+/, " ", text)
  sub(/^ /, "", text)
  sub(/ $/, "", text)
  return text
}

# The length of a unit at the start of `text` whose numbers depend on the machine; 0 if there is
# none.
function free_unit(text,    i, skip, unit) {
  for (i = 1; i <= num_units; i++) {
    unit = free_units[i]
    for (skip = 0; skip <= 2; skip++) {
      if (substr(text, 1, skip) !~ /^[kMGT]? ?$/ || substr(text, skip + 1, length(unit)) != unit) continue
      if (substr(text, skip + length(unit) + 1, 1) !~ /[A-Za-z0-9_\/]/) return skip + length(unit)
    }
  }
  return 0
}

function last_place(number,    mantissa, point, exponent) {
  mantissa = number
  exponent = 0
  if (match(number, /e/)) {
    mantissa = substr(number, 1, RSTART - 1)
    exponent = substr(number, RSTART + 1) + 0
  }
  point = index(mantissa, ".")
  return 10 ^ (exponent - (point ? length(mantissa) - point : 0))
}

function size_of(x) { return x < 0 ? -x : x + 0 }

# Whether y, in words like x, may replace x.
function near(x, y,    difference, larger) {
  if (x == y || all_free) return 1
  if (exact || x !~ /[.e]/ && y !~ /[.e]/) return 0
  difference = size_of(x - y)
  larger = size_of(x + 0) > size_of(y + 0) ? size_of(x + 0) : size_of(y + 0)
  return larger < 1e-5 || difference <= bound * larger || difference <= 1.001 * last_place(x)
}

function same(a, b,    at_a, at_b, length_a, length_b, x, y, unit_a, unit_b) {
  a = squeeze(a)
  b = squeeze(b)
  for (;;) {
    at_a = match(a, number); length_a = RLENGTH
    at_b = match(b, number); length_b = RLENGTH
    if (!at_a || !at_b) return a == b
    if (substr(a, 1, at_a - 1) != substr(b, 1, at_b - 1)) return 0
    x = substr(a, at_a, length_a)
    y = substr(b, at_b, length_b)
    a = substr(a, at_a + length_a)
    b = substr(b, at_b + length_b)
    unit_a = free_unit(a)
    unit_b = free_unit(b)
    if (!exact && unit_a && unit_b) {
      a = substr(a, unit_a + 1)
      b = substr(b, unit_b + 1)
    } else if (!near(x "", y "")) {
      return 0
    }
  }
}

# The share of words that two lines have in common.
function common_words(a, b,    n, m, i, word, have, common) {
  n = split(a, word, /[ \t]+/)
  for (i = 1; i <= n; i++) have[word[i]]++
  m = split(b, word, /[ \t]+/)
  for (i = 1; i <= m; i++) if (have[word[i]]-- > 0) common++
  return 2 * common / (n + m)
}

# Similarity regardless of numbers; among otherwise similar lines, those with equal numbers win.
function likeness(a, b,    with_numbers) {
  with_numbers = common_words(a, b)
  gsub(number, "#", a)
  gsub(number, "#", b)
  return common_words(a, b) + with_numbers / 10
}

# The line of the output, from line `from` on, most similar to `line`; 0 if none is. Among equal
# ones the closest to line `near_at`, if given.
function best(line, from, near_at,    i, score, top, at) {
  for (i = from; i <= num_output; i++) {
    score = likeness(line, output[i])
    if (near_at) score -= size_of(i - near_at) / 500
    if (score > top) { top = score; at = i }
  }
  return top > 0.4 ? at : 0
}

# The end of as many paragraphs as segment s has, from line `from` of the output on.
function end_of_paragraphs(s, from,    i, blanks) {
  for (i = begin[s]; i <= end[s]; i++) blanks += shown[i] == ""
  for (i = from; i < num_output && (output[i + 1] != "" || blanks > 0); i++) blanks -= output[i + 1] == ""
  return i
}

# Lines of the output that correspond to segment s, from line `from` on.
function renew_segment(s, from,    first, last, i) {
  first = s == 1 && !open_begin ? 1 : best(shown[begin[s]], from)
  if (!first) {
    print "not found in the output: " shown[begin[s]] >"/dev/stderr"
    for (i = begin[s]; i <= end[s]; i++) print shown[i]
    return from
  }
  last = s == num_segments && !open_end ? num_output : best(shown[end[s]], first, first + end[s] - begin[s])
  if (!last) last = end_of_paragraphs(s, first)
  for (i = first; i <= last; i++) print output[i]
  return last + 1
}

function renew_all(    i, s, from) {
  from = 1
  for (i = 1; i <= num_shown; i++) {
    if (shown[i] == "..." || shown[i] == "\f") print shown[i]
    if (i in starts) from = renew_segment(starts[i], from)
  }
}

# Number of lines of segment s that equal those of the output from line `at` on.
function equal_lines(s, at,    i) {
  for (i = 0; begin[s] + i <= end[s]; i++) if (!same(shown[begin[s] + i], output[at + i])) break
  return i
}

# The line after segment s in the output, from line `from` on; 0 if it is absent.
function find_segment(s, from,    size, at, last, equal, most, near_at) {
  size = end[s] - begin[s] + 1
  last = num_output - size + 1
  if (s == num_segments && !open_end && (s > 1 || open_begin) && last > from) from = last
  most = -1
  for (at = from; at <= (s == 1 && !open_begin ? 1 : num_output); at++) {
    equal = equal_lines(s, at)
    if (equal == size && (at == last || open_end || s < num_segments)) return at + size
    if (equal > most) { most = equal; near_at = at }
  }
  if (most < 0) print "  shown, but the output has ended: " shown[begin[s]]
  else if (most == size) print "  the output goes on: " output[near_at + size]
  else print "  shown:  " shown[begin[s] + most] "\n  output: " output[near_at + most]
  return 0
}

BEGIN {
  number = "[-+]?[0-9]+(\\.[0-9]+)?(e[-+]?[0-9]+)?"
  list = "ns us ms s min h us/step ms/step s/step tok/s MiB"
  bound = 1e-3
  all_free = words ~ /numbers free/
  exact = words ~ /exact/
  if (match(words, /within [0-9.e-]+/)) bound = substr(words, RSTART + 7, RLENGTH - 7) + 0
  if (match(words, /free [^,]*/)) list = list " " substr(words, RSTART + 5, RLENGTH - 5)
  num_units = split(list, free_units, " ")
}
NR == FNR { shown[++num_shown] = $0; next }
{ output[++num_output] = $0 }
END {
  while (num_output && output[num_output] ~ /^[ \t]*$/) num_output--
  if (num_shown && shown[num_shown] == "\f" && !renew) num_shown--
  for (i = 1; i <= num_shown; i++) {
    if (shown[i] == "..." || shown[i] == "\f") { inside = 0; continue }
    if (!inside) { begin[++num_segments] = i; starts[i] = num_segments; inside = 1 }
    end[num_segments] = i
  }
  open_begin = shown[1] == "..."
  last_line = shown[num_shown] == "\f" ? shown[num_shown - 1] : shown[num_shown]
  open_end = last_line == "..."
  if (renew) { renew_all(); exit 0 }
  next_line = 1
  for (s = 1; s <= num_segments; s++) if (!(next_line = find_segment(s, next_line))) exit 1
}
