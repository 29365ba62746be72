// SPDX-License-Identifier: Apache-2.0
// The table.
#include "describe/optimizer_rules.h"

#include <assert.h>

const char *const ot_optimizer_names[] = {
    [OT_OPTIMIZER_ADAMW] = "adamw", [OT_OPTIMIZER_MUON] = "muon", [OT_OPTIMIZERS] = NULL};

// clang-format off
static const ot_optimizer_rules rules_of[] = {
    [OT_OPTIMIZER_ADAMW] = {.name = OT_OPTIMIZER_ADAMW, .moments = 2,
                            .decays = {{"betas[0]", offsetof(ot_run_optimizer, betas[0])},
                                       {"betas[1]", offsetof(ot_run_optimizer, betas[1])}}},
    [OT_OPTIMIZER_MUON] = {.name = OT_OPTIMIZER_MUON, .moments = 1,
                           .decays = {{"momentum", offsetof(ot_run_optimizer, momentum)}},
                           .whole_matrices = true, .spectral_updates = true},
};
// clang-format on
static_assert(OT_COUNT(rules_of) == OT_OPTIMIZERS, "one row for each optimizer");

const ot_optimizer_rules *ot_optimizer_rules_of(const ot_run *run, bool matrix) {
  const ot_optimizer_name name = run && matrix ? run->optimizer.name : OT_OPTIMIZER_ADAMW;
  OT_ASSERT((int)name >= 0 && name < OT_OPTIMIZERS);
  return &rules_of[name];
}

double ot_optimizer_decay(const ot_run *run, const ot_optimizer_rules *rules, int index) {
  if (index >= rules->moments) return 0;
  return *(const double *)((const char *)&run->optimizer + rules->decays[index].offset);
}
