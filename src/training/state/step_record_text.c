// SPDX-License-Identifier: Apache-2.0
// The text of a rank: mesh, places, micro-batches, numbers, settings of the optimizer.
#include <math.h>

#include "base/extremes.h"
#include "base/text.h"
#include "describe/learning_rate.h"
#include "state/step_record_parts.h"

// ---- the mesh ----

// Outermost first; those of experts are made of the others.
static const ot_axis axes[] = {OT_AXIS_PP, OT_AXIS_DP_REPLICATE, OT_AXIS_DP_SHARD, OT_AXIS_CP,
                               OT_AXIS_TP, OT_AXIS_EP,           OT_AXIS_ETP};

static bool is_data(ot_axis axis) {
  return axis == OT_AXIS_DP_REPLICATE || axis == OT_AXIS_DP_SHARD;
}

static void put_mesh(const ot_world *world, ot_json_writer *w) {
  ot_json_object(w, "mesh");
  for (int i = 0; i < OT_COUNT(axes); i++) {
    const int degree = ot_world_degree(world, axes[i]);
    if (degree > 1) ot_json_integer(w, ot_axis_name(axes[i]), degree);
  }
  ot_json_end(w);
  ot_json_object(w, "coordinates");
  for (int i = 0; i < OT_COUNT(axes); i++) {
    if (ot_world_degree(world, axes[i]) > 1)
      ot_json_integer(w, ot_axis_name(axes[i]), ot_world_index(world, axes[i]));
  }
  ot_json_end(w);
  ot_json_array(w, "data_axes");
  for (int i = 0; i < OT_COUNT(axes); i++) {
    if (is_data(axes[i]) && ot_world_degree(world, axes[i]) > 1)
      ot_json_text(w, NULL, ot_axis_name(axes[i]));
  }
  ot_json_end(w);
}

// ---- places ----

static void put_numbers(ot_json_writer *w, const char *key, const int64_t *numbers, int count) {
  ot_json_array(w, key);
  for (int i = 0; i < count; i++) ot_json_integer(w, NULL, numbers[i]);
  ot_json_end(w);
}

static void put_place(const ot_recorded_values *values, ot_json_writer *w) {
  int64_t offset[OT_SAFETENSORS_DIMS], block[OT_SAFETENSORS_DIMS];
  ot_json_object(w, values->key);
  if (values->held) {
    const ot_held_tensor *const tensor = &values->held->tensors[values->tensor];
    const ot_safetensors_tensor *const whole = &values->held->whole.tensors[values->tensor];
    put_numbers(w, "shape", whole->dim, whole->rank);
    const bool block_held = ot_held_block(tensor, whole, offset, block);
    if (block_held) put_numbers(w, "offset", offset, whole->rank);
    if (!block_held) {
      ot_json_array(w, "flat");
      for (int64_t i = 0; i < tensor->num_runs; i++) {
        ot_json_integer(w, NULL, tensor->runs[i].first);
        ot_json_integer(w, NULL, tensor->runs[i].count);
      }
      ot_json_end(w);
    }
  }
  ot_json_end(w);
}

static void put_places(const ot_step_record *record, ot_json_writer *w) {
  ot_json_object(w, "tensors");
  for (int i = 0; i < record->num_values; i++) put_place(&record->values[i], w);
  ot_json_end(w);
}

// ---- micro-batches and numbers ----

static void put_batches(const ot_step_record *record, ot_json_writer *w) {
  ot_json_array(w, "batches");
  for (int m = 0; m < record->request.micro_batches; m++) {
    ot_json_object(w, NULL);
    ot_json_integer(w, "micro", m);
    ot_json_boolean(w, "shifted", true);
    ot_json_end(w);
  }
  ot_json_end(w);
}

// A parametrization that scales makes constants part of weights, and the norm is that of gradients
// without them.
static bool is_norm_of_gradients(const ot_weight_map *map) {
  for (int i = 0; i < map->num_tensors; i++) {
    const ot_parameter *const p = &map->parameters[map->tensors[i].pieces[0].parameter];
    for (int k = 0; k < p->num_parts; k++)
      if (p->parts[k].constant != 1) return false;
  }
  return true;
}

static void put_scalars(const ot_step_record *record, const ot_step_record_numbers *numbers,
                        ot_json_writer *w) {
  const double clip = record->request.run->optimizer.clip;
  const bool normal = is_norm_of_gradients(&record->view.map);
  ot_json_object(w, "scalars");
  if (isfinite(numbers->loss)) ot_json_real(w, "loss", numbers->loss);
  if (isfinite(numbers->norm) && normal) ot_json_real(w, "norm", numbers->norm);
  if (clip > 0 && normal) ot_json_real(w, "clip", clip);
  ot_json_end(w);
}

// ---- the optimizer ----

typedef struct tensor_settings {
  const char *name;
  double rate, decay, epsilon;
} tensor_settings;

static const ot_optimizer_group *group_of(const ot_run_optimizer *o, const char *name) {
  for (int64_t i = 0; i < o->num_groups; i++)
    if (ot_text_matches(name, o->groups[i].pattern)) return &o->groups[i];
  return NULL;
}

