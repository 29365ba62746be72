// SPDX-License-Identifier: Apache-2.0
// One table for the axes; the other terms around it.
#include "estimate/step_terms.h"

#include <assert.h>

static const struct {
  const char *name, *meaning;
} axes[] = {
    [OT_TIMELINE_TP] = {"exposed tp", "waiting for tensor-parallel collectives"},
    [OT_TIMELINE_CP] = {"exposed cp", "waiting for keys and values from other ranks"},
    [OT_TIMELINE_EP] = {"exposed ep", "waiting for all-to-alls of tokens to and from experts"},
    [OT_TIMELINE_PP] = {"exposed pp", "waiting for messages between stages"},
    [OT_TIMELINE_DP] = {"exposed dp", "waiting for weight all-gathers and gradient reductions"},
    [OT_TIMELINE_WORLD] =
        {"exposed world",
         "waiting for reductions over all ranks: gradient norm, loss, token count"},
};
static_assert(sizeof axes / sizeof axes[0] == OT_TIMELINE_AXES, "one row for each axis");

void ot_step_terms(const ot_estimate *e, ot_step_term *terms) {
  int n = 0;
  terms[n++] =
      (ot_step_term){"compute", "kernels of forward and backward", e->compute_s - e->recompute_s};
  terms[n++] = (ot_step_term){"recompute", "recomputed activations", e->recompute_s};
  for (int i = 0; i < OT_TIMELINE_AXES; i++)
    terms[n++] = (ot_step_term){axes[i].name, axes[i].meaning, e->exposed_s[i]};
  terms[n++] = (ot_step_term){"bubble", "waiting for other stages", e->bubble_s};
  terms[n++] = (ot_step_term){"teacher", "waiting for the teacher", e->teacher_s};
  terms[n++] = (ot_step_term){"launches", "waiting for kernels to be launched", e->host_s};
  terms[n++] = (ot_step_term){"update", "norm, clipping, optimizer", e->update_s};
  OT_ASSERT(n == OT_STEP_TERMS);
}
