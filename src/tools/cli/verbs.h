// SPDX-License-Identifier: Apache-2.0
// All verbs of the program; main.c has the table. To add one: a cmd_<verb>.c that defines it, a
// line here, and a line in main.c.
#pragma once

#include "cli/options.h"

extern const ot_verb ot_verb_plan;
extern const ot_verb ot_verb_train;
extern const ot_verb ot_verb_audit;
extern const ot_verb ot_verb_report;
extern const ot_verb ot_verb_ledger;
extern const ot_verb ot_verb_checkpoint;
extern const ot_verb ot_verb_tokenize;
extern const ot_verb ot_verb_data;
extern const ot_verb ot_verb_sample;
extern const ot_verb ot_verb_score;
extern const ot_verb ot_verb_serve;
extern const ot_verb ot_verb_rl;
extern const ot_verb ot_verb_distill;
extern const ot_verb ot_verb_judge;
extern const ot_verb ot_verb_convert;
extern const ot_verb ot_verb_schedule;
extern const ot_verb ot_verb_simulate;
extern const ot_verb ot_verb_config;
extern const ot_verb ot_verb_presets;
extern const ot_verb ot_verb_bench;
extern const ot_verb ot_verb_doctor;
extern const ot_verb ot_verb_completion;

// The verb called `name`, or null.
const ot_verb *ot_verb_find(const char *name);

// All verbs, in the order of the help text; null after the last.
const ot_verb *const *ot_verb_list(void);