// The settings of the run for a part: a group's rate is a peak, its factor multiplies that
// of the optimizer, and the schedule scales all peaks alike.
static tensor_settings settings_of(const ot_step_record *record, const ot_parameter *p,
                                   const ot_parameter_part *part) {
  const ot_run *const run = record->request.run;
  const ot_run_optimizer *const o = &run->optimizer;
  const ot_optimizer_group *const group = group_of(o, part->hf_name);
  const bool others = ot_optimizer_rules_of(run, true)->name != OT_OPTIMIZER_ADAMW;
  const double rate = ot_learning_rate_at(run, record->request.position.step);
  const double scale = o->lr > 0 ? rate / o->lr : 0;
  double peak = others && o->adamw_lr > 0 ? o->adamw_lr : o->lr;
  double decay = p->kind == OT_PARAMETER_VECTOR ? 0 : o->weight_decay;
  if (group) peak = group->lr >= 0 ? group->lr : peak * group->lr_factor;
  if (group && group->weight_decay >= 0) decay = group->weight_decay;
  return (tensor_settings){.rate = peak * scale * part->rate_factor,
                           .decay = decay * part->decay_factor,
                           .epsilon = o->eps * part->epsilon_factor};
}

// The part that a tensor of the map begins in.
static const ot_parameter_part *part_of(const ot_parameter *p, const ot_weight_slice *piece) {
  int k = 0;
  while (piece->first_row >= p->parts[k].first_row + p->parts[k].rows) k++;
  return &p->parts[k];
}

// The tensors of this rank that AdamW updates; returns their number.
static int list_settings(const ot_step_record *record, tensor_settings *list) {
  const ot_held_tensors *const held = &record->held[OT_COPY_MOMENT_1];
  const ot_weight_map *const map = &record->view.map;
  int count = 0;
  for (int i = 0; i < held->whole.num_tensors; i++) {
    const ot_weight_slice *const piece = &map->tensors[held->tensors[i].first_part].pieces[0];
    const ot_parameter *const p = &map->parameters[piece->parameter];
    const bool matrix = p->kind == OT_PARAMETER_MATRIX;
    if (held->tensors[i].elements == 0) continue;
    if (ot_optimizer_rules_of(record->request.run, matrix)->name != OT_OPTIMIZER_ADAMW) continue;
    list[count] = settings_of(record, p, part_of(p, piece));
    list[count++].name = held->whole.tensors[i].name;
  }
  return count;
}

static bool same_settings(const tensor_settings *a, const tensor_settings *b) {
  return a->rate == b->rate && a->decay == b->decay && a->epsilon == b->epsilon;
}

// The group of the settings of `list[first]`.
static void put_group(const ot_step_record *record, const tensor_settings *list, int count,
                      int first, ot_json_writer *w) {
  const ot_run_optimizer *const o = &record->request.run->optimizer;
  ot_json_object(w, NULL);
  ot_json_array(w, "names");
  for (int i = first; i < count; i++)
    if (same_settings(&list[i], &list[first])) ot_json_text(w, NULL, list[i].name);
  ot_json_end(w);
  ot_json_object(w, "settings");
  ot_json_real(w, "lr", list[first].rate);
  ot_json_array(w, "betas");
  for (int i = 0; i < OT_COUNT(o->betas); i++) ot_json_real(w, NULL, o->betas[i]);
  ot_json_end(w);
  ot_json_real(w, "eps", list[first].epsilon);
  ot_json_real(w, "weight_decay", list[first].decay);
  ot_json_integer(w, "step", record->request.position.step + 1);
  ot_json_end(w);
  ot_json_end(w);
}

static void put_optimizer(const ot_step_record *record, ot_arena *arena, ot_json_writer *w) {
  tensor_settings *const list =
      ot_arena_array(arena, record->view.map.num_tensors + 1, sizeof *list);
  const int count = list_settings(record, list);
  ot_json_object(w, "optimizer");
  ot_json_text(w, "class", "AdamW");
  ot_json_array(w, "groups");
  for (int i = 0; i < count; i++) {
    bool first = true;
    for (int k = 0; k < i && first; k++) first = !same_settings(&list[k], &list[i]);
    if (first) put_group(record, list, count, i, w);
  }
  ot_json_end(w);
  ot_json_end(w);
}

// ---- the text ----

static double largest_dropout(const ot_model *model) {
  return ot_larger(ot_larger(model->embedding_dropout, model->attention_dropout),
                   model->residual_dropout);
}

const char *ot_step_record_text(const ot_step_record *record, ot_arena *arena,
                                const ot_step_record_numbers *numbers) {
  const ot_step_record_request *const request = &record->request;
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "format", "orthant-step-1");
  ot_json_text(&w, "software", "orthant " OT_VERSION);
  ot_json_text(&w, "note",
               ot_arena_format(arena, "step %lld", (long long)request->position.step + 1));
  ot_json_integer(&w, "rank", ot_world_rank(request->world));
  ot_json_integer(&w, "world", ot_world_size(request->world));
  put_mesh(request->world, &w);
  ot_json_text(&w, "moment", "reduced, before clipping");
  ot_json_real(&w, "dropout", largest_dropout(&request->run->model));
  put_batches(record, &w);
  put_scalars(record, numbers, &w);
  put_optimizer(record, arena, &w);
  put_places(record, &w);
  ot_json_end(&w);
  return w.text;
}
