// SPDX-License-Identifier: Apache-2.0
// Colours, beside the terms that they stand for.
#include "report/page_terms.h"

#include <assert.h>

static const char *const classes[] = {"c-compute", "c-again", "c-tp",    "c-cp",
                                      "c-ep",      "c-pp",    "c-dp",    "c-all",
                                      "c-bubble",  "c-host",  "c-update"};
static_assert(sizeof classes / sizeof classes[0] == OT_STEP_TERMS, "one class for each term");

void ot_page_step_terms(const ot_estimate *e, ot_page_term *terms) {
  ot_step_term all[OT_STEP_TERMS];
  ot_step_terms(e, all);
  for (int i = 0; i < OT_STEP_TERMS; i++)
    terms[i] = (ot_page_term){all[i].name, classes[i], all[i].meaning, all[i].seconds};
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
