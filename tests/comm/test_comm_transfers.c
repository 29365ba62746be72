// SPDX-License-Identifier: Apache-2.0
// run: alone. Transfer lists of collectives without a back end: the lists of all members of a group
// match, and plain copies along them give the results that comm.h defines.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/comm_transfers.h"

enum { MOST = 5, COUNTS = 4, LONGEST = 11, ELEMENTS = MOST * LONGEST };

static const int counts[COUNTS] = {0, 1, 4, LONGEST};

// The members of a group at one call, each with its buffers.
typedef struct {
  int size;
  ot_comm_call call[MOST];
  ot_comm_member_call x[MOST];
  float send[MOST][ELEMENTS], receive[MOST][ELEMENTS], workspace[MOST][ELEMENTS];
  int32_t sends[MOST][MOST][2][2], receives[MOST][MOST][2][2];  // runs of an all-to-all-v
} group;

// No two are equal; the bits of a reduction reveal the order of its terms.
static float value(int member, int element) {
  return (float)(1 + member * ELEMENTS + element) * (member % 2 ? 1e-4F : 1e3F);
}

static int rows_between(int from, int to) { return (from * 3 + to) % 4; }

// Each side has two runs per pair, split differently; the second is stored before the first.
static void set_runs(group *g, int member) {
  int row = 0;
  for (int other = 0; other < g->size; other++) {
    const int sent = rows_between(member, other), come = rows_between(other, member);
    const int32_t sends[2][2] = {{4, sent / 2}, {1, sent - sent / 2}};
    const int32_t receives[2][2] = {{row + come / 2, come - come / 2}, {row, come / 2}};
    memcpy(g->sends[member][other], sends, sizeof sends);
    memcpy(g->receives[member][other], receives, sizeof receives);
    row += come;
  }
  g->call[member].sends = (ot_comm_splits){2, g->sends[member][0][0], 8};
  g->call[member].receives = (ot_comm_splits){2, g->receives[member][0][0], row};
}

static void make(group *g, ot_comm_kind kind, int size, int count) {
  memset(g, 0, sizeof *g);
  g->size = size;
  for (int m = 0; m < size; m++) {
    for (int e = 0; e < ELEMENTS; e++) g->send[m][e] = value(m, e);
    g->call[m] = (ot_comm_call){.kind = kind,
                                .send = g->send[m],
                                .receive = g->receive[m],
                                .workspace = g->workspace[m],
                                .count = count};
    if (kind == OT_COMM_ALL_TO_ALL_V) set_runs(g, m);
    g->x[m] = (ot_comm_member_call){.call = &g->call[m], .size = size, .index = m};
  }
}

// ---- executing a call ----

// The transfer of `peer` that matches `t`, a transfer of `member`.
static ot_comm_transfer other_end(const group *g, int member, int step, const ot_comm_transfer *t) {
  const ot_comm_member_call *const peer = &g->x[t->peer];
  ot_comm_transfer found = {0};
  int times = 0;
  for (int i = 0; i < ot_comm_transfers(peer); i++) {
    const ot_comm_transfer other = ot_comm_transfer_at(peer, step, i);
    if (other.peer != member || other.sends == t->sends) continue;
    found = other;
    times++;
  }
  assert_int_equal(times, 1);
  assert_int_equal(found.block.bytes, t->block.bytes);
  assert_int_equal(found.block.rows, t->block.rows);
  return found;
}

static void run_step(group *g, int step) {
  for (int m = 0; m < g->size; m++) {
    for (int i = 0; i < ot_comm_transfers(&g->x[m]); i++) {
      const ot_comm_transfer t = ot_comm_transfer_at(&g->x[m], step, i);
      const ot_comm_transfer other = other_end(g, m, step, &t);
      if (!t.sends) assert_int_equal(ot_comm_copy(NULL, &other.block, &t.block), OT_OK);
    }
    if (step > 0 || !ot_comm_expects(&g->x[m], m)) continue;
    const ot_comm_block from = ot_comm_sent(&g->x[m], 0, m);
    const ot_comm_block to = ot_comm_received(&g->x[m], 0, m);
    assert_int_equal(ot_comm_copy(NULL, &from, &to), OT_OK);
  }
}

static const void *source_of(void *context, int i) {
  return ot_comm_received(context, 0, i).memory;
}

static void *target_of(void *context, int i) {
  (void)i;
  return ((const ot_comm_member_call *)context)->call->receive;
}

static void add(group *g) {
  for (int m = 0; m < g->size; m++) {
    ot_comm_reduction sum = ot_comm_reduction_of(&g->x[m]);
    sum.source = source_of;
    sum.source_offset = 0;
    sum.target = target_of;
    sum.context = &g->x[m];
    ot_comm_reduce_run(&sum);
  }
}

static void run(group *g) {
  run_step(g, 0);
  if (ot_comm_is_reduction(g->call[0].kind)) add(g);
  if (ot_comm_steps(&g->x[0]) > 1) run_step(g, 1);
}

// ---- results that comm.h defines ----

static float sum_of_all(int size, int element) {
  float sum = value(0, element);
  for (int m = 1; m < size; m++) sum += value(m, element);
  return sum;
}

// Element `e` that member `m` receives; false if it receives none.
static bool promised(const group *g, int m, int e, float *out) {
  const int count = (int)g->call[0].count, size = g->size;
  const int block = count > 0 ? e / count : 0, place = count > 0 ? e % count : 0;
  const bool blocks = e < size * count;
  switch (g->call[0].kind) {
    case OT_COMM_ALL_GATHER:
      *out = value(block, place);
      return blocks;
    case OT_COMM_ALL_TO_ALL:
      *out = value(block, m * count + place);
      return blocks;
    case OT_COMM_REDUCE_SCATTER:
      *out = sum_of_all(size, m * count + e);
      return e < count;
    case OT_COMM_ALL_REDUCE:
      *out = sum_of_all(size, e);
      return e < count;
    case OT_COMM_SHIFT:
      *out = value((m + size - 1) % size, e);
      return e < count;
    default:
      return false;
  }
}

