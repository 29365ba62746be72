// SPDX-License-Identifier: Apache-2.0
// The verdicts of audits and of the judge. Insufficient evidence is inconclusive, never clean.
#pragma once

typedef enum ot_verdict {
  OT_VERDICT_CLEAN,
  OT_VERDICT_FINDING,
  OT_VERDICT_INCONCLUSIVE,
} ot_verdict;

// "clean", "finding", "inconclusive".
const char *ot_verdict_name(ot_verdict verdict);
