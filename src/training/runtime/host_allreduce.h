// SPDX-License-Identifier: Apache-2.0
// Host-side all-reduce of words between steps: each rank fills some of them, the rest are zero, and
// all ranks receive the sum. It serves broadcasts, gathers of one value per rank, and the assembly
// of sharded tensors; exact, because adding zeros is.
#pragma once

#include "comm/comm.h"

typedef struct ot_host_allreduce ot_host_allreduce;

// Allocates `words` words. Keeps `comm`; null: one rank.
ot_status ot_host_allreduce_create(ot_comm *comm, int64_t words, ot_host_allreduce **out);
void ot_host_allreduce_destroy(ot_host_allreduce **exchange);

// The words to fill and to read, [words].
int64_t *ot_host_allreduce_words(ot_host_allreduce *exchange);
int64_t ot_host_allreduce_capacity(const ot_host_allreduce *exchange);

// All-reduces the first `count` words as integers. Collective over the world. Blocks.
ot_status ot_host_allreduce_integers(ot_host_allreduce *exchange, int64_t count);

// The same for float64 values, added in rank order.
ot_status ot_host_allreduce_reals(ot_host_allreduce *exchange, int64_t count);
