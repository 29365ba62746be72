// SPDX-License-Identifier: Apache-2.0
// main() of a benchmark program: reads its options, runs it, prints its failure.
#include "support/bench_program.h"

#include <stdio.h>

#include "cli/output.h"
#include "cli/short_waits.h"

static ot_status run(int count, char *const *words) {
  ot_options *options;
  OT_TRY(ot_options_create(&ot_bench_program, count, words, &options));
  ot_status status = OT_OK;
  if (ot_options_asks_help(options)) {
    ot_options_print_help(&ot_bench_program);
  } else {
    status = ot_bench_program.run(options);
  }
  ot_options_destroy(&options);
  return status;
}

int main(int count, char **words) {
  ot_short_waits(words);
  ot_output_catch_bugs();
  const ot_status status = run(count - 1, words + 1);
  if (status != OT_OK && ot_fail_message()[0] != '\0') ot_output_failure(status);
  return (int)status;
}
