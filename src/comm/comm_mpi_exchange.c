// SPDX-License-Identifier: Apache-2.0
// Exchanges: which bytes go to which member and come from it, posted as MPI messages, and the sums
// of what came. exchange: an empty message where there are no rows, so that numbers that differ are
// told from each other and nobody is forgotten. all_reduce: blocks are exchanged and added, then
// gathered; small ones are sent to everyone whole and added by everyone, which gives the same bits
// in half the time.
#include <string.h>

#include "comm/comm_mpi.h"
#include "comm/comm_sum.h"

// ---- exchanges ----

// What goes to a member and comes from it.
typedef struct {
  const void *send;
  void *receive;
  int64_t send_bytes, receive_bytes;
} trade;

static bool in_one_exchange(const ot_comm_call *call, int size) {
  return call->count * ot_dtype_bytes(call->dtype) * size <= OT_MPI_STAGE;
}

static trade all_reduce_trade(const ot_comm_request *request, const ot_mpi_part *part, int member) {
  const ot_comm_call *const call = &request->call;
  const ot_mpi_group *const group = part->group;
  const int64_t bytes = ot_dtype_bytes(call->dtype);
  if (in_one_exchange(call, group->size)) {
    const int64_t whole = call->count * bytes;
    return (trade){call->send, part->slot->stage + member * whole, whole, whole};
  }
  const int64_t block = ot_comm_block(call->count, group->size) * bytes;
  const int64_t own = ot_comm_block_count(call->count, group->size, group->index) * bytes;
  const int64_t other = ot_comm_block_count(call->count, group->size, member) * bytes;
  if (part->step == 0) {
    return (trade){(const char *)call->send + member * block,
                   (char *)call->workspace + member * block, other, own};
  }
  return (trade){(const char *)call->receive + group->index * block,
                 (char *)call->receive + member * block, own, other};
}

