// SPDX-License-Identifier: Apache-2.0
#include "comm/comm_transfers.h"

#include <string.h>

bool ot_comm_is_reduction(ot_comm_kind kind) {
  return kind == OT_COMM_REDUCE_SCATTER || kind == OT_COMM_ALL_REDUCE;
}

bool ot_comm_is_message(ot_comm_kind kind) {
  return kind == OT_COMM_SEND || kind == OT_COMM_RECEIVE;
}

// ---- rows of an all-to-all-v ----

static int64_t whole_bytes(const ot_comm_call *call) {
  return call->count * ot_dtype_bytes(call->dtype);
}

static ot_comm_block rows_of(const ot_comm_call *call, const void *memory,
                             const ot_comm_splits *runs, int member) {
  ot_comm_block block = {
      .memory = (char *)memory, .runs = runs->runs, .row_bytes = whole_bytes(call)};
  if (runs->runs > 0) block.run = runs->run + (int64_t)member * runs->runs * 2;
  for (int i = 0; i < runs->runs; i++) block.rows += block.run[2 * i + 1];
  block.bytes = block.rows * block.row_bytes;
  return block;
}

static void check_runs(const ot_comm_splits *runs, int size) {
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
  const int64_t bytes = whole_bytes(call);
  const char *const send = call->send, *const receive = call->receive;
  const char *const send_end = send + call->sends.rows * bytes;
  const char *const receive_end = receive + call->receives.rows * bytes;
  OT_ASSERT(send_end <= receive || receive_end <= send || send == send_end ||
            receive == receive_end);
}

// ---- blocks ----

// Elements per block of an all_reduce; the last blocks may have fewer.
static int64_t block_length(const ot_comm_call *call, int size) {
  return (call->count + size - 1) / size;
}

// Elements of block `index`.
static int64_t block_count(const ot_comm_call *call, int size, int index) {
  const int64_t block = block_length(call, size), left = call->count - block * index;
  return left < 0 ? 0 : left < block ? left : block;
}

// All rows of a side that has several runs.
static int64_t staged_bytes(const ot_comm_call *call, const ot_comm_splits *runs, int size) {
  int64_t rows = 0;
  for (int64_t i = 0; runs->runs > 1 && i < (int64_t)size * runs->runs; i++) {
    rows += runs->run[2 * i + 1];
  }
  return rows * whole_bytes(call);
}

int64_t ot_comm_workspace(const ot_comm_call *call, int group_size) {
  if (call->kind == OT_COMM_ALL_TO_ALL_V && call->stream) {
    return staged_bytes(call, &call->sends, group_size) +
           staged_bytes(call, &call->receives, group_size);
  }
  if (!ot_comm_is_reduction(call->kind)) return 0;
  const int64_t block =
      call->kind == OT_COMM_ALL_REDUCE ? block_length(call, group_size) : call->count;
  return block * group_size * ot_dtype_bytes(call->dtype);
}

static ot_comm_block bytes_at(const void *memory, int64_t offset, int64_t bytes) {
  return (ot_comm_block){.memory = (char *)memory + offset, .bytes = bytes};
}

// Block `which` of `memory`, with as many elements as block `as`.
static ot_comm_block sum_block(const ot_comm_member_call *x, const void *memory, int which,
                               int as) {
  const int64_t bytes = ot_dtype_bytes(x->call->dtype);
  return bytes_at(memory, which * block_length(x->call, x->size) * bytes,
                  block_count(x->call, x->size, as) * bytes);
}

ot_comm_block ot_comm_sent(const ot_comm_member_call *x, int step, int to) {
  const ot_comm_call *const call = x->call;
  const int64_t whole = whole_bytes(call);
  switch (call->kind) {
    case OT_COMM_ALL_GATHER:
    case OT_COMM_SHIFT:
    case OT_COMM_SEND:
      return bytes_at(call->send, 0, whole);
    case OT_COMM_REDUCE_SCATTER:
    case OT_COMM_ALL_TO_ALL:
      return bytes_at(call->send, to * whole, whole);
    case OT_COMM_ALL_REDUCE:
      if (x->direct) return bytes_at(call->send, 0, whole);
      return step == 0 ? sum_block(x, call->send, to, to)
                       : sum_block(x, call->receive, x->index, x->index);
    case OT_COMM_ALL_TO_ALL_V:
      return rows_of(call, call->send, &call->sends, to);
    case OT_COMM_RECEIVE:
    case OT_COMM_BARRIER:
    case OT_COMM_KINDS:
      break;
  }
  return (ot_comm_block){0};
}

ot_comm_block ot_comm_received(const ot_comm_member_call *x, int step, int from) {
  const ot_comm_call *const call = x->call;
  const int64_t whole = whole_bytes(call);
  switch (call->kind) {
    case OT_COMM_SHIFT:
    case OT_COMM_RECEIVE:
      return bytes_at(call->receive, 0, whole);
    case OT_COMM_ALL_GATHER:
    case OT_COMM_ALL_TO_ALL:
      return bytes_at(call->receive, from * whole, whole);
    case OT_COMM_REDUCE_SCATTER:
      return bytes_at(call->workspace, from * whole, whole);
    case OT_COMM_ALL_REDUCE:
      if (x->direct) return bytes_at(call->workspace, from * whole, whole);
      return step == 0 ? sum_block(x, call->workspace, from, x->index)
                       : sum_block(x, call->receive, from, from);
    case OT_COMM_ALL_TO_ALL_V:
      return rows_of(call, call->receive, &call->receives, from);
    case OT_COMM_SEND:
    case OT_COMM_BARRIER:
    case OT_COMM_KINDS:
      break;
  }
  return (ot_comm_block){0};
}

// ---- lists ----

