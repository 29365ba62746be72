// SPDX-License-Identifier: Apache-2.0
// run: serial. Schedules of every rank of a mesh: each passes the check, all match each other,
// mismatches are found, and shards cover every bucket.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/mesh.h"
#include "runtime/model_runtime.h"
#include "schedule/schedule_match.h"
#include "support/tiny_model.h"

enum { MAX_RANKS = 16, MICRO_BATCHES = 8 };

typedef struct rank_layout {
  int pp, vpp, replicate, shard, cp, tp, zero;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  bool keep;  // keep gathered weights
} rank_layout;

typedef struct planned {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_run run;
  ot_mesh mesh;
  ot_stages stages;
  ot_schedule schedule[MAX_RANKS];
} planned;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static void plan_rank(planned *p, int rank) {
  static const int micro_batches[] = {MICRO_BATCHES};
  const ot_graph_request wanted = {
      .model = &p->model,
      .mode = OT_MODE_TRAIN,
      .micro_batch_size = 2,
      .sequence_length = 8,
      .compute = OT_F32,
      .storage = p->run.precision.params,
      .narrow_gradients = p->run.precision.gradients == OT_BF16,
      .head_chunk_rows = 5,
      .threads = 1,
      .split = {.tp = p->mesh.degree[OT_AXIS_TP],
                .tp_index = ot_mesh_coordinate(&p->mesh, rank, OT_AXIS_TP),
                .cp = p->mesh.degree[OT_AXIS_CP],
                .cp_index = ot_mesh_coordinate(&p->mesh, rank, OT_AXIS_CP)}};
  ot_graph *const graphs = ot_arena_array(&p->arena, 3, sizeof *graphs);
  must(ot_graph_build(&wanted, &p->arena, &graphs[0]));
  ot_graph_request evaluate = wanted;
  evaluate.mode = OT_MODE_EVALUATE;
  must(ot_graph_build(&evaluate, &p->arena, &graphs[1]));
  if (p->stages.num_chunks == 0) {
    must(ot_stages_build(&graphs[0], &p->run.parallel, &p->arena, &p->stages));
  }
  ot_graph_request alone = evaluate;
  alone.split = (ot_split){0};
  must(ot_graph_build(&alone, &p->arena, &graphs[2]));
  const ot_schedule_request request = {
      .whole = &graphs[2],
      .graphs = {[OT_MODE_TRAIN] = &graphs[0], [OT_MODE_EVALUATE] = &graphs[1]},
      .run = &p->run,
      .mesh = &p->mesh,
      .rank = rank,
      .stages = &p->stages,
      .micro_batches = micro_batches,
      .num_micro_batches = 1};
  must(ot_schedule_build(&request, &p->arena, &p->schedule[rank]));
  must(ot_schedule_check(&p->schedule[rank], &p->arena));
}

static const ot_run_precision wide = {.compute = OT_F32};

static void plan_in(planned *p, const ot_model *model, const rank_layout *c,
                    const ot_run_precision *precision) {
  *p = (planned){.model = *model};
  p->arena = ot_heap_arena_create(&p->heap);
  p->run = tiny_run(model);
  p->run.precision = *precision;
  ot_run_parallel *const parallel = &p->run.parallel;
  *parallel = (ot_run_parallel){.recompute = parallel->recompute,
                                .num_recompute = 1,
                                .reshard = parallel->reshard,
                                .num_reshard = c->keep ? 0 : 1,
                                .ep = 1,
                                .etp = 1};
  parallel->pp = c->pp;
  parallel->vpp = c->vpp;
  parallel->tp = c->tp;
  parallel->cp = c->cp;
  parallel->dp_replicate = c->replicate;
  parallel->zero = c->zero;
  parallel->accumulate = c->accumulate;
  parallel->pipeline = c->pipeline;
  parallel->prefetch = 1;
  p->run.rl.prompts = "prompts.jsonl";  // so that weights are published
  must(ot_mesh_build(parallel, c->pp * c->replicate * c->shard * c->cp * c->tp, &p->mesh));
  for (int rank = 0; rank < p->mesh.ranks; rank++) plan_rank(p, rank);
}

static void plan_all(planned *p, const ot_model *model, const rank_layout *c) {
  plan_in(p, model, c, &wide);
}

