// SPDX-License-Identifier: Apache-2.0
// Refuses runs that this back end does not support.
#include "train/trainer.h"

// Storage dtypes of this back end: others are rejected, never replaced by a similar one.
static ot_status check_precision(const ot_run_precision *precision) {
  const ot_dtype wide = precision->compute == OT_F64 ? OT_F64 : OT_F32;
  const struct {
    const char *key;
    ot_dtype type;
    bool narrow;  // bf16 is supported, too
  } kept[] = {{"params", precision->params, true},
              {"gradients", precision->gradients, true},
              {"reduce", precision->reduce, true},
              {"master", precision->master, false},
              {"moments", precision->moments, true}};
  OT_CHECK(precision->compute != OT_F16 && precision->compute != OT_F8, OT_ENVIRONMENT,
           "precision: compute=%s is not supported by this back end (try bf16 or fp32)",
           ot_dtype_name(precision->compute));
  for (int i = 0; i < OT_COUNT(kept); i++) {
    const bool there = kept[i].type == wide || (kept[i].narrow && kept[i].type == OT_BF16);
    OT_CHECK(there, OT_ENVIRONMENT, "precision: %s=%s is not supported by this back end (try %s%s)",
             kept[i].key, ot_dtype_name(kept[i].type), ot_dtype_name(wide),
             kept[i].narrow ? " or bf16" : "");
  }
  return OT_OK;
}

ot_status ot_trainer_check(const ot_run *run) {
  for (int64_t i = 0; i < run->audit.num_checks; i++) {
    OT_CHECK(run->audit.checks[i] != OT_AUDIT_OVERLAP, OT_USAGE,
             "audit.checks: overlap runs its own steps and cannot be part of a run (try `orthant "
             "audit overlap`, or exposed_seconds in metrics.jsonl)");
  }
  OT_CHECK(run->audit.every == 0 || run->audit.num_checks > 0, OT_USAGE,
           "audit.every=%lld, but audit.checks is empty (try [ranks])",
           (long long)run->audit.every);
  return check_precision(&run->precision);
}
