// SPDX-License-Identifier: Apache-2.0
// All verbs of the program. To add one: a cmd_<verb>.c that defines ot_verb_<verb>, and a line in
// this list.
#pragma once

#include "cli/options.h"

// Calls VERB(name) for each verb, in the order of the help text.
// clang-format off
#define OT_EACH_VERB(VERB) \
  VERB(plan) \
  VERB(train) \
  VERB(audit) \
  VERB(judge) \
  VERB(report) \
  VERB(ledger) \
  VERB(checkpoint) \
  VERB(tokenize) \
  VERB(data) \
  VERB(sample) \
  VERB(score) \
  VERB(serve) \
  VERB(rl) \
  VERB(distill) \
  VERB(convert) \
  VERB(schedule) \
  VERB(simulate) \
  VERB(config) \
  VERB(presets) \
  VERB(bench) \
  VERB(doctor) \
  VERB(completion)
// clang-format on

#define OT_DECLARE_VERB(name) extern const ot_verb ot_verb_##name;
OT_EACH_VERB(OT_DECLARE_VERB)
#undef OT_DECLARE_VERB

// The verb called `name`, or null.
const ot_verb *ot_verb_find(const char *name);

// All verbs, in the order of the help text; null after the last.
const ot_verb *const *ot_verb_list(void);