static trade find_trade(const ot_comm_request *request, const ot_mpi_part *part, int member) {
  const ot_comm_call *const call = &request->call;
  const int64_t bytes = call->count * ot_dtype_bytes(call->dtype);
  const char *const send = call->send;
  char *const receive = call->receive;
  switch (call->kind) {
    case OT_COMM_ALL_GATHER:
      return (trade){send, receive + member * bytes, bytes, bytes};
    case OT_COMM_REDUCE_SCATTER:
      return (trade){send + member * bytes, (char *)call->workspace + member * bytes, bytes, bytes};
    case OT_COMM_ALL_REDUCE:
      return all_reduce_trade(request, part, member);
    case OT_COMM_ALL_TO_ALL:
      return (trade){send + member * bytes, receive + member * bytes, bytes, bytes};
    case OT_COMM_SHIFT:
    case OT_COMM_SEND:
    case OT_COMM_RECEIVE:
      return (trade){send, receive, bytes, bytes};
    case OT_COMM_EXCHANGE:
      return (trade){send, receive, ot_comm_rows_of(&call->sends, member) * bytes,
                     ot_comm_rows_of(&call->receives, member) * bytes};
    case OT_COMM_BARRIER:
      return (trade){0};
    case OT_COMM_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

static ot_status fail_uneven(const ot_mpi_end *end, const ot_comm_request *request,
                             const ot_comm_uneven *rows) {
  char text[1024];
  ot_comm_text out = {text, sizeof text, 0};
  ot_comm_say_uneven(&out, &end->comm, request, rows);
  return ot_fail(OT_RANKS, "%s", text);
}

static ot_status copy_own_rows(const ot_mpi_end *end, const ot_comm_request *request, int index) {
  const ot_comm_call *const call = &request->call;
  const ot_comm_uneven rows = {.from = index,
                               .to = index,
                               .sent = ot_comm_rows_of(&call->sends, index),
                               .expected = ot_comm_rows_of(&call->receives, index)};
  if (rows.sent != rows.expected) return fail_uneven(end, request, &rows);
  ot_comm_copy_rows(call, index, call, index);
  return OT_OK;
}

// What a member sends to itself.
static ot_status copy_own(const ot_mpi_end *end, const ot_comm_request *request,
                          const ot_mpi_part *part) {
  const ot_comm_kind kind = request->call.kind;
  const int index = part->group->index;
  if (kind == OT_COMM_EXCHANGE) return copy_own_rows(end, request, index);
  if (kind != OT_COMM_ALL_GATHER && kind != OT_COMM_ALL_TO_ALL) return OT_OK;
  const trade own = find_trade(request, part, index);
  if (own.send != own.receive && own.send_bytes > 0) {
    memcpy(own.receive, own.send, (size_t)own.send_bytes);
  }
  return OT_OK;
}

// The message to or from member `peer`; the slot keeps how much is expected.
static ot_mpi_message make_message(const ot_comm_request *request, int peer, bool sends) {
  const ot_mpi_part *const part = ot_mpi_part_of((ot_comm_request *)request);
  const ot_comm_call *const call = &request->call;
  const trade t = find_trade(request, part, peer);
  ot_mpi_message m = {
      .send = t.send,
      .receive = t.receive,
      .bytes = sends ? t.send_bytes : t.receive_bytes,
      .peer = peer,
      // Calls are told apart by their numbers: those of one group may be posted in any order.
      .tag = (int)(request->sequence % 16384) * 2 + part->step,
      .comm = part->group->calls,
  };
  if (call->kind == OT_COMM_EXCHANGE) {
    const ot_comm_runs *const runs = sends ? &call->sends : &call->receives;
    m.run = ot_comm_runs_of(runs, peer);
    m.runs = runs->runs;
    m.row_bytes = ot_comm_row_bytes(call);
  }
  if (!sends) part->slot->bytes[peer] = m.bytes;
  return m;
}

static ot_status post_exchange(const ot_mpi_end *end, ot_comm_request *request) {
  const ot_mpi_part *const part = ot_mpi_part_of(request);
  const ot_mpi_group *const group = part->group;
  ot_mpi_slot *const slot = part->slot;
  const int size = group->size, index = group->index;
  const bool shifts = request->call.kind == OT_COMM_SHIFT;
  OT_TRY(copy_own(end, request, part));
  for (int i = 0; i < 2 * size; i++) slot->pending[i] = MPI_REQUEST_NULL;
  // Receives first, and each rank begins with its neighbours: nobody is sent to by all at once.
  for (int sends = 0; sends <= 1; sends++) {
    for (int i = 1; i < size; i++) {
      const int peer = sends ? (index + i) % size : (index + size - i) % size;
      if (shifts && i > 1) break;
      const ot_mpi_message m = make_message(request, peer, sends);
      OT_TRY(ot_mpi_post_message(&m, sends, &slot->pending[sends * size + peer]));
    }
  }
  return OT_OK;
}

ot_status ot_mpi_post(const ot_mpi_end *end, ot_comm_request *request) {
  ot_mpi_part *const part = ot_mpi_part_of(request);
  const ot_comm_call *const call = &request->call;
  if (!ot_comm_is_message(call->kind)) return post_exchange(end, request);
  const ot_mpi_message m = {.send = call->send,
                            .receive = call->receive,
                            .bytes = call->count * ot_dtype_bytes(call->dtype),
                            .peer = call->peer,
                            .tag = call->tag,
                            .comm = part->group->messages};
  MPI_Request posted;
  OT_TRY(ot_mpi_post_message(&m, call->kind == OT_COMM_SEND, &posted));
  part->message = posted;
  return OT_OK;
}

// ---- what has come ----

// Bytes of what messages count in: rows of an exchange, else bytes.
static int64_t unit_bytes(const ot_comm_call *call) {
  const int64_t row = call->kind == OT_COMM_EXCHANGE ? ot_comm_row_bytes(call) : 0;
  return row > 0 ? row : 1;
}

static ot_status fail_size(ot_mpi_end *end, const ot_comm_request *request, int member,
                           int64_t bytes, int64_t wanted) {
  const int64_t unit = unit_bytes(&request->call);
  if (request->call.kind == OT_COMM_EXCHANGE && bytes % unit == 0) {
    const int index = end->comm.groups[request->call.group].index;
    return fail_uneven(end, request, &(ot_comm_uneven){member, index, bytes / unit, wanted / unit});
  }
  char text[1024];
  ot_comm_text out = {text, sizeof text, 0};
  ot_comm_say(&out, "ranks differ in ");
  ot_comm_say_call(&out, &end->comm, request);
  ot_comm_say(&out, ": rank %d sent %lld bytes where rank %d expects %lld",
              end->comm.groups[request->call.group].ranks[member], (long long)bytes, end->comm.rank,
              (long long)wanted);
  return ot_fail(OT_RANKS, "%s", text);
}

static ot_status fail_message(ot_mpi_end *end, const ot_comm_request *request, int member,
                              int64_t wanted, int code) {
  int class = MPI_SUCCESS;
  MPI_Error_class(code, &class);
  if (class != MPI_ERR_TRUNCATE) return ot_mpi_fail(code, "a message");
  char text[1024];
  ot_comm_text out = {text, sizeof text, 0};
  ot_comm_say(&out, "ranks differ in ");
  ot_comm_say_call(&out, &end->comm, request);
  ot_comm_say(&out, ": rank %d sends more than the %lld %s that rank %d expects",
              end->comm.groups[request->call.group].ranks[member],
              (long long)(wanted / unit_bytes(&request->call)),
              request->call.kind == OT_COMM_EXCHANGE ? "rows" : "bytes", end->comm.rank);
  return ot_fail(OT_RANKS, "%s", text);
}

static ot_status check_size(ot_mpi_end *end, const ot_comm_request *request, int member,
                            const MPI_Status *status, int64_t wanted) {
  MPI_Count bytes = 0;
  OT_TRY_MPI(MPI_Get_elements_x(status, MPI_BYTE, &bytes));
  return bytes == wanted ? OT_OK : fail_size(end, request, member, (int64_t)bytes, wanted);
}

static ot_status test_message(ot_mpi_end *end, ot_comm_request *request, bool *all) {
  ot_mpi_part *const part = ot_mpi_part_of(request);
  const ot_comm_call *const call = &request->call;
  MPI_Request pending = part->message;
  MPI_Status status;
  int done = 0;
  const int code = MPI_Test(&pending, &done, &status);
  part->message = pending;
  if (code != MPI_SUCCESS)
    return fail_message(end, request, call->peer, call->count * ot_dtype_bytes(call->dtype), code);
  *all = done;
  if (!done || call->kind == OT_COMM_SEND) return OT_OK;
  return check_size(end, request, call->peer, &status, call->count * ot_dtype_bytes(call->dtype));
}

ot_status ot_mpi_test(ot_mpi_end *end, ot_comm_request *request, bool *all) {
  if (ot_comm_is_message(request->call.kind)) return test_message(end, request, all);
  ot_mpi_slot *const slot = ot_mpi_part_of(request)->slot;
  const int size = ot_mpi_part_of(request)->group->size;
  int done = 0;
  const int code = MPI_Testsome(2 * size, slot->pending, &done, end->indices, end->statuses);
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return ot_mpi_fail(code, "MPI_Testsome");
  if (done == MPI_UNDEFINED) done = 0;
  for (int i = 0; i < done; i++) {
    const int member = end->indices[i] % size;
    if (code != MPI_SUCCESS && end->statuses[i].MPI_ERROR != MPI_SUCCESS) {
      return fail_message(end, request, member, slot->bytes[member], end->statuses[i].MPI_ERROR);
    }
    if (end->indices[i] >= size) continue;
    OT_TRY(check_size(end, request, member, &end->statuses[i], slot->bytes[member]));
  }
  *all = true;
  for (int i = 0; i < 2 * size && *all; i++) *all = slot->pending[i] == MPI_REQUEST_NULL;
  return OT_OK;
}

bool ot_mpi_is_absent(const void *context, int index) {
  ot_comm_request *const request = (ot_comm_request *)context;
  const ot_mpi_part *const part = ot_mpi_part_of(request);
  if (ot_mpi_phase(request) != OT_MPI_EXCHANGES) return false;
  if (ot_comm_is_message(request->call.kind)) return index == request->call.peer;
  const MPI_Request *const pending = part->slot->pending;
  return pending[index] != MPI_REQUEST_NULL ||
         pending[part->group->size + index] != MPI_REQUEST_NULL;
}

// ---- sums ----

bool ot_mpi_must_add(ot_comm_request *request) {
  return ot_comm_is_reduction(request->call.kind) && ot_mpi_part_of(request)->step == 0;
}

bool ot_mpi_add(ot_comm_request *request) {
  const ot_comm_call *const call = &request->call;
  ot_mpi_part *const part = ot_mpi_part_of(request);
  const ot_mpi_group *const group = part->group;
  const bool scatters = call->kind == OT_COMM_REDUCE_SCATTER;
  const bool whole = !scatters && in_one_exchange(call, group->size);
  for (int i = 0; i < group->size; i++) {
    const trade t = find_trade(request, part, i);
    part->slot->sources[i] = i == group->index ? t.send : t.receive;
  }
  void *target = call->receive;
  const int64_t block = ot_comm_block(call->count, group->size);
  if (!scatters && !whole) {
    target = (char *)target + group->index * block * ot_dtype_bytes(call->dtype);
  }
  const ot_comm_sum job = {
      .sources = part->slot->sources,
      .num_sources = group->size,
      .targets = &target,
      .num_targets = 1,
      .count = scatters || whole ? call->count
                                 : ot_comm_block_count(call->count, group->size, group->index),
      .dtype = call->dtype,
      .sum = call->sum,
      .target = !scatters      ? call->dtype
                : call->narrow ? OT_BF16
                               : call->sum,
      .round = call->sum_on_wire,
      .accumulate = call->accumulate,
  };
  if (job.count > 0) ot_comm_sum_run(&job);
  part->step = 1;
  return !scatters && !whole;
}
