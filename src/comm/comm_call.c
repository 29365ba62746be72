// SPDX-License-Identifier: Apache-2.0
// What a call is, apart from how it is carried out: which are allowed, how much memory they stage,
// how many bytes they put on the wire, and how messages name them.
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "comm/comm_parts.h"

static const struct {
  const char *name;
  bool reduces;
  bool message;
} kinds[] = {
    [OT_COMM_ALL_GATHER] = {"all_gather", false, false},
    [OT_COMM_REDUCE_SCATTER] = {"reduce_scatter", true, false},
    [OT_COMM_ALL_REDUCE] = {"all_reduce", true, false},
    [OT_COMM_ALL_TO_ALL] = {"all_to_all", false, false},
    [OT_COMM_SHIFT] = {"shift", false, false},
    [OT_COMM_SEND] = {"send", false, true},
    [OT_COMM_RECEIVE] = {"receive", false, true},
    [OT_COMM_EXCHANGE] = {"exchange", false, false},
    [OT_COMM_BARRIER] = {"barrier", false, false},
};
static_assert(OT_COUNT(kinds) == OT_COMM_KINDS, "one row each");

const char *ot_comm_kind_name(ot_comm_kind kind) { return kinds[kind].name; }

bool ot_comm_is_reduction(ot_comm_kind kind) { return kinds[kind].reduces; }

bool ot_comm_is_message(ot_comm_kind kind) { return kinds[kind].message; }

int64_t ot_comm_block(int64_t count, int size) { return (count + size - 1) / size; }

int64_t ot_comm_block_count(int64_t count, int size, int index) {
  const int64_t block = ot_comm_block(count, size);
  const int64_t left = count - block * index;
  return left < 0 ? 0 : left < block ? left : block;
}

int64_t ot_comm_workspace(const ot_comm_call *call, int group_size) {
  if (!kinds[call->kind].reduces) return 0;
  const int64_t block =
      call->kind == OT_COMM_ALL_REDUCE ? ot_comm_block(call->count, group_size) : call->count;
  return block * group_size * ot_dtype_bytes(call->dtype);
}

static void check_types(const ot_comm_call *call) {
  const bool wide = call->dtype == OT_BF16 && (call->sum == OT_F32 || call->sum == OT_F64);
  OT_ASSERT(wide || (call->sum == call->dtype && call->dtype != OT_BF16));
  OT_ASSERT(!call->accumulate || call->kind == OT_COMM_REDUCE_SCATTER);
  OT_ASSERT(!call->narrow || call->kind == OT_COMM_REDUCE_SCATTER);
}

void ot_comm_check_call(const ot_comm *comm, const ot_comm_call *call) {
  OT_ASSERT(call->kind >= 0 && call->kind < OT_COMM_KINDS);
  OT_ASSERT(call->group >= 0 && call->group < OT_GROUP_KINDS);
  const ot_comm_group *const group = &comm->groups[call->group];
  OT_ASSERT(group->size >= 2);
  if (call->kind == OT_COMM_BARRIER) return;
  OT_ASSERT(call->count >= 0);
  OT_ASSERT(call->dtype == OT_F32 || call->dtype == OT_F64 || call->dtype == OT_BF16 ||
            call->dtype == OT_I32 || call->dtype == OT_I64);
  if (kinds[call->kind].reduces) check_types(call);
  if (call->kind == OT_COMM_EXCHANGE) ot_comm_check_rows(call, group->size);
  if (!kinds[call->kind].message) return;
  OT_ASSERT(call->peer >= 0 && call->peer < group->size && call->peer != group->index);
  OT_ASSERT(call->tag >= 0 && call->tag <= 32767);
}

static double exchanged_bytes(const ot_comm_call *call, int size, int index) {
  int64_t rows = 0;
  for (int i = 0; i < size; i++) {
    if (i != index) rows += ot_comm_rows_of(&call->sends, i);
  }
  return (double)rows * (double)ot_comm_row_bytes(call);
}

double ot_comm_wire_bytes(const ot_comm_call *call, int size, int index) {
  const double bytes = (double)call->count * (double)ot_dtype_bytes(call->dtype);
  const double others = size - 1;
  switch (call->kind) {
    case OT_COMM_ALL_GATHER:
    case OT_COMM_REDUCE_SCATTER:
    case OT_COMM_ALL_TO_ALL:
      return bytes * others;
    case OT_COMM_ALL_REDUCE:
      return bytes * (2.0 * others / size);
    case OT_COMM_SHIFT:
    case OT_COMM_SEND:
      return bytes;
    case OT_COMM_EXCHANGE:
      return exchanged_bytes(call, size, index);
    case OT_COMM_RECEIVE:
    case OT_COMM_BARRIER:
    case OT_COMM_KINDS:
      break;
  }
  return 0.0;
}

bool ot_comm_was_stopped(double late_s) { return late_s > 0.5; }

// ---- texts ----

void ot_comm_say(ot_comm_text *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  out->length +=
      ot_text_format_list(out->text + out->length, out->capacity - out->length, format, arguments);
  va_end(arguments);
}

int ot_comm_say_ranks(ot_comm_text *out, const int *ranks, int size, ot_comm_rank_filter is,
                      const void *context) {
  int count = 0;
  for (int i = 0; i < size; i++) count += !is || is(context, i);
  ot_comm_say(out, "rank%s", ot_text_plural(count, "s"));
  int last = -2, run = 0;
  for (int i = 0; i < size; i++) {
    if (is && !is(context, i)) continue;
    const int rank = ranks ? ranks[i] : i;
    run = rank == last + 1 ? run + 1 : 0;
    const int next =
        i + 1 < size && (!is || is(context, i + 1)) ? (ranks ? ranks[i + 1] : i + 1) : -1;
    if (run == 0) ot_comm_say(out, " %d", rank);
    if (run > 0 && next != rank + 1) ot_comm_say(out, run == 1 ? " %d" : "-%d", rank);
    last = rank;
  }
  return count;
}

void ot_comm_say_call(ot_comm_text *out, const ot_comm *comm, const ot_comm_request *request) {
  const ot_comm_call *const call = &request->call;
  const ot_comm_group *const group = &comm->groups[call->group];
  ot_comm_say(out, "'%s' (%s %lld", call->name ? call->name : "", kinds[call->kind].name,
              (long long)request->sequence);
  if (kinds[call->kind].message) {
    ot_comm_say(out, " %s rank %d, tag %d,", call->kind == OT_COMM_SEND ? "to" : "from",
                group->ranks[call->peer], call->tag);
  }
  ot_comm_say(out, " of group %s, ", ot_group_name(call->group));
  ot_comm_say_ranks(out, group->ranks, group->size, NULL, NULL);
  ot_comm_say(out, ")");
}

void ot_comm_say_uneven(ot_comm_text *out, const ot_comm *comm, const ot_comm_request *request,
                        const ot_comm_uneven *rows) {
  const int *const ranks = comm->groups[request->call.group].ranks;
  ot_comm_say(out, "ranks differ in ");
  ot_comm_say_call(out, comm, request);
  ot_comm_say(out, ": rank %d sends %lld rows to rank %d, which expects %lld", ranks[rows->from],
              (long long)rows->sent, ranks[rows->to], (long long)rows->expected);
}

// ---- failures ----

bool ot_comm_is_failure(ot_status status) {
  return status != OT_OK && status != OT_FINDINGS && status != OT_STOPPED;
}
