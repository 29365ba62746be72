# SPDX-License-Identifier: Apache-2.0
# Commands that are checked and not run: their program, verb and options must exist.
#   awk -f check_commands.awk KNOWN COMMANDS
# KNOWN lists what exists, one per line: "orthant VERB --option", "build/bench/NAME --option", "make
# TARGET". COMMANDS has lines PLACE<tab>COMMAND. Prints errors.

function check(place, command,    words, n, i, word, program, what) {
  sub(/ # .*/, "", command)
  gsub(/[][`"'\\]/, " ", command)
  n = split(command, words, " ")
  for (i = 1; i <= n; i++) {
    word = words[i]
    if (!program && word ~ /^(build\/)?orthant$/) program = what = "orthant"
    else if (!program && word ~ /^(make$|build\/bench\/.)/) program = what = word
    else if (what == "") continue
    else if (word ~ /^--[a-z]/) {
      sub(/[=:;,.)].*/, "", word)
      if (what != "orthant" && !((what " " word) in known)) print place ": " what " has no option " word
    } else if ((what == "orthant" || what == "make") && word ~ /^[a-z-]+$/) {
      what = what " " word
    }
    if (what ~ / / || program ~ /\//) if (!(what in known)) {
      print place ": there is no " what
      return
    }
  }
}

BEGIN { FS = "\t" }
NR == FNR { known[$0] = 1; next }
{
  n = split($2, parts, / (\||&&|;) /)
  for (p = 1; p <= n; p++) check($1, parts[p])
}
