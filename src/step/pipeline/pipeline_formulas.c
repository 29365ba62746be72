// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as loops. p ranks, m micro-batches, v chunks per rank; rank r counts from the
// first stage. F, I and W of a chunk are always sorted by micro-batch, so that sums do not depend
// on the schedule. Each schedule names its source; "B" (gradient of inputs) in the papers is I
// here.
#include "pipeline/pipeline_formulas.h"

#include "describe/pipeline_rules.h"

typedef struct rank_list {
  ot_pipeline_schedule *order;
  int p, m, v, r;
  bool pairs;           // ot_pipeline_request.pairs
  const int *chunk;     // [v] chunks of this rank, in model order
  int made;             // micro-batches of the formula; those from m on are omitted
  int *next[OT_WORKS];  // [v] next micro-batch of F, I and W of a chunk
  int *deferred;        // [2 * made] chunks whose W is due, oldest first
  int due, done;        // of `deferred`: the next free place, and the oldest
} rank_list;

static void append(rank_list *list, ot_action_kind kind, int index, int micro_batch) {
  int *const n = &list->order->num_actions[list->r];
  list->order->actions[list->r][(*n)++] =
      (ot_action){.kind = kind, .chunk = list->chunk[index], .micro_batch = micro_batch};
}

static void forward(rank_list *list, int index, int micro_batch) {
  append(list, OT_ACTION_FORWARD, index, micro_batch);
}

static void backward(rank_list *list, int index, int micro_batch) {
  if (!list->order->split) {
    append(list, OT_ACTION_BACKWARD, index, micro_batch);
    return;
  }
  append(list, OT_ACTION_INPUT, index, micro_batch);
  append(list, OT_ACTION_WEIGHT, index, micro_batch);
}

// ---- schedules ----

// The last action is a forward that runs together with the backward after it.
static void pair_last(rank_list *list) {
  list->order->actions[list->r][list->order->num_actions[list->r] - 1].paired = true;
}

// One rank needs no pipeline: one micro-batch at a time saves the fewest activations. With pairs,
// the next one is a chunk ahead at a time.
static void alone(rank_list *list) {
  for (int c = 0; list->pairs && c < list->v; c++) forward(list, c, 0);
  for (int i = 0; i < list->m; i++) {
    for (int c = 0; !list->pairs && c < list->v; c++) forward(list, c, i);
    for (int c = 0; c < list->v; c++) {
      const bool ahead = list->pairs && i + 1 < list->m;
      if (ahead) forward(list, c, i + 1);
      if (ahead) pair_last(list);
      backward(list, list->v - 1 - c, i);
    }
  }
}

// Huang et al. 2019 (GPipe): all forwards, then all backwards.
static void gpipe(rank_list *list) {
  for (int c = 0; c < list->v; c++) {
    for (int i = 0; i < list->m; i++) forward(list, c, i);
  }
  for (int c = list->v - 1; c >= 0; c--) {
    for (int i = 0; i < list->m; i++) backward(list, c, i);
  }
}

// Narayanan et al. 2019 (PipeDream-Flush): as many forwards as later stages, then 1F1B.
static void one_forward_one_backward(rank_list *list) {
  const int behind = list->p - 1 - list->r;
  const int warm = behind < list->m ? behind : list->m;
  for (int i = 0; i < warm; i++) forward(list, 0, i);
  for (int i = warm; i < list->m; i++) {
    forward(list, 0, i);
    backward(list, 0, i - warm);
  }
  for (int i = list->m - warm; i < list->m; i++) backward(list, 0, i);
}

// Entry k of the interleaved table: groups of `round` micro-batches, each through all chunks.
static void table_entry(const rank_list *list, int round, int k, int *index, int *micro_batch) {
  const int per_round = round * list->v;
  *index = k % per_round / round;
  *micro_batch = k / per_round * round + k % round;
}

// Narayanan et al. 2021, sec. 2.2: forwards by the table, backwards by the same table with the
// chunks reversed. One forward more at the start makes both of a pair independent (Megatron-core's
// schedules.py, overlap_moe_expert_parallel_comm).
static void interleaved(rank_list *list) {
  const int round = ot_pipeline_round(list->p, list->m);
  const int all = list->m * list->v;
  const int lead = 2 * (list->p - 1 - list->r) + (list->v - 1) * round + list->pairs;
  const int warm = lead < all ? lead : all;
  int index, micro_batch;
  for (int k = 0; k < all + warm; k++) {
    if (k < all) {
      table_entry(list, round, k, &index, &micro_batch);
      forward(list, index, micro_batch);
      if (list->pairs && k >= warm) pair_last(list);
    }
    if (k >= warm) {
      table_entry(list, round, k - warm, &index, &micro_batch);
      backward(list, list->v - 1 - index, micro_batch);
    }
  }
}

