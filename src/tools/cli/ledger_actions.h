// SPDX-License-Identifier: Apache-2.0
// The actions of `orthant ledger` that have files of their own, and what they share.
#pragma once

#include "cli/options.h"
#include "ledger/ledger.h"

typedef struct ot_ledger_command {
  const ot_options *options;
  bool as_json;
  ot_ledger ledger;
} ot_ledger_command;

ot_status ot_ledger_init(ot_ledger_command *command);
ot_status ot_ledger_fit(ot_ledger_command *command);
ot_status ot_ledger_merge(ot_ledger_command *command);
ot_status ot_ledger_rerun(ot_ledger_command *command);
ot_status ot_ledger_bisect(ot_ledger_command *command);
ot_status ot_ledger_report(ot_ledger_command *command);
ot_status ot_ledger_export(ot_ledger_command *command);

// A registered change whose file is still the registered one.
ot_status ot_ledger_take_change(const ot_ledger *ledger, const char *name, ot_ledger_change *out);

// Audits, tunes and runs `changes` together for `pairs` pairs. OT_FINDINGS, after the verdict was
// recorded, if an audit has a finding.
ot_status ot_ledger_run_change(ot_ledger_command *command, const ot_ledger_change *const *changes,
                               int num_changes, int pairs);

// Records that an audit found `finding` in `change`. Always OT_FINDINGS.
ot_status ot_ledger_veto(ot_ledger *ledger, const char *change, const char *finding);

// The newest look and verdict of a change as a JSON document.
const char *ot_ledger_lines_json(const ot_ledger *ledger, const char *change);

// The hash of the weights of the baseline after ten steps at the first scale and seed, as `program`
// computes them; null: this one.
ot_status ot_ledger_find_bits(const ot_ledger *ledger, const char *program, const char **bits);

// The path of a file, of the current directory unless it is absolute, as the files of the existing
// directory `from` name it.
ot_status ot_ledger_path_from(ot_arena *arena, const char *path, const char *from,
                              const char **out);

// The file `name` next to the base.
const char *ot_ledger_base_path(const ot_ledger *ledger, const char *name);
