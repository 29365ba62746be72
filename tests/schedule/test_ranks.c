// SPDX-License-Identifier: Apache-2.0
// run: serial. Schedules of every rank of a mesh: each passes the check, sends meet receives,
// members of a group call the same collectives in the same order, and pieces cover every bucket.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "describe/mesh.h"
#include "ops/collective.h"
#include "support/tiny_model.h"
#include "train/instance.h"

enum { MAX_RANKS = 16, MICRO_BATCHES = 4 };

typedef struct rank_case {
  int pp, vpp, replicate, shard, cp, tp, zero;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  bool reshard;
} rank_case;

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
      .storage = OT_F32,
      .head_chunk_rows = 5,
      .threads = 1,
      .split = {.tp = p->mesh.degree[OT_AXIS_TP],
                .tp_index = ot_mesh_coordinate(&p->mesh, rank, OT_AXIS_TP),
                .cp = p->mesh.degree[OT_AXIS_CP],
                .cp_index = ot_mesh_coordinate(&p->mesh, rank, OT_AXIS_CP)}};
  ot_graph *const graphs = ot_arena_array(&p->arena, 2, sizeof *graphs);
  must(ot_graph_build(&wanted, &p->arena, &graphs[0]));
  ot_graph_request evaluate = wanted;
  evaluate.mode = OT_MODE_EVALUATE;
  must(ot_graph_build(&evaluate, &p->arena, &graphs[1]));
  if (p->stages.num_chunks == 0) {
    must(ot_stages_build(&graphs[0], &p->run.parallel, &p->arena, &p->stages));
  }
  const ot_schedule_request request = {
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

static void plan_all(planned *p, const ot_model *model, const rank_case *c) {
  *p = (planned){.model = *model};
  p->arena = ot_heap_arena_create(&p->heap);
  p->run = tiny_run(model);
  ot_run_parallel *const parallel = &p->run.parallel;
  *parallel =
      (ot_run_parallel){.recompute = parallel->recompute, .num_recompute = 1, .ep = 1, .etp = 1};
  parallel->pp = c->pp;
  parallel->vpp = c->vpp;
  parallel->tp = c->tp;
  parallel->cp = c->cp;
  parallel->dp_replicate = c->replicate;
  parallel->zero = c->zero;
  parallel->accumulate = c->accumulate;
  parallel->pipeline = c->pipeline;
  parallel->prefetch = 1;
  parallel->reshard = c->reshard;
  must(ot_mesh_build(parallel, c->pp * c->replicate * c->shard * c->cp * c->tp, &p->mesh));
  for (int rank = 0; rank < p->mesh.ranks; rank++) plan_rank(p, rank);
}

// ---- what the ranks say to each other ----

typedef struct word {
  ot_op_kind op;
  int64_t elements;
  int from, to, tag;
} word;

// The calls of `rank` on `kind` in their order; those of sends and receives with ends and tag.
static int list_calls(const ot_schedule *schedule, int order, ot_group_kind kind, word *words) {
  const ot_order *const played = &schedule->orders[order];
  int count = 0;
  for (int i = 0; i < played->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[played->entries[i].segment];
    for (int t = 0; t < segment->num_tasks; t++) {
      const ot_task *const task = &segment->tasks[t];
      if (!ot_op_communicates(task->op) || task->attributes.group != kind) continue;
      const bool sends = task->op == OT_OP_SEND;
      const int me = task->attributes.group_index, peer = task->attributes.peer;
      const int64_t elements = task->op == OT_OP_RECEIVE ? ot_type_elements(&task->out[0].type)
                                                         : ot_type_elements(&task->in[0].type);
      words[count++] =
          (word){task->op, elements, sends ? me : peer, sends ? peer : me, task->attributes.tag};
    }
  }
  return count;
}

enum { MAX_WORDS = 20000 };

static void check_group(const planned *p, int order, const ot_group *group, ot_group_kind kind) {
  static word mine[MAX_WORDS], other[MAX_WORDS];
  const int count = list_calls(&p->schedule[group->ranks[0]], order, kind, mine);
  for (int i = 1; i < group->size; i++) {
    assert_int_equal(list_calls(&p->schedule[group->ranks[i]], order, kind, other), count);
    for (int k = 0; k < count; k++) {
      assert_int_equal(mine[k].op, other[k].op);
      assert_int_equal(mine[k].elements, other[k].elements);
    }
  }
}

static void check_collectives(const planned *p, int order) {
  for (int rank = 0; rank < p->mesh.ranks; rank++) {
    for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
      const ot_group *const group = &p->schedule[rank].group[kind];
      if (kind == OT_GROUP_STAGES || group->size < 2 || group->index > 0) continue;
      check_group(p, order, group, (ot_group_kind)kind);
    }
  }
}

