// SPDX-License-Identifier: Apache-2.0
// Capabilities of each back end, in one table: what code outside kernels/ and device/ depends on.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"

typedef struct ot_backend_rules {
  const char *key;       // value of the key `device` of a run
  const char *where;     // of messages: "op X has no kernel on the CPU"
  bool host;             // its device is this machine: the arena is in host memory, kernels run on
                         // `threads` of its cores, and all ranks of the machine share it
  bool queued;           // kernels are queued on streams and timed by events; false: they have run
                         // when the call returns, and the host's clock times them
  bool bits_of_widths;   // the bits of a row depend on the number of rows of its product
  bool scores_shards;    // scores are computed from shards of the vocabulary and of sequences
  int64_t widest_head;   // head_dim that attention supports, at most; 0: any
  int64_t logits_bytes;  // memory of the logits of a chunk, at most; 0: their number is limited
  bool narrow_logits;    // those of the loss are stored in bf16 where x is and products are in fp32
} ot_backend_rules;

const ot_backend_rules *ot_backend_rules_of(ot_backend backend);