int ot_comm_steps(const ot_comm_member_call *x) {
  return x->call->kind == OT_COMM_ALL_REDUCE && !x->direct ? 2 : 1;
}

// Members that a member of a collective call sends to; it receives from equally many.
static int num_peers(const ot_comm_member_call *x) {
  return x->call->kind == OT_COMM_SHIFT ? 1 : x->size - 1;
}

int ot_comm_transfers(const ot_comm_member_call *x) {
  return ot_comm_is_message(x->call->kind) ? 1 : 2 * num_peers(x);
}

ot_comm_transfer ot_comm_transfer_at(const ot_comm_member_call *x, int step, int which) {
  const bool message = ot_comm_is_message(x->call->kind);
  const int peers = num_peers(x), distance = 1 + which % peers;
  const bool sends = message ? x->call->kind == OT_COMM_SEND : which < peers;
  const int peer = message ? x->call->peer
                   : sends ? (x->index + distance) % x->size
                           : (x->index + x->size - distance) % x->size;
  return (ot_comm_transfer){
      .sends = sends,
      .peer = peer,
      .block = sends ? ot_comm_sent(x, step, peer) : ot_comm_received(x, step, peer),
  };
}

bool ot_comm_expects(const ot_comm_member_call *x, int from) {
  const ot_comm_kind kind = x->call->kind;
  if (kind == OT_COMM_SHIFT) return from == (x->index + x->size - 1) % x->size;
  if (kind == OT_COMM_RECEIVE) return from == x->call->peer;
  return kind != OT_COMM_SEND && kind != OT_COMM_BARRIER;
}

int64_t ot_comm_received_bytes(const ot_comm_member_call *x) {
  int64_t bytes = 0;
  for (int from = 0; from < x->size; from++) {
    if (ot_comm_expects(x, from)) bytes += ot_comm_received(x, 0, from).bytes;
  }
  return bytes;
}

ot_comm_reduction ot_comm_reduction_of(const ot_comm_member_call *x) {
  const ot_comm_call *const call = x->call;
  const bool scatters = call->kind == OT_COMM_REDUCE_SCATTER;
  const bool all = scatters || x->direct;
  const int64_t first =
      x->direct ? 0 : x->index * (scatters ? call->count : block_length(call, x->size));
  return (ot_comm_reduction){
      .num_sources = x->size,
      .source_offset = first,
      .num_targets = 1,
      .target_offset = scatters ? 0 : first,
      .count = all ? call->count : block_count(call, x->size, x->index),
      .dtype = call->dtype,
      .sum = call->sum,
      .target_dtype = !scatters      ? call->dtype
                      : call->narrow ? OT_BF16
                                     : call->sum,
      .round = call->sum_on_wire,
      .accumulate = call->accumulate,
  };
}

static const void *received_source(void *context, int i) {
  const ot_comm_member_call *const x = context;
  return i == x->index ? ot_comm_sent(x, 0, i).memory : ot_comm_received(x, 0, i).memory;
}

static void *own_target(void *context, int i) {
  (void)i;
  return ((const ot_comm_member_call *)context)->call->receive;
}

ot_comm_reduction ot_comm_reduction_of_received(ot_comm_member_call *x) {
  ot_comm_reduction sum = ot_comm_reduction_of(x);
  sum.source = received_source;
  sum.source_offset = 0;
  sum.target = own_target;
  sum.context = x;
  return sum;
}

double ot_comm_wire_bytes(const ot_comm_member_call *x) {
  const double whole = (double)whole_bytes(x->call), others = x->size - 1;
  double rows = 0.0;
  for (int to = 0; x->call->kind == OT_COMM_ALL_TO_ALL_V && to < x->size; to++) {
    if (to != x->index) rows += (double)ot_comm_sent(x, 0, to).bytes;
  }
  switch (x->call->kind) {
    case OT_COMM_ALL_GATHER:
    case OT_COMM_REDUCE_SCATTER:
    case OT_COMM_ALL_TO_ALL:
      return whole * others;
    case OT_COMM_ALL_REDUCE:
      return whole * (2.0 * others / x->size);
    case OT_COMM_SHIFT:
    case OT_COMM_SEND:
      return whole;
    case OT_COMM_ALL_TO_ALL_V:
      return rows;
    case OT_COMM_RECEIVE:
    case OT_COMM_BARRIER:
    case OT_COMM_KINDS:
      break;
  }
  return 0.0;
}

// ---- copying ----

static ot_status copy(ot_stream *stream, void *to, const void *from, int64_t bytes) {
  if (stream) return ot_stream_copy(stream, to, from, bytes);
  memcpy(to, from, (size_t)bytes);
  return OT_OK;
}

static ot_status copy_rows(ot_stream *stream, const ot_comm_block *from, const ot_comm_block *to) {
  const int32_t *source = from->run, *target = to->run;
  int64_t read = 0, written = 0;  // rows of these runs
  for (int64_t left = from->rows, rows = 0; left > 0; left -= rows) {
    for (; read == source[1]; source += 2) read = 0;
    for (; written == target[1]; target += 2) written = 0;
    const int64_t more = source[1] - read, place = target[1] - written;
    rows = more < place ? more : place;
    OT_TRY(copy(stream, to->memory + (target[0] + written) * to->row_bytes,
                from->memory + (source[0] + read) * from->row_bytes, rows * from->row_bytes));
    read += rows;
    written += rows;
  }
  return OT_OK;
}

ot_status ot_comm_copy(ot_stream *stream, const ot_comm_block *from, const ot_comm_block *to) {
  if (from->bytes == 0 || from->memory == to->memory) return OT_OK;
  if (from->run) return copy_rows(stream, from, to);
  return copy(stream, to->memory, from->memory, from->bytes);
}
