// SPDX-License-Identifier: Apache-2.0
// The record of the data in a checkpoint: the content of each token file, and what the order of
// samples is a function of. A run that goes on compares it with the data that it finds.
//   {"order", "seed", "sequence_length", "tokenizer_xxh3_128" (null: none),
//    "train": [{"path", "tokens", "xxh3_128", "windows_read"}],   in the order of first mention
//    "validation": [{"path", "tokens", "xxh3_128"}]}
#pragma once

#include "base/arena.h"
#include "data/data_loader.h"

// Version of the function from the number of a sample to its window (sampler.h, blend.h).
enum { OT_DATA_ORDER = 2 };

// The record after `samples` samples, a JSON object in `arena`.
const char *ot_data_record_print(const ot_data_loader *loader, int64_t samples, ot_arena *arena);

typedef struct ot_data_record_state {
  const char *path;     // of the state, for messages
  const char *record;   // null: it has none
  int64_t next_sample;  // the run goes on with this sample
  bool train_given;     // the user changed the training sets on purpose
  bool validation_given;
  bool tokenizer_given;
} ot_data_record_state;

// OT_ENVIRONMENT, naming the file, if a token file or the tokenizer of `loader` has another content
// than the record of `state` says, unless the user gave these. *note, in `arena`, says what of the
// data or of the order of samples is another one, with the windows of each source that are left out
// or read again; null: nothing.
ot_status ot_data_record_check(const ot_data_loader *loader, const ot_data_record_state *state,
                               ot_arena *arena, const char **note);
