// SPDX-License-Identifier: Apache-2.0
// Every kind of call, compared with plain loops.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/comm_cases.h"
#include "support/comm_place.h"

static const ot_dtype dtypes[] = {OT_F32, OT_F64, OT_BF16, OT_I32, OT_I64};
static const int64_t counts[] = {0, 1, 3, 1003, 5003};

// Buffers of one call; all bytes start as 0xee.
typedef struct {
  unsigned char *send, *receive, *expected, *workspace;
} buffers;

static ot_status buffers_take(buffers *b, int64_t bytes) {
  unsigned char **const all[] = {&b->send, &b->receive, &b->expected, &b->workspace};
  for (int i = 0; i < OT_COUNT(all); i++) {
    *all[i] = malloc((size_t)bytes + 64);
    COMM_EXPECT(*all[i] != NULL);
    memset(*all[i], 0xee, (size_t)bytes + 64);
  }
  return OT_OK;
}

static void buffers_drop(buffers *b) {
  free(b->send);
  free(b->receive);
  free(b->expected);
  free(b->workspace);
}

static ot_status same_bytes(const void *got, const void *wanted, int64_t count, ot_dtype dtype,
                            const char *what) {
  const int64_t bytes = ot_dtype_bytes(dtype);
  for (int64_t e = 0; e < count; e++) {
    if (memcmp((const char *)got + e * bytes, (const char *)wanted + e * bytes, (size_t)bytes)) {
      return ot_fail(OT_BUG, "%s of %lld %s: element %lld is wrong", what, (long long)count,
                     ot_dtype_name(dtype), (long long)e);
    }
  }
  return OT_OK;
}

// ---- calls that move data ----

static ot_status check_all_gather(ot_comm *comm, const comm_members *m, ot_dtype dtype,
                                  int64_t count, buffers *b) {
  const int64_t bytes = count * ot_dtype_bytes(dtype);
  ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                       .group = m->kind,
                       .send = b->send,
                       .receive = b->receive,
                       .count = count,
                       .dtype = dtype,
                       .name = "gather"};
  for (int r = 0; r < m->size; r++) {
    comm_values(m->ranks[r], 0, count, dtype, b->expected + r * bytes);
  }
  comm_values(m->ranks[m->index], 0, count, dtype, b->send);
  OT_TRY(comm_run(comm, &call));
  OT_TRY(same_bytes(b->receive, b->expected, m->size * count, dtype, "all_gather"));
  memset(b->receive, 0xee, (size_t)(m->size * bytes));
  memcpy(b->receive + m->index * bytes, b->send, (size_t)bytes);
  call.send = b->receive + m->index * bytes;
  OT_TRY(comm_run(comm, &call));
  return same_bytes(b->receive, b->expected, m->size * count, dtype, "all_gather in place");
}

static ot_status check_all_to_all(ot_comm *comm, const comm_members *m, ot_dtype dtype,
                                  int64_t count, buffers *b) {
  const int64_t bytes = count * ot_dtype_bytes(dtype);
  for (int r = 0; r < m->size; r++) {
    comm_values(m->ranks[r], m->index * count, count, dtype, b->expected + r * bytes);
  }
  comm_values(m->ranks[m->index], 0, m->size * count, dtype, b->send);
  const ot_comm_call call = {.kind = OT_COMM_ALL_TO_ALL,
                             .group = m->kind,
                             .send = b->send,
                             .receive = b->receive,
                             .count = count,
                             .dtype = dtype,
                             .name = "all_to_all_v"};
  OT_TRY(comm_run(comm, &call));
  return same_bytes(b->receive, b->expected, m->size * count, dtype, "all_to_all");
}

static ot_status check_shift(ot_comm *comm, const comm_members *m, ot_dtype dtype, int64_t count,
                             buffers *b) {
  comm_values(m->ranks[(m->index + m->size - 1) % m->size], 0, count, dtype, b->expected);
  comm_values(m->ranks[m->index], 0, count, dtype, b->send);
  const ot_comm_call call = {.kind = OT_COMM_SHIFT,
                             .group = m->kind,
                             .send = b->send,
                             .receive = b->receive,
                             .count = count,
                             .dtype = dtype,
                             .name = "ring"};
  OT_TRY(comm_run(comm, &call));
  return same_bytes(b->receive, b->expected, count, dtype, "shift");
}

// ---- reductions ----

// Element e of the result is the reduction of elements first + e. `expected` holds the previous
// content, in the type of the reduction.
static void expect_sums(const ot_comm_call *call, const comm_members *m, int64_t first,
                        int64_t count, buffers *b) {
  const int64_t bytes = ot_dtype_bytes(call->sum);
  for (int64_t e = 0; e < count; e++) {
    comm_expected_sum(call, m, first + e, b->expected + e * bytes, b->expected + e * bytes);
  }
}

static void widen(const void *from, int64_t count, void *to, ot_dtype sum) {
  for (int64_t e = 0; e < count; e++) {
    uint16_t bits;
    memcpy(&bits, (const char *)from + 2 * e, 2);
    const float single = ot_bf16_to_float(bits);
    const double wide = (double)single;
    const int64_t bytes = ot_dtype_bytes(sum);
    memcpy((char *)to + e * bytes, sum == OT_F64 ? (const void *)&wide : (const void *)&single,
           (size_t)bytes);
  }
}

static void narrow(const void *from, int64_t count, ot_dtype sum, void *to, ot_dtype dtype) {
  for (int64_t e = 0; e < count; e++) {
    double wide;
    float single;
    memcpy(&wide, (const char *)from + (sum == OT_F64 ? e * 8 : 0), 8);
    memcpy(&single, (const char *)from + e * 4, 4);
    const uint16_t bits = ot_bf16_from_float(sum == OT_F64 ? (float)wide : single);
    if (dtype == OT_BF16) memcpy((char *)to + 2 * e, &bits, 2);
  }
}

