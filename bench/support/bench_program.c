// SPDX-License-Identifier: Apache-2.0
// main() of a benchmark program: parses its options, runs it, prints its failure.
#include "support/bench_program.h"

#include <stdio.h>

#include "cli/output.h"
#include "host/library_settings.h"

int main(int count, char **words) {
  ot_libraries_configure(words);
  ot_output_catch_bugs();
  const ot_status status = ot_verb_run(&ot_bench_program, count - 1, words + 1);
  if (status != OT_OK && ot_fail_message()[0] != '\0') ot_output_failure(status);
  return (int)status;
}
