// SPDX-License-Identifier: Apache-2.0
// Rows of an exchange: which are allowed, how many there are, and how they are copied from the
// memory of one member to that of another when both are in reach.
#include <string.h>

#include "comm/comm_parts.h"

int64_t ot_comm_row_bytes(const ot_comm_call *call) {
  return call->count * ot_dtype_bytes(call->dtype);
}

const int32_t *ot_comm_runs_of(const ot_comm_runs *runs, int member) {
  return runs->runs > 0 ? runs->run + (int64_t)member * runs->runs * 2 : NULL;
}

int64_t ot_comm_rows_of(const ot_comm_runs *runs, int member) {
  const int32_t *const run = ot_comm_runs_of(runs, member);
  int64_t rows = 0;
  for (int i = 0; i < runs->runs; i++) rows += run[2 * i + 1];
  return rows;
}

// ---- checks ----

static void check_runs(const ot_comm_runs *runs, int size) {
  OT_ASSERT(runs->runs >= 0 && runs->rows >= 0);
  OT_ASSERT(runs->runs == 0 || runs->run);
  for (int64_t i = 0; i < (int64_t)size * runs->runs; i++) {
    const int64_t first = runs->run[2 * i], rows = runs->run[2 * i + 1];
    OT_ASSERT(first >= 0 && rows >= 0 && first + rows <= runs->rows);
  }
}

void ot_comm_check_rows(const ot_comm_call *call, int size) {
  check_runs(&call->sends, size);
  check_runs(&call->receives, size);
  const int64_t bytes = ot_comm_row_bytes(call);
  const char *const send = call->send, *const receive = call->receive;
  const char *const send_end = send + call->sends.rows * bytes;
  const char *const receive_end = receive + call->receives.rows * bytes;
  OT_ASSERT(send_end <= receive || receive_end <= send || send == send_end ||
            receive == receive_end);
}

// ---- copying ----

// A way through the rows of a member, run by run.
typedef struct {
  const int32_t *next;  // run
  int64_t row, left;    // of the present run
} walk;

// Goes on to the next run that has rows, when the present one is used up.
static void go_on(walk *w) {
  while (w->left == 0) {
    w->row = w->next[0];
    w->left = w->next[1];
    w->next += 2;
  }
}

static void step(walk *w, int64_t rows) {
  w->row += rows;
  w->left -= rows;
}

void ot_comm_copy_rows(const ot_comm_call *sender, int from, const ot_comm_call *receiver, int to) {
  const int64_t bytes = ot_comm_row_bytes(sender);
  int64_t left = bytes > 0 ? ot_comm_rows_of(&sender->sends, to) : 0;
  walk source = {.next = ot_comm_runs_of(&sender->sends, to)};
  walk target = {.next = ot_comm_runs_of(&receiver->receives, from)};
  while (left > 0) {
    go_on(&source);
    go_on(&target);
    const int64_t rows = source.left < target.left ? source.left : target.left;
    memcpy((char *)receiver->receive + target.row * bytes,
           (const char *)sender->send + source.row * bytes, (size_t)(rows * bytes));
    step(&source, rows);
    step(&target, rows);
    left -= rows;
  }
}
