# SPDX-License-Identifier: Apache-2.0
# LC_ALL=C awk -f web/text_of.awk: numbers of bytes, as `od -An -v -tu1` writes them, as UTF-8 text
# that an element <script> keeps as it is; bytesOf in web/engine.js reads it. A character is 7 bits;
# for NUL, CR and "<", which would not survive, stand the characters 128, 129 and 130.
function put(value) {
  if (value in apart) printf "%c%c", 194, apart[value]
  else printf "%c", value
}

BEGIN { apart[0] = 128; apart[13] = 129; apart[60] = 130 }

{
  for (i = 1; i <= NF; i++) {
    word = word * 256 + $i
    for (bits += 8; bits >= 7; word %= power) {
      bits -= 7
      power = 2 ^ bits
      put(int(word / power))
    }
  }
}

END { if (bits > 0) put(word * 2 ^ (7 - bits)) }