// Qi et al. 2024 (Zero bubble), sec. 2: W lags behind I by `depth` * r micro-batches, so that all
// ranks save equally much; depth 1 is ZB-H1, 2 is ZB-H2 with twice the forwards ahead.
static void zero_bubble_h(rank_list *list, int depth) {
  const int m = list->m;
  const int lead = depth * (list->p - 1 - list->r);
  const int warm = lead < m ? lead : m;
  int weights = 0;
  for (int i = 0; i < warm; i++) forward(list, 0, i);
  for (int i = 0; i < m; i++) {
    if (warm + i < m) forward(list, 0, warm + i);
    append(list, OT_ACTION_INPUT, 0, i);
    if (i + 1 - weights > depth * list->r) append(list, OT_ACTION_WEIGHT, 0, weights++);
  }
  while (weights < m) append(list, OT_ACTION_WEIGHT, 0, weights++);
}

static bool remain(const rank_list *list, ot_action_kind kind, int index) {
  return list->next[ot_action_work(kind)][index] < list->made;
}

// Appends the next micro-batch of (kind, chunk).
static void next(rank_list *list, ot_action_kind kind, int index) {
  const int micro_batch = list->next[ot_action_work(kind)][index]++;
  if (micro_batch < list->m) append(list, kind, index, micro_batch);
}

static void next_input_weight(rank_list *list, int index) {
  next(list, OT_ACTION_INPUT, index);
  next(list, OT_ACTION_WEIGHT, index);
}

static void zb_v_warm_up(rank_list *list) {
  const int p = list->p, r = list->r;
  for (int i = 0; i < 2 * (p - r) - 1; i++) next(list, OT_ACTION_FORWARD, 0);
  for (int i = 0; i < r; i++) {
    next(list, OT_ACTION_FORWARD, 1);
    next(list, OT_ACTION_FORWARD, 0);
  }
  for (int i = 0; i < p - r; i++) {
    next(list, OT_ACTION_FORWARD, 1);
    next_input_weight(list, 1);
  }
}

// Qi et al. 2024, sec. 6 (ZB-V), as in torch.distributed.pipelining. The formula needs at least 2p
// - 1 micro-batches; with fewer, the excess ones are omitted.
static void zero_bubble_v(rank_list *list) {
  list->made = list->m > 2 * list->p - 1 ? list->m : 2 * list->p - 1;
  zb_v_warm_up(list);
  while (remain(list, OT_ACTION_FORWARD, 0) || remain(list, OT_ACTION_FORWARD, 1)) {
    if (remain(list, OT_ACTION_FORWARD, 0)) next(list, OT_ACTION_FORWARD, 0);
    next_input_weight(list, 0);
    next(list, OT_ACTION_FORWARD, 1);
    next_input_weight(list, 1);
  }
  for (int i = 0; i < list->r; i++) {
    next(list, OT_ACTION_INPUT, 0);
    next(list, OT_ACTION_INPUT, 1);
  }
  for (int i = 0; i < list->p - list->r; i++) next_input_weight(list, 0);
  for (int c = 1; c >= 0; c--) {
    while (remain(list, OT_ACTION_WEIGHT, c)) next(list, OT_ACTION_WEIGHT, c);
  }
}

// ---- DualPipeV ----

// I of the chunk; its W waits in a queue.
static void next_input(rank_list *list, int index) {
  next(list, OT_ACTION_INPUT, index);
  list->deferred[list->due++] = index;
}

static void next_deferred(rank_list *list) {
  next(list, OT_ACTION_WEIGHT, list->deferred[list->done++]);
}

// F of one chunk with I and W of the other, whose communication hides in the other's kernels.
static void next_pair(rank_list *list, int forward_index) {
  const int before = list->order->num_actions[list->r];
  next(list, OT_ACTION_FORWARD, forward_index);
  const bool exists = list->order->num_actions[list->r] > before;
  next_input_weight(list, 1 - forward_index);
  if (exists && list->order->num_actions[list->r] > before + 1) {
    list->order->actions[list->r][before].paired = true;
  }
}

