// SPDX-License-Identifier: Apache-2.0
// Texts are copied: they are short and failures are rare.
#include "base/failure.h"

#include "base/text.h"

void ot_failure_take(ot_failure *failure, ot_status status) {
  if (status == OT_OK || failure->status != OT_OK) return;
  failure->status = status;
  ot_text_format(failure->message, OT_FAILURE_BYTES, "%s", ot_fail_message());
  ot_text_format(failure->hint, OT_FAILURE_BYTES, "%s", ot_fail_hint_text());
  ot_text_format(failure->chain, sizeof failure->chain, "%s", ot_fail_chain());
}

ot_status ot_failure_repeat(const ot_failure *failure) {
  if (failure->status == OT_OK) return OT_OK;
  ot_fail(failure->status, "%s", failure->message);
  if (failure->hint[0] != '\0') ot_fail_hint(failure->status, "%s", failure->hint);
  if (failure->chain[0] != '\0') ot_fail_trace(failure->chain);
  return failure->status;
}
