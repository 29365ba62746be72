// SPDX-License-Identifier: Apache-2.0
#include "judge/setting.h"

#include <math.h>

#include "base/status.h"
#include "base/text.h"

static double get_epsilon(const ot_model *model) { return model->norm_epsilon; }

static void set_epsilon(ot_model *model, double value) { model->norm_epsilon = value; }

static double get_base(const ot_model *model) { return model->rope.theta; }

// Layers with a window may have a base of their own, which moves with the other.
static void set_base(ot_model *model, double value) {
  model->rope_local.theta *= value / model->rope.theta;
  model->rope.theta = value;
}

static double get_scale(const ot_model *model) { return model->attention_scale; }

static void set_scale(ot_model *model, double value) { model->attention_scale = value; }

const ot_setting ot_setting_table[OT_SETTINGS] = {
    {"norm_epsilon", "norms have the epsilon", 9, true, get_epsilon, set_epsilon},
    {"rope_base", "rotations have the base", 0.01, false, get_base, set_base},
    {"attention_scale", "scores have the scale", 0.01, false, get_scale, set_scale},
};

const ot_setting *ot_setting_of_fault(const char *fault) {
  for (int i = 0; i < OT_SETTINGS; i++) {
    if (ot_text_equal(ot_setting_table[i].fault, fault)) return &ot_setting_table[i];
  }
  return NULL;
}

void ot_setting_scale(const ot_setting *setting, ot_model *model, double factor) {
  setting->set(model, factor * setting->get(model));
}

int ot_setting_usual(const ot_setting *setting, const ot_model *model, double *out) {
  const double head = (double)model->head_dim, hidden = (double)model->hidden_size;
  const double usual[OT_SETTINGS][OT_SETTING_USUAL] = {
      {1e-12, 1e-8, 1e-6, 1e-5, 1e-3},
      {1e4, 1e5, 5e5, 1e6, 1e7},
      {1, 1 / sqrt(hidden), 1 / sqrt(head), 1 / head, sqrt(head)},
  };
  static const double same = 1e-6;
  const double own = setting->get(model);
  int count = 0;
  for (int i = 0; i < OT_SETTING_USUAL; i++) {
    const double value = usual[setting - ot_setting_table][i];
    if (fabs(value / own - 1) > same) out[count++] = value;
  }
  return count;
}
