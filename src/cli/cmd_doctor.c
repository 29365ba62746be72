// SPDX-License-Identifier: Apache-2.0
// `orthant doctor`: what this program runs on, for a person or a bug report.
#include <stdio.h>

#include "cli/verbs.h"

static ot_status run(const ot_options *options) {
  (void)options;
  printf("orthant %s\n", OT_VERSION);
  return OT_OK;
}

const ot_verb ot_verb_doctor = {
    .name = "doctor",
    .summary = "versions, libraries and machine, for a bug report",
    .arguments = "",
    .run = run,
};
