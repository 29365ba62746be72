// SPDX-License-Identifier: Apache-2.0
// Host-side all-reduce of words between steps: each rank fills some of them, the rest are zero, and
// all ranks receive the sum. It serves broadcasts, gathers of one value per rank, and the assembly
// of sharded tensors; exact, because adding zeros is.
#pragma once

#include "comm/comm.h"

typedef struct ot_exchange ot_exchange;

// Allocates `words` words. Keeps `comm`; null: one rank.
ot_status ot_exchange_create(ot_comm *comm, int64_t words, ot_exchange **out);
void ot_exchange_destroy(ot_exchange **exchange);

// The words to fill and to read, [words].
int64_t *ot_exchange_words(ot_exchange *exchange);
int64_t ot_exchange_capacity(const ot_exchange *exchange);

// All-reduces the first `count` words as integers. Collective over the world. Blocks.
ot_status ot_exchange_merge(ot_exchange *exchange, int64_t count);

// The same for float64 values, added in rank order.
ot_status ot_exchange_sum(ot_exchange *exchange, int64_t count);
