// SPDX-License-Identifier: Apache-2.0
// What holds between the facts of an engine, its text and hash. The table is engine_table.c.
#include "describe/engine.h"

#include <stddef.h>

#include "base/text.h"

const ot_engine *ot_engine_find(const char *name) {
  const ot_engine *engine;
  for (int i = 0; (engine = ot_engine_at(i)) != NULL; i++) {
    if (ot_text_equal(engine->name, name)) return engine;
  }
  return NULL;
}

const ot_kernel_style *ot_engine_style(const ot_engine *engine, const ot_device_kind *device) {
  const bool own = engine == &ot_engine_orthant && ot_device_is_host(device);
  return own ? NULL : &engine->kernels;
}

int64_t ot_engine_context(const ot_engine *engine, const ot_device_kind *device) {
  return ot_device_is_host(device) ? 0 : engine->context_bytes;
}

static ot_status check_kernels(const ot_engine *engine) {
  const ot_kernel_style *const k = &engine->kernels;
  OT_CHECK(k->pass_factor >= 1, OT_USAGE, "engine %s: pass_factor=%g; allowed: at least 1",
           engine->name, k->pass_factor);
  OT_CHECK(k->host_ops >= 0 && k->score_passes >= 0 && k->cast_bytes >= 0 && k->loss_bytes >= 0,
           OT_USAGE, "engine %s: times, passes and bytes of kernels are not negative",
           engine->name);
  return OT_OK;
}

ot_status ot_engine_check(const ot_engine *engine) {
  OT_TRY(check_kernels(engine));
  OT_CHECK(!engine->chunked_loss || engine->loss_rows >= 1, OT_USAGE,
           "engine %s: loss_rows=%lld; allowed: at least 1", engine->name,
           (long long)engine->loss_rows);
  OT_CHECK(engine->stage_buffers >= 0 && engine->copy_bytes >= 0 && engine->step_bytes >= 0,
           OT_USAGE, "engine %s: buffers and copies are not negative", engine->name);
  OT_CHECK(
      engine->bucket_bytes >= 0 && engine->bucket_rank_bytes >= 0 && engine->context_bytes >= 0,
      OT_USAGE, "engine %s: bucket_bytes=%lld context_bytes=%lld; allowed: at least 0",
      engine->name, (long long)engine->bucket_bytes, (long long)engine->context_bytes);
  OT_CHECK(engine->allocator_slack >= 0 && engine->allocator_slack < 1, OT_USAGE,
           "engine %s: allocator_slack=%g; allowed: at least 0, below 1", engine->name,
           engine->allocator_slack);
  return OT_OK;
}

static int64_t print_kernels(const ot_kernel_style *k, char *out, int64_t capacity) {
  static const char *const attention[] = {"unfused", "flash 1", "flash 2", "flash 3"};
  return ot_text_format(out, capacity,
                        "  attention %s, pass_factor %.17g score_passes %.17g loss_bytes %.17g "
                        "cast_bytes %.17g weights %d, host_ops %.17g %.17g %.17g ahead %d, "
                        "fused_sums %d accumulation "
                        "%d experts %d, "
                        "switch_reductions %d relays %d, fp8 attention %d head %d\n",
                        attention[k->attention], k->pass_factor, k->score_passes, k->loss_bytes,
                        k->cast_bytes, k->casts_weights, k->host_ops, k->expert_ops, k->group_ops,
                        k->host_ahead, k->fused_sums, k->fused_accumulation, k->fused_experts,
                        k->switch_reductions, k->relays, k->fp8_attention, k->fp8_head);
}

int64_t ot_engine_print(const ot_engine *e, char *out, int64_t capacity) {
  static const char *const algorithms[] = {"exchange", "ring", "tree", "hierarchical", "best"};
  int64_t n =
      ot_text_format(out, capacity,
                     "engine %s: recipe %s, dropout %d, chunked_loss %d loss_rows %lld, "
                     "sequence_parallel %d, tensor_products_overlap %d selective_share "
                     "%.17g remade %u scattered_messages %d\n",
                     e->name, e->recipe, e->dropout, e->chunked_loss, (long long)e->loss_rows,
                     e->sequence_parallel, e->tensor_products_overlap, e->selective_share,
                     e->remade, e->scattered_messages);
  n += print_kernels(&e->kernels, out + n, capacity - n);
  n += ot_text_format(out + n, capacity - n,
                      "  overlap reduce %d gather %d update_gather %d tensor %d pipeline %d expert "
                      "%d; reduce %s gather %s bucket_bytes %lld %lld\n",
                      e->overlap_reduce, e->overlap_gather, e->overlap_update_gather,
                      e->overlap_tensor, e->overlap_pipeline, e->overlap_expert,
                      algorithms[e->reduce], algorithms[e->gather], (long long)e->bucket_bytes,
                      (long long)e->bucket_rank_bytes);
  n += ot_text_format(out + n, capacity - n,
                      "  reduce_each_micro_batch %d reshard_after_forward %d copies_gradients %d "
                      "fused_optimizer %d zero_bytes %.17g update_bytes %.17g sorts_received %d "
                      "expert_bias_bytes %.17g %.17g\n",
                      e->reduce_each_micro_batch, e->reshard_after_forward, e->copies_gradients,
                      e->fused_optimizer, e->zero_bytes, e->update_bytes, e->sorts_received,
                      e->expert_bias_bytes[0], e->expert_bias_bytes[1]);
  n += ot_text_format(out + n, capacity - n,
                      "  live_elements %lld keeps_gathered %d saved_score_bytes %.17g "
                      "loss_logit_bytes %.17g allocator_slack %.17g "
                      "context_bytes %lld\n",
                      (long long)e->live_elements, e->keeps_gathered, e->saved_score_bytes,
                      e->loss_logit_bytes, e->allocator_slack, (long long)e->context_bytes);
  n += ot_text_format(out + n, capacity - n,
                      "  cuts_by_cost %d keeps_activated %d keeps_outputs %d drops_elementwise %d "
                      "stage_buffers %d copy_bytes %.17g step_bytes %.17g\n",
                      e->cuts_by_cost, e->keeps_activated, e->keeps_outputs, e->drops_elementwise,
                      e->stage_buffers, e->copy_bytes, e->step_bytes);
  return n;
}

uint64_t ot_engine_hash(const ot_engine *engine) {
  char text[2048];
  ot_engine_print(engine, text, sizeof text);
  return ot_hash_text(OT_HASH_START, text);
}
