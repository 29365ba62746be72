// SPDX-License-Identifier: Apache-2.0
// The models that torchtitan names (torchtitan/models/*/__init__.py) and that are presets here.
#pragma once

#include "describe/model.h"

typedef struct ot_titan_model {
  const char *name, *flavor;  // "llama3", "8B"
  const char *preset;         // "llama3.1-8b"
  ot_family family;
  int64_t layers, hidden;  // of the preset: no two of a family share both
} ot_titan_model;

// The row at `index`, or null after the last.
const ot_titan_model *ot_titan_model_at(int index);

// The row of `model`, by its sizes; null if torchtitan names no such model.
const ot_titan_model *ot_titan_model_of(const ot_model *model);