static void check(const group *g) {
  for (int m = 0; m < g->size; m++) {
    for (int e = 0; e < ELEMENTS; e++) {
      float wanted = 0.0F;
      if (!promised(g, m, e, &wanted)) wanted = 0.0F;
      if (memcmp(&g->receive[m][e], &wanted, sizeof wanted) == 0) continue;
      fail_msg("kind %d, %d members, count %d: element %d of member %d is %.9g, not %.9g",
               g->call[0].kind, g->size, (int)g->call[0].count, e, m, (double)g->receive[m][e],
               (double)wanted);
    }
  }
}

static void collectives_give_what_is_promised(void **state) {
  (void)state;
  static const ot_comm_kind kinds[] = {OT_COMM_ALL_GATHER, OT_COMM_REDUCE_SCATTER,
                                       OT_COMM_ALL_REDUCE, OT_COMM_ALL_TO_ALL,
                                       OT_COMM_SHIFT,      OT_COMM_BARRIER};
  static group g;
  for (int k = 0; k < OT_COUNT(kinds); k++) {
    for (int size = 2; size <= MOST; size++) {
      for (int c = 0; c < COUNTS; c++) {
        make(&g, kinds[k], size, counts[c]);
        run(&g);
        check(&g);
      }
    }
  }
}

static void an_all_reduce_in_one_step_gives_the_same_bits(void **state) {
  (void)state;
  static group g;
  for (int size = 2; size <= MOST; size++) {
    make(&g, OT_COMM_ALL_REDUCE, size, LONGEST);
    for (int m = 0; m < size; m++) g.x[m].direct = true;
    assert_int_equal(ot_comm_steps(&g.x[0]), 1);
    run(&g);
    check(&g);
  }
}

// Rows from member `from` to member `to`; the first is stored as row `first` there.
static void check_rows(const group *g, int from, int to, int first) {
  const int rows = rows_between(from, to), later = rows - rows / 2;
  for (int r = 0; r < rows; r++) {
    const int source = r < rows / 2 ? 4 + r : 1 + r - rows / 2;
    const int target = first + (r < later ? rows / 2 + r : r - later);
    assert_true(g->receive[to][2 * target] == value(from, 2 * source));
    assert_true(g->receive[to][2 * target + 1] == value(from, 2 * source + 1));
  }
}

static void all_to_all_v_rows_arrive_in_run_order(void **state) {
  (void)state;
  static group g;
  for (int size = 2; size <= MOST; size++) {
    make(&g, OT_COMM_ALL_TO_ALL_V, size, 2);
    run(&g);
    for (int m = 0; m < size; m++) {
      for (int from = 0, first = 0; from < size; first += rows_between(from++, m)) {
        check_rows(&g, from, m, first);
      }
    }
  }
}

static void a_message_has_one_transfer(void **state) {
  (void)state;
  static group g;
  make(&g, OT_COMM_SEND, 2, 4);
  g.call[1].kind = OT_COMM_RECEIVE;
  g.call[0].peer = 1;
  run_step(&g, 0);
  assert_memory_equal(g.receive[1], g.send[0], 4 * sizeof(float));
  assert_true(g.receive[0][0] == 0.0F && g.receive[1][4] == 0.0F);
}

// ---- order and volume ----

static void all_to_all_order_avoids_hot_spots(void **state) {
  (void)state;
  static group g;
  make(&g, OT_COMM_ALL_TO_ALL, MOST, 4);
  for (int i = 0; i < ot_comm_transfers(&g.x[0]); i++) {
    bool met[MOST] = {false};
    for (int m = 0; m < MOST; m++) {
      const ot_comm_transfer t = ot_comm_transfer_at(&g.x[m], 0, i);
      assert_int_equal(t.sends, i < MOST - 1);  // sends first
      assert_true(t.peer != m && !met[t.peer]);
      met[t.peer] = true;
    }
  }
}

static void check_workspace(const group *g, int member) {
  const int64_t bytes = ot_comm_workspace(&g->call[member], g->size);
  for (int from = 0; from < g->size; from++) {
    const ot_comm_block block = ot_comm_received(&g->x[member], 0, from);
    const int64_t first = block.memory - (const char *)g->workspace[member];
    assert_true(first >= 0 && (block.bytes == 0 || first + block.bytes <= bytes));
  }
}

static void reduction_operands_fit_into_the_workspace(void **state) {
  (void)state;
  static group g;
  for (int size = 2; size <= MOST; size++) {
    for (int m = 0; m < size; m++) {
      make(&g, OT_COMM_REDUCE_SCATTER, size, LONGEST);
      check_workspace(&g, m);
      make(&g, OT_COMM_ALL_REDUCE, size, LONGEST);
      check_workspace(&g, m);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(collectives_give_what_is_promised),
      cmocka_unit_test(an_all_reduce_in_one_step_gives_the_same_bits),
      cmocka_unit_test(all_to_all_v_rows_arrive_in_run_order),
      cmocka_unit_test(a_message_has_one_transfer),
      cmocka_unit_test(all_to_all_order_avoids_hot_spots),
      cmocka_unit_test(reduction_operands_fit_into_the_workspace),
  };
  return cmocka_run_group_tests_name("comm_exchange", tests, NULL, NULL);
}
