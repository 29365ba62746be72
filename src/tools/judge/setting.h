// SPDX-License-Identifier: Apache-2.0
// The numbers of a model that programs take from elsewhere than config.json: each has a value, a
// share by which a hypothesis moves it, and values that programs usually have. Pure.
#pragma once

#include "describe/model.h"

typedef struct ot_setting {
  const char *fault;  // the hypothesis that moves it: "norm_epsilon"
  const char *words;  // "norms have the epsilon"
  double share;       // of its value, by which the hypothesis moves it
  bool linear;        // gradients are linear in the value over many times it, not in its logarithm
  double (*get)(const ot_model *model);
  void (*set)(ot_model *model, double value);
} ot_setting;

enum { OT_SETTINGS = 3, OT_SETTING_USUAL = 5 };

extern const ot_setting ot_setting_table[OT_SETTINGS];

// The setting that the hypothesis of class `fault` moves, or null.
const ot_setting *ot_setting_of_fault(const char *fault);

// Sets the setting to `factor` times its value.
void ot_setting_scale(const ot_setting *setting, ot_model *model, double factor);

// Usual values, without the model's own, to `out` [OT_SETTING_USUAL]; returns their number.
int ot_setting_usual(const ot_setting *setting, const ot_model *model, double *out);
