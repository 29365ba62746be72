// SPDX-License-Identifier: Apache-2.0
// Words that all ranks put together between steps: each fills some of them, the rest are zero, and
// their sum is everyone's. One mechanism for telling all what one rank knows, for collecting what
// each rank knows, and for putting tensors together; exact, because adding zeros is.
#pragma once

#include "comm/comm.h"

typedef struct ot_exchange ot_exchange;

// With room for `words` words. Keeps `comm`, which may be null: then there is one rank.
ot_status ot_exchange_create(ot_comm *comm, int64_t words, ot_exchange **out);
void ot_exchange_destroy(ot_exchange **exchange);

// The words to fill and to read, [words].
int64_t *ot_exchange_words(ot_exchange *exchange);
int64_t ot_exchange_capacity(const ot_exchange *exchange);

// Sums the first `count` words over the ranks, as integers. Collective over the world. Blocks.
ot_status ot_exchange_merge(ot_exchange *exchange, int64_t count);

// The same of float64 values, added in rank order.
ot_status ot_exchange_sum(ot_exchange *exchange, int64_t count);
