# SPDX-License-Identifier: Apache-2.0
# Splits a Markdown page into files in folder `to`, for run_page.sh:
#   N.run N.words     command N, and the words of the comment that holds for it
#   N.shown N.place   output that the page shows for it, and on which lines; portions end with a form feed
#   inline            commands in the prose, in blocks marked usage, and those that are run: LINE<tab>COMMAND
#   links paths       targets of links, and files that the prose names
#   wrong             what a page must not have
# The top of run_page.sh describes what a page may contain.

function trim(text) {
  gsub(/^[ \t]+|[ \t]+$/, "", text)
  return text
}

function say(name, text) { print text >(to "/" name) }
function file_of(ending) { return sprintf("%s/%03d.%s", to, count, ending) }

function add_command(text, words) {
  count++
  printf "%s\n", text >file_of("run")
  close(file_of("run"))
  print words >file_of("words")
  close(file_of("words"))
  gsub(/\\\n/, " ", text)
  sub(/\n.*/, "", text)
  say("inline", NR "\t" text)
}

# A line of a block of commands, with its continuation lines or here-document.
function take_command_line(line, words) {
  if (pending == "" && line ~ /^[ \t]*(#.*)?$/) return
  pending = pending line
  if (here != "") {
    if (line == here) here = ""
  } else if (match(line, /<<'?[A-Z]+'?/)) {
    here = substr(line, RSTART, RLENGTH)
    gsub(/[<']/, "", here)
  }
  if (here == "" && line !~ /\\$/) {
    add_command(pending, words)
    pending = ""
  } else {
    pending = pending "\n"
  }
}

# A line of prose: its code spans and links, which may span several lines of a paragraph.
function end_paragraph(    rest, span) {
  rest = paragraph
  paragraph = ""
  while (match(rest, /``[^`]+``|`[^`]+`/)) {
    span = substr(rest, RSTART, RLENGTH)
    rest = substr(rest, 1, RSTART - 1) " " substr(rest, RSTART + RLENGTH)
    gsub(/^`+|`+$/, "", span)
    if (span ~ /^(orthant|mpirun|srun|build\/bench\/|make) ?/) say("inline", NR "\t" span)
    if (span ~ /^[a-z][a-z_]*\/[A-Za-z0-9_.\/-]*\.(c|h|sh|py|yaml|json|md|awk)$|^(tests|tools|examples|presets)\/[A-Za-z0-9_.\/-]+$/)
      say("paths", NR "\t" span)
  }
  while (match(rest, /\]\([^)]+\)/)) {
    span = substr(rest, RSTART + 2, RLENGTH - 3)
    rest = substr(rest, RSTART + RLENGTH)
    if (span !~ /^[a-z]+:/) say("links", NR "\t" span)
  }
}

function take_words(text) {
  words = trim(text)
  from_comment = 1
}

# Output belongs to the last command before it. The words of that command's comment apply, and its
# own.
function begin_shown() {
  if (!count) say("wrong", NR ": shows the output of no command")
  first = NR + 1
  if (from_comment) print words >>file_of("words")
  close(file_of("words"))
}

function end_shown() {
  print "\f" >>file_of("shown")
  close(file_of("shown"))
  print first, NR - 1 >>file_of("place")
  close(file_of("place"))
}

in_comment && /-->[ \t]*$/ { in_comment = 0; next }
in_comment { take_command_line($0, words); next }
!block && /^<!-- test:/ {
  end_paragraph()
  in_comment = !/-->[ \t]*$/
  sub(/^<!-- test:/, "")
  sub(/-->[ \t]*$/, "")
  take_words($0)
  next
}
!block && /^ *```/ {
  end_paragraph()
  block = trim($0)
  sub(/^```/, "", block)
  block = block == "" ? "none" : block
  if (block == "sh") sh_words = from_comment ? words : ""
  if (block == "text") begin_shown()
  from_comment = 0
  next
}
block && /^ *```$/ {
  if (block == "text") end_shown()
  block = ""
  next
}
block == "sh" { take_command_line($0, sh_words); next }
block == "text" { print >>file_of("shown"); next }
block == "usage" && /orthant/ { say("inline", NR "\t" $0); next }
block == "none" && /^(\$ )?(orthant|build\/|make|mpirun|examples\/|tools\/)/ {
  say("wrong", NR ": a command in a block that is not marked sh")
}
block { next }
/^[ \t]*$/ || /^#/ || /^\|/ { end_paragraph() }
{ paragraph = paragraph " " $0 }
END {
  end_paragraph()
  if (pending != "") say("wrong", NR ": a command that does not end")
}
