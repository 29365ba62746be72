// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict.h"

const char *ot_verdict_name(ot_verdict verdict) {
  static const char *const names[] = {
      [OT_VERDICT_CLEAN] = "clean",
      [OT_VERDICT_FINDING] = "finding",
      [OT_VERDICT_INCONCLUSIVE] = "inconclusive",
  };
  return names[verdict];
}