static ot_status match_all(planned *p) {
  const ot_schedule *schedules[MAX_RANKS];
  for (int rank = 0; rank < p->mesh.ranks; rank++) schedules[rank] = &p->schedule[rank];
  return ot_schedules_match(schedules, p->mesh.ranks, &p->arena);
}

static void check_pieces(const planned *p) {
  for (int rank = 0; rank < p->mesh.ranks; rank++) {
    const ot_schedule *const schedule = &p->schedule[rank];
    for (int i = 0; i < schedule->num_blocks; i++) {
      const ot_bucket *const bucket = &schedule->buckets[i];
      if (bucket->elements == 0) continue;
      const ot_group *const group = &schedule->group[OT_GROUP_SHARD];
      const int pieces = group->size > 1 ? group->size : 1;
      assert_int_equal(bucket->shard_elements * pieces, bucket->elements);
      assert_int_equal(bucket->shard_first, group->index * bucket->shard_elements);
    }
  }
}

static void check_case(const ot_model *model, const rank_layout *c) {
  planned p;
  plan_all(&p, model, c);
  must(match_all(&p));
  check_pieces(&p);
  ot_heap_release(&p.heap);
}

static const rank_layout layouts[] = {
    {1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
    {1, 1, 1, 2, 1, 1, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
    {1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
    {1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, true},
    {1, 1, 2, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
    {1, 1, 2, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
    {1, 1, 2, 1, 1, 1, 0, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
    {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
    {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_GPIPE, false},
    {2, 1, 2, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
    {2, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_H1, false},
    {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_H2, false},
    {2, 2, 1, 2, 1, 1, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_INTERLEAVED, false},
    {2, 2, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_ZB_V, false},
    {1, 1, 1, 1, 1, 2, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
    {1, 1, 1, 1, 2, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
    {1, 1, 1, 2, 1, 2, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
    {1, 1, 1, 1, 2, 2, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
    {2, 1, 1, 2, 1, 2, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_ZB_H1, false},
    {2, 2, 1, 1, 2, 2, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, false},
    {1, 1, 2, 2, 2, 2, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
};

// The models that all four ranks can shard.
static ot_model for_four(ot_model model) {
  if (model.num_kv_heads == model.num_heads) model.num_kv_heads = 4;
  model.num_heads = 4;
  model.hidden_size = 32;
  return model;
}

static void schedules_of_every_rank_fit_each_other(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    const ot_model gpt2 = for_four(tiny_gpt2()), llama = for_four(tiny_llama());
    check_case(&gpt2, &layouts[i]);
    check_case(&llama, &layouts[i]);
  }
}

// bf16 gradients against fp32 gradients: half the bytes, and no other change except the scratch
// memory of kernels and casts.
static void expect_half(const ot_model *model, const rank_layout *c, ot_dtype reduce) {
  ot_run_precision precision = {.params = OT_BF16, .reduce = reduce};
  planned whole, half;
  plan_in(&whole, model, c, &precision);
  precision.gradients = OT_BF16;
  plan_in(&half, model, c, &precision);
  must(match_all(&half));
  for (int rank = 0; rank < half.mesh.ranks; rank++) {
    const ot_memory_breakdown *const before = &whole.schedule[rank].memory;
    const ot_memory_breakdown *const after = &half.schedule[rank].memory;
    for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
      if (i == OT_MEMORY_BUFFERS) continue;
      const int share = i == OT_MEMORY_GRADIENTS ? 2 : 1;
      assert_int_equal(share * after->class_bytes[i], before->class_bytes[i]);
    }
    if (reduce == OT_BF16) assert_true(after->peak_bytes < before->peak_bytes);
  }
  ot_heap_release(&whole.heap);
  ot_heap_release(&half.heap);
}

static void bf16_gradients_halve_the_bytes_on_every_rank(void **state) {
  (void)state;
  const rank_layout alone = {1, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false};
  const ot_model gpt2 = for_four(tiny_gpt2()), llama = for_four(tiny_llama());
  expect_half(&gpt2, &alone, OT_BF16);
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    expect_half(&gpt2, &layouts[i], OT_BF16);
    expect_half(&llama, &layouts[i], OT_F32);
  }
}

// Both neighbours of a stage send to it and receive from it, in both directions.
static void folded_pipelines_do_not_deadlock(void **state) {
  (void)state;
  const rank_layout layout = {4, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, false};
  ot_model model = tiny_llama();
  model.num_layers = 8;
  check_case(&model, &layout);
}

// Number of forward send buffers of rank 0.
static int planned_send_buffers(const planned *p) {
  const ot_schedule *const schedule = &p->schedule[0];
  int count = 0;
  for (int i = 0; i < schedule->num_regions; i++) {
    count += strncmp(schedule->regions[i].name, "send.", 5) == 0;
  }
  return count;
}

// Makes each send of a step wait until the receive of the send `buffers` earlier in its direction,
// as if there were only that many buffers.
static void reuse_send_buffers(ot_schedule *schedule, int buffers) {
  ot_order *const order = &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
  int sent[2][2 * MICRO_BATCHES], count[2] = {0};
  for (int i = 0; i < order->num_entries; i++) {
    ot_entry *const entry = &order->entries[i];
    if (entry->phase != OT_PHASE_SEND || entry->lane != OT_LANE_PIPELINE) continue;
    const int backward = entry->base[OT_BASE_D_INPUT] >= 0;
    const int turn = count[backward]++;
    assert_true(turn < 2 * MICRO_BATCHES);
    sent[backward][turn] = i;
    entry->wait[OT_LANE_PIPELINE] = turn < buffers ? -1 : sent[backward][turn - buffers];
  }
  assert_true(count[0] + count[1] > 0);
}

static ot_status match_with_buffers(planned *p, int buffers) {
  for (int rank = 0; rank < p->mesh.ranks; rank++) reuse_send_buffers(&p->schedule[rank], buffers);
  return match_all(p);
}

static void too_few_send_buffers_are_found(void **state) {
  (void)state;
  const rank_layout layout = {4, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, false};
  ot_model model = tiny_llama();
  model.num_layers = 8;
  planned p;
  plan_all(&p, &model, &layout);
  const int enough = planned_send_buffers(&p);
  assert_true(enough > 2);
  for (int buffers = 1; buffers < enough; buffers++) {
    assert_int_equal(match_with_buffers(&p, buffers), OT_BUG);
    if (!strstr(ot_fail_message(), "lanes: rank 0 before entry")) {
      fail_msg("%s", ot_fail_message());
    }
  }
  for (int buffers = enough; buffers < enough + 3; buffers++) must(match_with_buffers(&p, buffers));
  ot_heap_release(&p.heap);
}

static void builder_plans_two_send_buffers_or_as_many_as_the_order_needs(void **state) {
  (void)state;
  const struct {
    rank_layout layout;
    int buffers;
  } cases[] = {
      {{1, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false}, 0},
      {{2, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false}, 2},
      {{4, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_GPIPE, false}, 2},
      {{4, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_H2, false}, 2},
      {{2, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, false}, 2},
      {{2, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_DUALPIPE_V, false}, 2},
      {{4, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, false}, 3},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_model model = tiny_llama();
    model.num_layers = 8;
    planned p;
    plan_all(&p, &model, &cases[i].layout);
    assert_int_equal(planned_send_buffers(&p), cases[i].buffers);
    ot_heap_release(&p.heap);
  }
}

// ---- mismatches ----

// Changes the first task of rank 1 with `op`, and expects a message that contains `part`.
static void expect_misfit(planned *p, ot_op_kind op, void (*change)(ot_task *), const char *part) {
  ot_schedule *const schedule = &p->schedule[1];
  for (int i = 0; i < schedule->num_segments; i++) {
    for (int t = 0; t < schedule->segments[i].num_tasks; t++) {
      ot_task *const task = &schedule->segments[i].tasks[t];
      if (task->op != op) continue;
      const ot_task before = *task;
      change(task);
      assert_int_equal(match_all(p), OT_BUG);
      if (!strstr(ot_fail_message(), part)) fail_msg("%s", ot_fail_message());
      *task = before;
      return;
    }
  }
  fail_msg("no such task");
}

static void drop(ot_task *task) { task->op = OT_OP_ZERO; }
static void shorten(ot_task *task) { task->in[0].type.dim[0] -= 32; }
static void shorten_receive(ot_task *task) { task->out[0].type.dim[0] -= 8; }
static void add_up(ot_task *task) { task->attributes.accumulate = !task->attributes.accumulate; }
static void tag_other(ot_task *task) { task->attributes.tag++; }
static void join_others(ot_task *task) { task->attributes.group = OT_GROUP_CONTEXT; }

static void send_less(ot_task *task) { task->attributes.whole_elements--; }
static void keep_share(ot_task *task) { task->in[0].base = OT_BASE_NONE; }
static void halve_share(ot_task *task) { task->in[0].type.dim[0] /= 2; }
static void tell_ranks(ot_task *task) { task->op = OT_OP_ALL_REDUCE; }

// The first publish task of rank 1 that has a share; all blocks have segments of their own.
static ot_task *published_share(planned *p) {
  for (int i = 0; i < p->schedule[1].num_segments; i++) {
    ot_segment *const segment = &p->schedule[1].segments[i];
    const bool publishes = segment->phase == OT_PHASE_PUBLISH;
    if (publishes && segment->tasks[0].in[0].base != OT_BASE_NONE) return &segment->tasks[0];
  }
  fail_msg("rank 1 publishes nothing");
  return NULL;
}

// Rank 1 has the second half of the buckets of the first stage.
static void weights_that_are_not_published_are_found(void **state) {
  (void)state;
  const rank_layout layout = {2, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false};
  const ot_model model = tiny_gpt2();
  planned p;
  plan_all(&p, &model, &layout);
  must(match_all(&p));
  expect_misfit(&p, OT_OP_PUBLISH, send_less, "publish of");
  expect_misfit(&p, OT_OP_PUBLISH, tell_ranks, "publish of");
  ot_task *const task = published_share(&p);
  const ot_task before = *task;
  keep_share(task);
  assert_int_equal(match_all(&p), OT_BUG);
  assert_non_null(strstr(ot_fail_message(), "schedules: ranks publish"));
  *task = before;
  halve_share(task);
  assert_int_equal(ot_schedule_check(&p.schedule[1], &p.arena), OT_BUG);
  assert_non_null(strstr(ot_fail_message(), "this rank has"));
  *task = before;
  ot_order *const order =
      &p.schedule[1].orders[ot_schedule_find_order(&p.schedule[1], OT_ORDER_PUBLISH, 0)];
  order->entries[1].block = order->entries[0].block;
  assert_int_equal(ot_schedule_check(&p.schedule[1], &p.arena), OT_BUG);
  assert_non_null(strstr(ot_fail_message(), "publishes block 0 after block 0"));
  ot_heap_release(&p.heap);
}

static void mismatched_schedules_are_found(void **state) {
  (void)state;
  const rank_layout layout = {2, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false};
  const ot_model model = tiny_gpt2();
  planned p;
  plan_all(&p, &model, &layout);
  must(match_all(&p));
  expect_misfit(&p, OT_OP_REDUCE_SCATTER, drop, "rank 1");
  expect_misfit(&p, OT_OP_ALL_REDUCE, drop, "rank 1");
  expect_misfit(&p, OT_OP_ALL_GATHER, shorten, "elements");
  expect_misfit(&p, OT_OP_REDUCE_SCATTER, shorten, "elements");
  expect_misfit(&p, OT_OP_REDUCE_SCATTER, add_up, "but rank 1");
  expect_misfit(&p, OT_OP_REDUCE_SCATTER, join_others, "rank 0 of 0");
  expect_misfit(&p, OT_OP_SEND, drop, "rank 1 has no further call");
  expect_misfit(&p, OT_OP_RECEIVE, drop, "rank 1 has no further call");
  expect_misfit(&p, OT_OP_RECEIVE, shorten_receive, "receive of");
  expect_misfit(&p, OT_OP_SEND, tag_other, "tag");
  must(match_all(&p));
  ot_heap_release(&p.heap);
}

static void messages_of_other_micro_batches_are_found(void **state) {
  (void)state;
  const rank_layout layout = {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false};
  const ot_model model = tiny_gpt2();
  planned p;
  plan_all(&p, &model, &layout);
  ot_schedule *const schedule = &p.schedule[1];
  const int step = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  ot_entry *sent[2] = {NULL, NULL};
  for (int i = schedule->orders[step].num_entries - 1; i >= 0; i--) {
    ot_entry *const entry = &schedule->orders[step].entries[i];
    if (entry->phase != OT_PHASE_SEND || entry->lane != OT_LANE_PIPELINE) continue;
    sent[1] = sent[0];
    sent[0] = entry;
  }
  assert_non_null(sent[1]);
  sent[0]->micro_batch = 1;
  sent[1]->micro_batch = 0;
  assert_int_equal(match_all(&p), OT_BUG);
  if (!strstr(ot_fail_message(), "of micro-batch")) fail_msg("%s", ot_fail_message());
  ot_heap_release(&p.heap);
}

// Swaps the reductions over two groups.
static void swap_sums(ot_schedule *schedule) {
  int swapped = 0;
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_task *const tasks = schedule->segments[i].tasks;
    for (int t = 0; t + 1 < schedule->segments[i].num_tasks; t++) {
      const bool both = tasks[t].op == OT_OP_REDUCE_SCATTER && tasks[t + 1].op == OT_OP_ALL_REDUCE;
      if (!both) continue;
      const ot_task first = tasks[t];
      tasks[t] = tasks[t + 1];
      tasks[t + 1] = first;
      swapped++;
    }
  }
  assert_true(swapped > 0);
}

// Each group sees the same calls in the same order, and yet: rank 0 waits in its tp group for rank
// 1, which waits in its dp group for rank 3, which waits for 2, which waits for 0.
static void cyclic_waits_between_ranks_are_found(void **state) {
  (void)state;
  const rank_layout layout = {1, 1, 1, 2, 1, 2, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false};
  ot_model model = tiny_gpt2();
  model.num_heads = model.num_kv_heads = 4;
  planned p;
  plan_all(&p, &model, &layout);
  must(match_all(&p));
  swap_sums(&p.schedule[0]);
  must(match_all(&p));
  swap_sums(&p.schedule[3]);
  assert_int_equal(match_all(&p), OT_BUG);
  if (!strstr(ot_fail_message(), "deadlock")) fail_msg("%s", ot_fail_message());
  ot_heap_release(&p.heap);
}

// ---- waits ----

// An earlier instruction of the compute lane waited for the same one, or a later one of that lane.
static bool is_covered(const ot_order *order, int entry, int lane) {
  const int wait = order->entries[entry].wait[lane];
  for (int i = 0; i < entry; i++) {
    const ot_entry *const earlier = &order->entries[i];
    if (earlier->lane != OT_LANE_COMPUTE) continue;
    if (lane == OT_LANE_PIPELINE ? earlier->wait[lane] == wait : earlier->wait[lane] >= wait) {
      return true;
    }
  }
  return false;
}

static void delete_each_wait(planned *p, int *caught, int *total) {
  const ot_schedule *const schedule = &p->schedule[0];
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
  for (int i = 0; i < order->num_entries; i++) {
    for (int lane = 0; lane < OT_LANES; lane++) {
      ot_entry *const entry = &order->entries[i];
      const int wait = entry->wait[lane];
      if (wait < 0 || entry->lane != OT_LANE_COMPUTE || is_covered(order, i, lane)) continue;
      entry->wait[lane] = -1;
      ot_heap heap = {0};
      ot_arena arena = ot_heap_arena_create(&heap);
      *caught += ot_schedule_check(schedule, &arena) != OT_OK;
      ++*total;
      ot_heap_release(&heap);
      entry->wait[lane] = wait;
    }
  }
}

static void every_wait_is_needed_and_its_removal_detected(void **state) {
  (void)state;
  const rank_layout cases[] = {
      {1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
      {1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
      {2, 1, 2, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, false},
  };
  const ot_model model = tiny_gpt2();
  for (int i = 0; i < OT_COUNT(cases); i++) {
    planned p;
    int caught = 0, total = 0;
    plan_all(&p, &model, &cases[i]);
    delete_each_wait(&p, &caught, &total);
    ot_heap_release(&p.heap);
    if (caught < total || total == 0) fail_msg("case %d: %d of %d caught", i, caught, total);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules_of_every_rank_fit_each_other),
      cmocka_unit_test(bf16_gradients_halve_the_bytes_on_every_rank),
      cmocka_unit_test(folded_pipelines_do_not_deadlock),
      cmocka_unit_test(too_few_send_buffers_are_found),
      cmocka_unit_test(builder_plans_two_send_buffers_or_as_many_as_the_order_needs),
      cmocka_unit_test(mismatched_schedules_are_found),
      cmocka_unit_test(weights_that_are_not_published_are_found),
      cmocka_unit_test(messages_of_other_micro_batches_are_found),
      cmocka_unit_test(cyclic_waits_between_ranks_are_found),
      cmocka_unit_test(every_wait_is_needed_and_its_removal_detected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
