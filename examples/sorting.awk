# SPDX-License-Identifier: Apache-2.0
# Lines of the task of sorting digits: 2 to 10 of them, n with probability 1/n, so answers have a
# heavy tail. -v lines=N -v seed=S; -v noise=X writes demonstrations, in which each digit of the answer
# is replaced by a random one with probability X/sqrt(n), instead of prompts with their answers.
function draw() { state = state * 16807 % 2147483647; return state / 2147483647 }
BEGIN {
  state = seed * 7919 + 12345
  for (n = 2; n <= 10; n++) total += 1 / n
  for (line = 0; line < lines; line++) {
    left = draw() * total
    for (n = 2; n < 10 && (left -= 1 / n) > 0; n++) continue
    digits = answer = ""
    split("0,0,0,0,0,0,0,0,0,0", count, ",")
    for (i = 0; i < n; i++) { d = int(10 * draw()); count[d + 1]++; digits = digits d }
    for (d = 0; d < 10; d++) for (i = 0; i < count[d + 1]; i++) {
      answer = answer (draw() < noise / sqrt(n) ? int(10 * draw()) : d)
    }
    if (noise) print "{\"text\": \"" digits ">" answer "\"}"
    else print "{\"prompt\": \"" digits ">\", \"answer\": \"" answer "\"}"
  }
}