static void check_messages(const planned *p, int order) {
  static word mine[MAX_WORDS], other[MAX_WORDS];
  for (int rank = 0; rank < p->mesh.ranks; rank++) {
    const ot_group *const group = &p->schedule[rank].group[OT_GROUP_STAGES];
    if (group->size < 2) continue;
    const int count = list_calls(&p->schedule[rank], order, OT_GROUP_STAGES, mine);
    for (int i = 0; i < count; i++) {
      if (mine[i].op != OT_OP_SEND) continue;
      int sent = 0, received = 0;
      for (int k = 0; k < count; k++) {
        sent += mine[k].op == OT_OP_SEND && mine[k].to == mine[i].to && mine[k].tag == mine[i].tag;
      }
      const int calls =
          list_calls(&p->schedule[group->ranks[mine[i].to]], order, OT_GROUP_STAGES, other);
      for (int k = 0; k < calls; k++) {
        received += other[k].op == OT_OP_RECEIVE && other[k].from == group->index &&
                    other[k].tag == mine[i].tag && other[k].elements == mine[i].elements;
      }
      assert_int_equal(sent, received);
    }
  }
}

static void check_pieces(const planned *p) {
  for (int rank = 0; rank < p->mesh.ranks; rank++) {
    const ot_schedule *const schedule = &p->schedule[rank];
    for (int i = 0; i < schedule->num_blocks; i++) {
      const ot_bucket *const bucket = &schedule->buckets[i];
      if (bucket->elements == 0) continue;
      const ot_group *const group = &schedule->group[OT_GROUP_SHARD];
      const int pieces = group->size > 1 ? group->size : 1;
      assert_int_equal(bucket->piece_elements * pieces, bucket->elements);
      assert_int_equal(bucket->piece_first, group->index * bucket->piece_elements);
    }
  }
}

static void check_case(const ot_model *model, const rank_case *c) {
  planned p;
  plan_all(&p, model, c);
  for (int order = 0; order < p.schedule[0].num_orders; order++) {
    check_collectives(&p, order);
    check_messages(&p, order);
  }
  check_pieces(&p);
  ot_heap_release(&p.heap);
}

static void schedules_of_every_rank_fit_each_other(void **state) {
  (void)state;
  const rank_case cases[] = {
      {1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, true},
      {1, 1, 1, 2, 1, 1, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
      {1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
      {1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, false},
      {1, 1, 2, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
      {1, 1, 2, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, true},
      {1, 1, 2, 1, 1, 1, 0, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
      {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, true},
      {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_GPIPE, true},
      {2, 1, 2, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
      {2, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_H1, true},
      {2, 1, 1, 1, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_H2, true},
      {2, 2, 1, 2, 1, 1, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_INTERLEAVED, true},
      {2, 2, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_ZB_V, true},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_model gpt2 = tiny_gpt2();
    const ot_model llama = tiny_llama();
    check_case(&gpt2, &cases[i]);
    check_case(&llama, &cases[i]);
  }
}

// ---- waits ----

// An earlier entry of the compute lane has waited for the same, or for a later one of that lane.
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

static void every_wait_is_needed_and_missed(void **state) {
  (void)state;
  const rank_case cases[] = {
      {1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, true},
      {1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
      {2, 1, 2, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, true},
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
      cmocka_unit_test(every_wait_is_needed_and_missed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
