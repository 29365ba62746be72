// SPDX-License-Identifier: Apache-2.0
#include "search/rejections.h"

#include "base/text.h"

void ot_rejections_add_rules(const ot_space *space, ot_arena *arena, ot_search *out) {
  for (int part = 0; part < (int)OT_PARTS; part++) {
    for (int i = 0; i < space->num_refusals[part]; i++) {
      const ot_refusal *const refusal = &space->refusals[part][i];
      const char *const reason = refusal->reason;
      out->rejections[out->num_rejections++] =
          (ot_rejection){.kind = OT_REJECTED_RULE,
                         .candidate = refusal->candidate,
                         .reason = ot_arena_text(arena, reason, ot_text_length(reason))};
    }
  }
}

void ot_rejections_refuse_all(int told, ot_search *out) {
  int count = 0;
  if (told < out->num_rejections) {
    const ot_rejection first = out->rejections[0];
    out->rejections[0] = out->rejections[told];
    out->rejections[told] = first;
  }
  for (int i = 0; i < out->num_rejections; i++) {
    if (out->rejections[i].kind != OT_REJECTED_RULE) continue;
    out->rejections[count++] = out->rejections[i];
  }
  out->num_rejections = count;
  out->num_rejected[OT_REJECTED_RULE] += out->num_rejected[OT_REJECTED_MEMORY];
  out->num_rejected[OT_REJECTED_MEMORY] = 0;
}
