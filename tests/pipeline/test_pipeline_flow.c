// SPDX-License-Identifier: Apache-2.0
// run: any machine. The list of all stages' actions: inputs precede each action, messages are
// awaited and buffers reused as the header says, and saved activations match the list.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "pipeline/pipeline_flow.h"
#include "support/pipelines.h"

static void create(ot_pipeline kind, int p, int m, pipeline_case *c, ot_pipeline_flow *flow) {
  const pipeline_shape shape = {.kind = kind, .p = p, .v = pipeline_chunks(kind), .m = m};
  pipeline_case_create(&shape, c);
  assert_int_equal(ot_pipeline_flow_bytes(&c->order) % 16, 0);  // so flows can follow each other
  ot_pipeline_flow_build(&c->order, &c->arena, &c->arena, flow);
}

static int needed(ot_pipeline kind, int p, int m) {
  pipeline_case c;
  ot_pipeline_flow flow;
  create(kind, p, m, &c, &flow);
  pipeline_case_destroy(&c);
  return flow.send_buffers;
}

// ---- send buffers ----

static void orders_of_one_chunk_need_two(void **state) {
  (void)state;
  static const ot_pipeline kinds[] = {OT_PIPELINE_GPIPE, OT_PIPELINE_1F1B, OT_PIPELINE_ZB_H1,
                                      OT_PIPELINE_ZB_H2};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    for (int p = 1; p <= 16; p *= 2) assert_int_equal(needed(kinds[i], p, 24), 2);
  }
}

static void folded_schedules_need_few_extra_buffers(void **state) {
  (void)state;
  assert_true(needed(OT_PIPELINE_ZB_V, 4, 8) > 2);
  for (int p = 2; p <= 16; p *= 2) assert_in_range(needed(OT_PIPELINE_ZB_V, p, 40), 2, 2 * p);
}

// More buffers than messages act like an unlimited number.
static void send_buffers_never_exceed_messages(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    const int m = kind == OT_PIPELINE_INTERLEAVED ? 8 : 7;
    assert_in_range(needed((ot_pipeline)kind, 4, m), 2, 2 * m);
  }
}

// ---- the list ----

typedef struct progress {
  bool sent[8192], received[8192];  // messages
  int sends[64];                    // [rank * 2 + direction]
} progress;

static void receive(progress *p, int32_t message) {
  if (message >= 0) p->received[message] = true;
}

static void check_action(const ot_pipeline_flow *flow, const ot_flow_action *a, progress *p) {
  const int direction = a->work != OT_WORK_FORWARD;
  if (a->in >= 0) {
    assert_true(p->sent[a->in]);
    assert_true(p->received[a->in]);
    const ot_flow_message in = ot_pipeline_flow_message(flow, a->in);
    assert_int_equal(in.into, a->chunk);
    assert_int_equal(in.micro_batch, a->micro_batch);
    assert_int_equal(in.backward, direction);
  }
  if (a->out >= 0) {
    int *const sends = &p->sends[2 * a->rank + direction];
    assert_int_equal(a->buffer, *sends % flow->send_buffers);
    assert_int_equal(a->reuse >= 0, *sends >= flow->send_buffers);
    if (a->reuse >= 0) assert_true(p->sent[a->reuse] && p->received[a->reuse]);
    const ot_flow_message out = ot_pipeline_flow_message(flow, a->out);
    assert_int_equal(out.from, a->chunk);
    assert_int_equal(out.boundary, a->chunk + !direction);
    assert_false(p->sent[a->out]);
    p->sent[a->out] = true;
    ++*sends;
  }
  receive(p, a->posts);
}

static void lists_actions_after_what_they_need(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    pipeline_case c;
    ot_pipeline_flow flow;
    progress p = {0};
    int64_t all = 0;
    create((ot_pipeline)kind, 4, 12, &c, &flow);
    for (int i = 0; i < 2 * flow.num_ranks; i++) receive(&p, flow.first_posts[i]);
    for (int64_t i = 0; i < flow.num_actions; i++) check_action(&flow, &flow.actions[i], &p);
    for (int r = 0; r < flow.num_ranks; r++) {
      all += c.order.num_actions[r];
      for (int i = 0; i < flow.num_of_rank[r]; i++) {
        const ot_flow_action *const a = &flow.actions[flow.of_rank[r][i]];
        assert_int_equal(a->chunk, c.order.actions[r][i].chunk);
        assert_int_equal(a->micro_batch, c.order.actions[r][i].micro_batch);
        assert_int_equal(a->work, ot_action_work(c.order.actions[r][i].kind));
      }
    }
    assert_int_equal(flow.num_actions, all);
    pipeline_case_destroy(&c);
  }
}

// ---- saved activations ----

// Micro-batches whose `kind` is saved while the rank runs its action `at`.
static int kept_at(const ot_pipeline_flow *flow, ot_saved_kind kind, int chunk, int at) {
  int count = 0;
  for (int m = 0; m < flow->micro_batches; m++) {
    const ot_saved_span span = ot_pipeline_flow_saved(flow, kind, chunk, m);
    count += span.first <= at && at <= span.last;
  }
  return count;
}

static void counts_the_most_kept_at_once(void **state) {
  (void)state;
  for (int pipeline = 0; pipeline < OT_PIPELINES; pipeline++) {
    pipeline_case c;
    ot_pipeline_flow flow;
    create((ot_pipeline)pipeline, 4, 12, &c, &flow);
    for (int i = 0; i < OT_SAVED_KINDS * flow.num_chunks; i++) {
      const ot_saved_kind kind = (ot_saved_kind)(i / flow.num_chunks);
      const int chunk = i % flow.num_chunks;
      int most = 0;
      for (int at = 0; at < flow.num_of_rank[flow.rank_of[chunk]]; at++) {
        const int count = kept_at(&flow, kind, chunk, at);
        if (count > most) most = count;
      }
      assert_int_equal(flow.most[kind][chunk], most);
    }
    pipeline_case_destroy(&c);
  }
}

// 1F1B (Narayanan et al. 2019): stage r keeps p - r micro-batches; GPipe (Huang et al. 2019) all.
static void keeps_as_many_as_the_papers_say(void **state) {
  (void)state;
  for (int r = 0; r < 4; r++) {
    pipeline_case c;
    ot_pipeline_flow flow;
    create(OT_PIPELINE_1F1B, 4, 12, &c, &flow);
    assert_int_equal(flow.most[OT_SAVED_SHORT][r], 4 - r);
    pipeline_case_destroy(&c);
    create(OT_PIPELINE_GPIPE, 4, 12, &c, &flow);
    assert_int_equal(flow.most[OT_SAVED_SHORT][r], 12);
    pipeline_case_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders_of_one_chunk_need_two),
      cmocka_unit_test(folded_schedules_need_few_extra_buffers),
      cmocka_unit_test(send_buffers_never_exceed_messages),
      cmocka_unit_test(lists_actions_after_what_they_need),
      cmocka_unit_test(counts_the_most_kept_at_once),
      cmocka_unit_test(keeps_as_many_as_the_papers_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
