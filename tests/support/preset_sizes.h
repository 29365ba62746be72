// SPDX-License-Identifier: Apache-2.0
// Sizes of the models in presets/models: trainable elements as published, or as counted by
// transformers 5.23 on the public configuration.
#pragma once

#include <stdint.h>

typedef struct preset_size {
  const char *name;  // presets/models/NAME.json
  int64_t parameters;
} preset_size;

extern const preset_size preset_sizes[];  // [preset_count], every preset
extern const int preset_count;