static void dualpipe_v_warm_up(rank_list *list) {
  const int later = list->p - 1 - list->r;
  for (int i = 0; i < 2 * later; i++) next(list, OT_ACTION_FORWARD, 0);
  for (int i = 0; i <= list->r; i++) {
    next(list, OT_ACTION_FORWARD, 0);
    next(list, OT_ACTION_FORWARD, 1);
  }
  for (int i = 0; i < later; i++) {
    next_input_weight(list, 1);
    next(list, OT_ACTION_FORWARD, 1);
  }
}

// W of the second half of these backwards waits, half a backward later on even ranks.
static void dualpipe_v_cool_down(rank_list *list) {
  const int r = list->r, later = list->p - 1 - r;
  for (int i = 0; i < 2 * (r + 1); i++) {
    const bool waits = i >= (r + 1) / 2 * 2 + (r % 2 == 0);
    if (waits) next_input(list, 1 - i % 2);
    if (!waits) next_input_weight(list, 1 - i % 2);
  }
  for (int i = 0; i < later; i++) {
    next_deferred(list);
    next_input(list, 0);
  }
  while (list->done < list->due) next_deferred(list);
}

// DeepSeek-AI 2024, sec. 3.2.1 (DualPipe), cut in half: the two directions of p stages become the
// two chunks of p / 2 stages (Qi et al. 2025; github.com/deepseek-ai/DualPipe). The formula needs
// at least 2p micro-batches; with fewer, the excess ones are omitted.
static void dualpipe_v(rank_list *list, ot_arena *arena) {
  const int p = list->p, r = list->r;
  list->made = list->m > 2 * p ? list->m : 2 * p;
  list->deferred = ot_arena_array(arena, 2 * (int64_t)list->made, sizeof *list->deferred);
  dualpipe_v_warm_up(list);
  for (int i = 0; i < list->made - 2 * p + r + 1; i++) {
    if (i == 0 && r == p - 1) {  // apart: the backward does not wait for the pair
      next(list, OT_ACTION_FORWARD, 0);
      next_input_weight(list, 1);
    } else {
      next_pair(list, 0);
    }
    next_pair(list, 1);
  }
  for (int i = 0; i < p - 1 - r; i++) {
    next_input_weight(list, 1);
    next_pair(list, 1);
  }
  dualpipe_v_cool_down(list);
}

// ---- one rank ----

static const int *chunks_of(const ot_pipeline_schedule *order, int rank, ot_arena *arena,
                            int *count) {
  int *const chunks = ot_arena_array(arena, order->num_chunks, sizeof *chunks);
  *count = 0;
  for (int c = 0; c < order->num_chunks; c++) {
    if (order->rank_of[c] == rank) chunks[(*count)++] = c;
  }
  return chunks;
}

void ot_pipeline_formula(const ot_pipeline_request *request, int rank, ot_arena *arena,
                         ot_pipeline_schedule *order) {
  const ot_pipeline kind = request->kind;
  rank_list list = {.order = order,
                    .p = order->num_ranks,
                    .m = order->micro_batches,
                    .r = rank,
                    .pairs = request->pairs};
  list.chunk = chunks_of(order, rank, arena, &list.v);
  list.made = list.m;
  for (int i = 0; i < OT_COUNT(list.next); i++) {
    list.next[i] = ot_arena_array(arena, list.v, sizeof *list.next[i]);
  }
  if (list.p == 1 && kind != OT_PIPELINE_GPIPE) {
    alone(&list);
    return;
  }
  switch (kind) {
    case OT_PIPELINE_GPIPE:
      gpipe(&list);
      return;
    case OT_PIPELINE_1F1B:
      one_forward_one_backward(&list);
      return;
    case OT_PIPELINE_INTERLEAVED:
      interleaved(&list);
      return;
    case OT_PIPELINE_ZB_H1:
      zero_bubble_h(&list, 1);
      return;
    case OT_PIPELINE_ZB_H2:
      zero_bubble_h(&list, 2);
      return;
    case OT_PIPELINE_ZB_V:
      zero_bubble_v(&list);
      return;
    case OT_PIPELINE_DUALPIPE_V:
      dualpipe_v(&list, arena);
      return;
    case OT_PIPELINES:
      break;
  }
  OT_UNREACHABLE();
}
