// SPDX-License-Identifier: Apache-2.0
// Each change is planned as the run would be, so the bytes are those of its arena.
#include "forecast/memory_advice.h"

#include "base/quantity.h"
#include "base/text_builder.h"
#include "host/heap.h"

// Changes of the run; a member that is not above its value in the run stays.
typedef struct change {
  int64_t micro_batch_size;  // 0: as in the run
  ot_recompute recompute;
  int zero;
} change;

static ot_status plan_with(const ot_memory_advice *q, const ot_run *run, ot_arena *arena,
                           int64_t *bytes) {
  ot_planned_run other = q->planned;
  ot_mesh mesh;
  ot_schedule *const schedule = ot_arena_take(arena, sizeof *schedule);
  OT_TRY(ot_mesh_build(&run->parallel, q->planned.mesh ? q->planned.mesh->ranks : 1, &mesh));
  other.run = run;
  other.mesh = q->planned.mesh ? &mesh : NULL;
  OT_TRY(ot_planned_run_rank(&other, q->rank, arena, schedule));
  *bytes = schedule->memory.peak_bytes;
  return OT_OK;
}

// Bytes of the arena with the change; 0 if it is none, or not allowed.
static int64_t bytes_with(const ot_memory_advice *q, const change *c) {
  ot_run run = *q->planned.run;
  ot_recompute recompute = c->recompute;
  int64_t bytes = 0;
  if (c->micro_batch_size > 0) run.batch.micro_batch_size = c->micro_batch_size;
  if (c->recompute > ot_run_recompute(&q->planned.run->parallel, 0)) {
    run.parallel.recompute = &recompute;
    run.parallel.num_recompute = 1;
  }
  if (c->zero > run.parallel.zero) run.parallel.zero = c->zero;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  if (plan_with(q, &run, &arena, &bytes) != OT_OK) bytes = 0;
  ot_heap_release(&heap);
  return bytes;
}

static const char *words_of(const ot_memory_advice *q, const change *c, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  if (c->micro_batch_size > 0 && c->micro_batch_size < q->planned.run->batch.micro_batch_size) {
    ot_text_appendf(&text, " batch.micro_batch_size=%lld", (long long)c->micro_batch_size);
  }
  if (c->recompute > ot_run_recompute(&q->planned.run->parallel, 0)) {
    ot_text_appendf(&text, " parallel.recompute=%s", ot_recompute_names[c->recompute]);
  }
  if (c->zero > q->planned.run->parallel.zero) ot_text_appendf(&text, " parallel.zero=%d", c->zero);
  return ot_text_builder_text(&text);
}

// The hint if the change helps, else null.
static const char *try_change(const ot_memory_advice *q, const change *c, int64_t most,
                              ot_arena *arena) {
  const char *const words = words_of(q, c, arena);
  if (words[0] == '\0') return NULL;
  const int64_t bytes = bytes_with(q, c);
  if (bytes == 0 || bytes > most) return NULL;
  return ot_arena_format(arena, "it fits with%s: %s", words, ot_figure_bytes(arena, bytes));
}

// The largest micro-batch that fits.
static const char *try_micro_batches(const ot_memory_advice *q, change c, int64_t most,
                                     ot_arena *arena) {
  const int64_t size = q->planned.run->batch.micro_batch_size;
  for (c.micro_batch_size = size - 1; c.micro_batch_size > 0; c.micro_batch_size--) {
    if (size % c.micro_batch_size != 0) continue;
    const char *const hint = try_change(q, &c, most, arena);
    if (hint) return hint;
  }
  return NULL;
}

static const char *advise(void *context, int64_t most, ot_arena *arena) {
  const ot_memory_advice *const q = context;
  const int zero = q->planned.mesh && q->planned.mesh->degree[OT_AXIS_DP_SHARD] > 1 ? 3 : 0;
  const change others[] = {{0, OT_RECOMPUTE_SELECTIVE, 0},
                           {0, OT_RECOMPUTE_FULL, 0},
                           {0, OT_RECOMPUTE_NONE, 1 < zero ? 1 : zero},
                           {0, OT_RECOMPUTE_NONE, 2 < zero ? 2 : zero},
                           {0, OT_RECOMPUTE_NONE, zero},
                           {0, OT_RECOMPUTE_FULL, zero}};
  const char *hint = try_micro_batches(q, (change){0}, most, arena);
  for (int i = 0; i < OT_COUNT(others) && !hint; i++) {
    hint = try_change(q, &others[i], most, arena);
  }
  const change both = {.recompute = OT_RECOMPUTE_FULL, .zero = zero};
  if (!hint) hint = try_micro_batches(q, both, most, arena);
  return hint ? hint
              : "no micro-batch size, recompute or ZeRO stage fits: more or larger GPUs, a "
                "smaller model or sequence, or device=cpu";
}

ot_memory_advisor ot_memory_advisor_of(ot_memory_advice *advice) {
  return (ot_memory_advisor){advise, advice};
}
