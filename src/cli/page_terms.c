// SPDX-License-Identifier: Apache-2.0
// Two tables and what fills them.
#include "cli/page_terms.h"

#include <assert.h>

static const struct {
  const char *name, *class, *meaning;
} axes[] = {
    [OT_TIMELINE_TP] = {"exposed tp", "c-tp", "waiting for tensor-parallel collectives"},
    [OT_TIMELINE_CP] = {"exposed cp", "c-cp", "waiting for keys and values of other ranks"},
    [OT_TIMELINE_EP] = {"exposed ep", "c-ep", "waiting for tokens on their way to experts"},
    [OT_TIMELINE_PP] = {"exposed pp", "c-pp", "waiting for messages between stages on their way"},
    [OT_TIMELINE_DP] = {"exposed dp", "c-dp", "waiting for weights and sums of gradients"},
    [OT_TIMELINE_WORLD] = {"exposed all", "c-all", "waiting for norms and counts of all ranks"},
};
static_assert(sizeof axes / sizeof axes[0] == OT_TIMELINE_AXES, "one row for each axis");

void ot_page_step_terms(const ot_estimate *e, ot_page_term *terms) {
  int n = 0;
  terms[n++] = (ot_page_term){"compute", "c-compute", "kernels of forward and backward",
                              e->compute_s - e->recompute_s};
  terms[n++] =
      (ot_page_term){"recompute", "c-again", "activations that are made again", e->recompute_s};
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    terms[n++] = (ot_page_term){axes[i].name, axes[i].class, axes[i].meaning, e->exposed_s[i]};
  }
  terms[n++] = (ot_page_term){"bubble", "c-bubble", "waiting for other stages", e->bubble_s};
  terms[n++] = (ot_page_term){"host", "c-host", "waiting for kernels to be launched", e->host_s};
  terms[n++] = (ot_page_term){"update", "c-update", "norm, clipping, optimizer", e->update_s};
  OT_ASSERT(n == OT_STEP_TERMS);
}

void ot_page_memory_terms(const ot_memory_estimate *m, ot_page_term *terms) {
  const ot_page_term all[] = {
      {"weights", "c-weights", "that stay on the device", (double)m->weights},
      {"gradients", "c-gradients", "accumulators", (double)m->gradients},
      {"optimizer", "c-optimizer", "moments and master weights", (double)m->optimizer},
      {"activations", "c-activations", "kept from forward to backward", (double)m->activations},
      {"gathered", "c-gathered", "weights that stand elsewhere", (double)m->gathered},
      {"buffers", "c-buffers", "scratch, messages, batches", (double)m->buffers},
      {"allocator", "c-loss", "lost between what is allocated", (double)(m->reserved - m->peak)},
      {"runtime", "c-context", "of the device and the communication library", (double)m->context},
  };
  static_assert(sizeof all / sizeof all[0] == OT_MEMORY_TERMS, "one row for each class");
  for (int i = 0; i < OT_MEMORY_TERMS; i++) terms[i] = all[i];
}
