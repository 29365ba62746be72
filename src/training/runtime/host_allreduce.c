// SPDX-License-Identifier: Apache-2.0
// All-reduces over the world in memory allocated once.
#include "runtime/host_allreduce.h"

#include <stdlib.h>

struct ot_host_allreduce {
  ot_comm *comm;  // null: one rank
  int64_t capacity;
  int64_t *words;
  void *workspace;
};

static ot_comm_call sum_of(const ot_host_allreduce *exchange, int64_t count, ot_dtype dtype) {
  return (ot_comm_call){.kind = OT_COMM_ALL_REDUCE,
                        .group = OT_GROUP_WORLD,
                        .send = exchange->words,
                        .receive = exchange->words,
                        .count = count,
                        .dtype = dtype,
                        .sum = dtype,
                        .workspace = exchange->workspace,
                        .name = "a host all-reduce"};
}

ot_status ot_host_allreduce_create(ot_comm *comm, int64_t words, ot_host_allreduce **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory for host all-reduces");
  ot_host_allreduce *const made = *out;
  made->comm = comm && ot_comm_size(comm) > 1 ? comm : NULL;
  made->capacity = words;
  made->words = calloc((size_t)words, sizeof *made->words);
  if (made->comm) {
    const ot_comm_call largest = sum_of(made, words, OT_I64);
    made->workspace = malloc((size_t)ot_comm_workspace(&largest, ot_comm_size(comm)));
  }
  if (made->words && (made->workspace || !made->comm)) return OT_OK;
  ot_host_allreduce_destroy(out);
  return ot_fail(OT_ENVIRONMENT, "out of memory for host all-reduces");
}

void ot_host_allreduce_destroy(ot_host_allreduce **exchange) {
  if (!exchange || !*exchange) return;
  free((*exchange)->words);
  free((*exchange)->workspace);
  free(*exchange);
  *exchange = NULL;
}

int64_t *ot_host_allreduce_words(ot_host_allreduce *exchange) { return exchange->words; }

int64_t ot_host_allreduce_capacity(const ot_host_allreduce *exchange) { return exchange->capacity; }

static ot_status run(ot_host_allreduce *exchange, int64_t count, ot_dtype dtype) {
  OT_ASSERT(count <= exchange->capacity);
  if (!exchange->comm || count == 0) return OT_OK;
  const ot_comm_call call = sum_of(exchange, count, dtype);
  return ot_comm_run(exchange->comm, &call);
}

ot_status ot_host_allreduce_integers(ot_host_allreduce *exchange, int64_t count) {
  return run(exchange, count, OT_I64);
}

ot_status ot_host_allreduce_reals(ot_host_allreduce *exchange, int64_t count) {
  return run(exchange, count, OT_F64);
}