static ot_status check_reduce_scatter(ot_comm *comm, const comm_members *m, ot_comm_call call,
                                      buffers *b) {
  const int64_t count = call.count;
  const int64_t block = count * ot_dtype_bytes(call.dtype);
  const ot_dtype handed_out = call.narrow ? OT_BF16 : call.sum;
  call.kind = OT_COMM_REDUCE_SCATTER;
  call.send = b->send;
  call.receive = b->receive;
  comm_values(m->ranks[m->index], 0, m->size * count, call.dtype, b->send);
  comm_values(99, 0, count, handed_out, b->receive);
  comm_values(99, 0, count, call.sum, b->expected);
  if (call.narrow) widen(b->receive, count, b->expected, call.sum);
  expect_sums(&call, m, m->index * count, count, b);
  if (call.narrow) narrow(b->expected, count, call.sum, b->expected, OT_BF16);
  OT_TRY(comm_run(comm, &call));
  OT_TRY(same_bytes(b->receive, b->expected, count, handed_out, "reduce_scatter"));
  if (handed_out != call.dtype || call.accumulate) return OT_OK;
  call.receive = b->send + m->index * block;
  OT_TRY(comm_run(comm, &call));
  return same_bytes(call.receive, b->expected, count, handed_out, "reduce_scatter in place");
}

static ot_status check_all_reduce(ot_comm *comm, const comm_members *m, ot_comm_call call,
                                  buffers *b) {
  const int64_t count = call.count;
  call.kind = OT_COMM_ALL_REDUCE;
  call.send = b->send;
  call.receive = b->receive;
  comm_values(m->ranks[m->index], 0, count, call.dtype, b->send);
  expect_sums(&call, m, 0, count, b);
  if (call.sum != call.dtype) narrow(b->expected, count, call.sum, b->expected, call.dtype);
  OT_TRY(comm_run(comm, &call));
  OT_TRY(same_bytes(b->receive, b->expected, count, call.dtype, "all_reduce"));
  call.receive = b->send;
  OT_TRY(comm_run(comm, &call));
  return same_bytes(b->send, b->expected, count, call.dtype, "all_reduce in place");
}

static ot_status check_sums(ot_comm *comm, const comm_members *m, ot_dtype dtype, int64_t count,
                            buffers *b) {
  static const ot_dtype wide[] = {OT_F32, OT_F64};
  for (int i = 0; i < (dtype == OT_BF16 ? 4 : 1); i++) {
    ot_comm_call call = {.group = m->kind,
                         .count = count,
                         .dtype = dtype,
                         .sum = dtype == OT_BF16 ? wide[i % 2] : dtype,
                         .sum_on_wire = i >= 2,
                         .workspace = b->workspace,
                         .name = "sum"};
    OT_TRY(check_all_reduce(comm, m, call, b));
    const bool real = call.sum == OT_F32 || call.sum == OT_F64;
    for (int k = 0; k < (real ? 4 : 2); k++) {
      call.accumulate = k % 2 == 1;
      call.narrow = k >= 2;
      OT_TRY(check_reduce_scatter(comm, m, call, b));
    }
  }
  return OT_OK;
}

typedef ot_status (*kind_check)(ot_comm *comm, const comm_members *m, ot_dtype dtype, int64_t count,
                                buffers *b);
static const kind_check kind_checks[] = {check_all_gather, check_all_to_all, check_shift,
                                         check_sums};

ot_status comm_check_kinds(ot_comm *comm, const comm_members *m, ot_dtype dtype, int64_t count) {
  buffers b = {0};
  ot_status status = buffers_take(&b, (count + 1) * 8 * m->size);
  for (int i = 0; i < OT_COUNT(kind_checks) && status == OT_OK; i++) {
    status = kind_checks[i](comm, m, dtype, count, &b);
  }
  buffers_drop(&b);
  return status;
}

ot_status comm_every_kind_and_type(ot_comm *comm) {
  const comm_members all = comm_world_of(comm);
  if (all.size == 1) return OT_OK;
  for (int d = 0; d < OT_COUNT(dtypes); d++) {
    for (int c = 0; c < OT_COUNT(counts); c++) {
      OT_TRY(comm_check_kinds(comm, &all, dtypes[d], counts[c]));
    }
  }
  return OT_OK;
}

static ot_status run_large(ot_comm *comm, const comm_members *m, int64_t count, buffers *b) {
  const ot_comm_call call = {.kind = OT_COMM_ALL_REDUCE,
                             .group = m->kind,
                             .send = b->send,
                             .receive = b->receive,
                             .count = count,
                             .dtype = OT_BF16,
                             .sum = OT_F64,
                             .workspace = b->workspace,
                             .name = "large"};
  comm_values(m->ranks[m->index], 0, count, OT_BF16, b->send);
  OT_TRY(comm_run(comm, &call));
  for (int64_t e = 0; e < count; e += 1 + e % 101) {
    comm_expected_sum(&call, m, e, NULL, b->expected);
    narrow(b->expected, 1, OT_F64, b->expected, OT_BF16);
    COMM_EXPECT(memcmp(b->receive + 2 * e, b->expected, 2) == 0);
  }
  return OT_OK;
}

ot_status comm_large_calls(ot_comm *comm) {
  const comm_members all = comm_world_of(comm);
  if (all.size == 1) return OT_OK;
  OT_TRY(comm_check_kinds(comm, &all, OT_F32, 200003 / all.size));
  buffers b = {0};
  ot_status status = buffers_take(&b, 4000 * 1024);
  if (status == OT_OK) status = run_large(comm, &all, 1000003, &b);
  buffers_drop(&b);
  return status;
}
