// SPDX-License-Identifier: Apache-2.0
// Checks of calls, and how messages name them.
#include "comm/comm_call.h"

#include <assert.h>

#include "base/text.h"
#include "comm/comm_parts.h"

static const char *const names[] = {
    [OT_COMM_ALL_GATHER] = "all_gather", [OT_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [OT_COMM_ALL_REDUCE] = "all_reduce", [OT_COMM_ALL_TO_ALL] = "all_to_all",
    [OT_COMM_SHIFT] = "shift",           [OT_COMM_SEND] = "send",
    [OT_COMM_RECEIVE] = "receive",       [OT_COMM_ALL_TO_ALL_V] = "all_to_all_v",
    [OT_COMM_BARRIER] = "barrier",
};
static_assert(OT_COUNT(names) == OT_COMM_KINDS, "one each");

const char *ot_comm_kind_name(ot_comm_kind kind) { return names[kind]; }

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
  const bool reaches = comm->shares_device || comm->nccl;
  OT_ASSERT(!call->stream || (reaches && call->event && call->kind != OT_COMM_BARRIER));
  if (call->kind == OT_COMM_BARRIER) return;
  OT_ASSERT(call->count >= 0);
  OT_ASSERT(call->dtype == OT_F32 || call->dtype == OT_F64 || call->dtype == OT_BF16 ||
            call->dtype == OT_I32 || call->dtype == OT_I64);
  if (ot_comm_is_reduction(call->kind)) check_types(call);
  if (call->kind == OT_COMM_ALL_TO_ALL_V) ot_comm_check_rows(call, group->size);
  if (!ot_comm_is_message(call->kind)) return;
  OT_ASSERT(call->peer >= 0 && call->peer < group->size && call->peer != group->index);
  OT_ASSERT(call->tag >= 0 && call->tag <= 32767);
}

ot_status ot_comm_deliver(const ot_comm_request *request, const ot_comm_member_call *from,
                          const ot_comm_member_call *to) {
  const ot_comm_block sent = ot_comm_sent(from, 0, to->index);
  const ot_comm_block place = ot_comm_received(to, 0, from->index);
  if (sent.rows != place.rows) {
    return ot_comm_fail_row_mismatch(request, from->index, to->index, sent.rows, place.rows);
  }
  return ot_comm_copy(to->call->stream, &sent, &place);
}

// ---- texts ----

void ot_comm_say(ot_comm_text *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  out->length += ot_text_format_list(out->text + out->length,
                                     (int64_t)sizeof out->text - out->length, format, arguments);
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

void ot_comm_say_call(ot_comm_text *out, const ot_comm_request *request) {
  const ot_comm_call *const call = &request->call;
  const ot_comm_group *const group = ot_comm_group_of(request);
  ot_comm_say(out, "'%s' (%s %lld", call->name ? call->name : "", names[call->kind],
              (long long)request->sequence);
  if (ot_comm_is_message(call->kind)) {
    ot_comm_say(out, " %s rank %d, tag %d,", call->kind == OT_COMM_SEND ? "to" : "from",
                group->ranks[call->peer], call->tag);
  }
  ot_comm_say(out, " of group %s, ", ot_group_name(call->group));
  ot_comm_say_ranks(out, group->ranks, group->size, NULL, NULL);
  ot_comm_say(out, ")");
}

int ot_comm_say_wait(ot_comm_text *out, const ot_comm_request *request, ot_comm_rank_filter is,
                     const void *context) {
  const ot_comm_group *const group = ot_comm_group_of(request);
  ot_comm_say(out, "rank %d waits in ", request->end->rank);
  ot_comm_say_call(out, request);
  ot_comm_say(out, " for ");
  return ot_comm_say_ranks(out, group->ranks, group->size, is, context);
}

void ot_comm_say_timeout(ot_comm_text *out, const ot_comm *comm, int count) {
  ot_comm_say(out, ", which %s not arrived in %.3g s", count == 1 ? "has" : "have",
              comm->timeout_s);
}

ot_status ot_comm_fail_row_mismatch(const ot_comm_request *request, int from, int to, int64_t sent,
                                    int64_t expected) {
  const int *const ranks = ot_comm_group_of(request)->ranks;
  ot_comm_text out = {.length = 0};
  ot_comm_say(&out, "ranks differ in ");
  ot_comm_say_call(&out, request);
  ot_comm_say(&out, ": rank %d sends %lld rows to rank %d, which expects %lld", ranks[from],
              (long long)sent, ranks[to], (long long)expected);
  return ot_fail(OT_RANKS, "%s", out.text);
}
