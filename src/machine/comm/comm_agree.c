// SPDX-License-Identifier: Apache-2.0
// Agreements, built from calls that every back end has: values are all-gathered; the failing rank's
// message is all-reduced with zeros from the others.
#include <string.h>

#include "base/text.h"
#include "comm/comm.h"
#include "comm/comm_parts.h"

enum { HINT_BYTES = 512, MESSAGE_BYTES = 4 * OT_AGREEMENT_WORDS - HINT_BYTES };

// A rank's failure message, sent as 32-bit words.
typedef union {
  struct {
    char message[MESSAGE_BYTES], hint[HINT_BYTES];
  } text;
  int32_t words[OT_AGREEMENT_WORDS];
} failure_words;

// comm->gathered [size of the group] = `value` of each member.
static ot_status gather(ot_comm *comm, ot_group_kind group, int64_t value, const char *name) {
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_GATHER,
                                           .group = group,
                                           .send = &value,
                                           .receive = comm->gathered,
                                           .count = 1,
                                           .dtype = OT_I64,
                                           .name = name});
}

// All ranks fail with the failure of rank `speaker`.
static ot_status share_failure(ot_comm *comm, int speaker, ot_status status) {
  failure_words own = {0}, all = {0};
  if (ot_comm_rank(comm) == speaker) {
    const char *const message = ot_fail_message();
    if (ot_text_starts_with(message, "rank ")) {
      ot_text_format(own.text.message, MESSAGE_BYTES, "%s", message);
    } else {
      ot_text_format(own.text.message, MESSAGE_BYTES, "rank %d on %s: %s", speaker, comm->host,
                     message);
    }
    ot_text_format(own.text.hint, HINT_BYTES, "%s", ot_fail_hint_text());
  }
  const ot_comm_call call = {.kind = OT_COMM_ALL_REDUCE,
                             .group = OT_GROUP_WORLD,
                             .send = own.words,
                             .receive = all.words,
                             .count = OT_AGREEMENT_WORDS,
                             .dtype = OT_I32,
                             .sum = OT_I32,
                             .workspace = comm->scratch,
                             .name = "agreement on a failure"};
  OT_TRY(ot_comm_run(comm, &call));
  comm->agreed = comm->world_size == comm->size;
  ot_fail(status, "%s", all.text.message);
  return all.text.hint[0] ? ot_fail_hint(status, "%s", all.text.hint) : status;
}

ot_status ot_comm_agree(ot_comm *comm, ot_status status) {
  if (comm->world_size == 1) return status;
  // This rank's failure message survives in thread-local text: successful calls do not change it.
  OT_TRY(gather(comm, OT_GROUP_WORLD, status, "agreement"));
  for (int rank = 0; rank < comm->world_size; rank++) {
    if (comm->gathered[rank] != OT_OK) {
      return share_failure(comm, rank, (ot_status)comm->gathered[rank]);
    }
  }
  comm->agreed = false;  // an earlier failure did not end the job
  return OT_OK;
}

// ---- equal values ----

typedef struct {
  const int64_t *values;
  int64_t value;
} having;

static bool has_value(const void *context, int index) {
  const having *const wanted = context;
  return wanted->values[index] == wanted->value;
}

static bool has_other(const void *context, int index) { return !has_value(context, index); }

// How many of `values` [size] equal `value`.
static int count_value(const int64_t *values, int size, int64_t value) {
  int count = 0;
  for (int i = 0; i < size; i++) count += values[i] == value;
  return count;
}

// The most frequent value; on a tie the first.
static int64_t common_value(const int64_t *values, int size) {
  int best = 0;
  for (int i = 1; i < size; i++) {
    if (count_value(values, size, values[i]) > count_value(values, size, values[best])) best = i;
  }
  return values[best];
}

ot_status ot_comm_check_equal(ot_comm *comm, ot_group_kind kind, uint64_t value, const char *what) {
  const ot_comm_group *const group = &comm->groups[kind];
  if (group->size < 2) return OT_OK;
  OT_TRY(gather(comm, kind, (int64_t)value, what));
  having common = {comm->gathered, (int64_t)value};
  if (count_value(comm->gathered, group->size, (int64_t)value) == group->size) return OT_OK;
  common.value = common_value(comm->gathered, group->size);
  ot_comm_text out = {.length = 0};
  ot_comm_say_ranks(&out, group->ranks, group->size, has_other, &common);
  ot_comm_say(&out, " of group %s: %s differs from that of ", ot_group_name(kind), what);
  ot_comm_say_ranks(&out, group->ranks, group->size, has_value, &common);
  comm->agreed = kind == OT_GROUP_WORLD && comm->world_size == comm->size;
  return ot_fail(OT_RANKS, "%s", out.text);
}
