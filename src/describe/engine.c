// SPDX-License-Identifier: Apache-2.0
// The table of engines.
#include "describe/engine.h"

#include <stddef.h>

#include "base/text.h"

const ot_engine ot_engine_orthant = {
    .name = "orthant",
    .fused_attention = true,
    .chunked_loss = true,
    .fused_optimizer = true,
    .reduce = OT_COLLECTIVE_EXCHANGE,
    .gather = OT_COLLECTIVE_RING,
    .overlap_dp = true,
    .overlap_pp = true,
    .loss_rows = 256,
};

static const ot_engine *const engines[] = {&ot_engine_orthant};

const ot_engine *ot_engine_find(const char *name) {
  for (int i = 0; i < OT_COUNT(engines); i++) {
    if (ot_text_equal(engines[i]->name, name)) return engines[i];
  }
  return NULL;
}

ot_status ot_engine_check(const ot_engine *engine) {
  OT_CHECK(!engine->chunked_loss || engine->loss_rows >= 1, OT_USAGE,
           "engine %s: loss_rows=%lld; allowed: at least 1", engine->name,
           (long long)engine->loss_rows);
  OT_CHECK(engine->bucket_bytes >= 0, OT_USAGE, "engine %s: bucket_bytes=%lld; allowed: at least 0",
           engine->name, (long long)engine->bucket_bytes);
  OT_CHECK(engine->kernel_launch_s >= 0 && engine->allocator_slack >= 0, OT_USAGE,
           "engine %s: times and shares are not negative", engine->name);
  return OT_OK;
}

int64_t ot_engine_print(const ot_engine *engine, char *out, int64_t capacity) {
  static const char *const algorithms[] = {"exchange", "ring", "tree", "hierarchical"};
  return ot_text_format(
      out, capacity,
      "engine %s: fused_attention %d chunked_loss %d fused_optimizer %d reduce %s gather %s "
      "overlap_dp %d overlap_tp %d overlap_pp %d loss_rows %lld bucket_bytes %lld "
      "kernel_launch_s %.17g allocator_slack %.17g\n",
      engine->name, engine->fused_attention, engine->chunked_loss, engine->fused_optimizer,
      algorithms[engine->reduce], algorithms[engine->gather], engine->overlap_dp,
      engine->overlap_tp, engine->overlap_pp, (long long)engine->loss_rows,
      (long long)engine->bucket_bytes, engine->kernel_launch_s, engine->allocator_slack);
}

uint64_t ot_engine_hash(const ot_engine *engine) {
  char text[1024];
  ot_engine_print(engine, text, sizeof text);
  return ot_hash_text(OT_HASH_START, text);
}
