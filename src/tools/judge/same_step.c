// SPDX-License-Identifier: Apache-2.0
#include "judge/same_step.h"

#include <math.h>
#include <stdarg.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "host/heap.h"
#include "judge/judge_parts.h"

enum { MESSAGE_BYTES = 1536 };

// Both records, the first before the second.
typedef struct same_step {
  const ot_step_record *records[2];
  ot_arena *scratch;
} same_step;

ot_status ot_same_step_fail(const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_message(text, sizeof text, format, arguments);
  va_end(arguments);
  ot_fail(OT_USAGE, "not the same step: %s", text);
  return ot_fail_hint(OT_USAGE,
                      "record both from one checkpoint, with the same batches and settings");
}

static const ot_recorded_step *step_of(const same_step *s, int record) {
  return s->records[record]->step;
}

// ---- model ----

static const char *json_of(const ot_node *node, ot_arena *scratch) {
  ot_json_writer w = ot_json_begin(scratch, 0);
  if (!node) return "absent";
  ot_node_write_json(node, NULL, &w);
  return w.text;
}

static ot_status check_model(const same_step *s) {
  const ot_model *const a = &step_of(s, 0)->model, *const b = &step_of(s, 1)->model;
  if (ot_model_hash(a) == ot_model_hash(b)) return OT_OK;
  const ot_node *const keys = ot_model_write(a, s->scratch);
  const ot_node *const others = ot_model_write(b, s->scratch);
  for (const ot_node *at = keys->first; at; at = at->next) {
    const char *const x = json_of(at, s->scratch);
    const char *const y = json_of(ot_node_child(others, at->key), s->scratch);
    if (ot_text_equal(x, y) || ot_text_ends_with(at->key, "dtype")) continue;
    return ot_same_step_fail("%s is %.200s (%s/config.json) and %.200s (%s/config.json)", at->key,
                             x, step_of(s, 0)->path, y, step_of(s, 1)->path);
  }
  return ot_same_step_fail("the models differ (%s/config.json, %s/config.json)",
                           step_of(s, 0)->path, step_of(s, 1)->path);
}

// ---- settings ----

static ot_status check_moment(const same_step *s) {
  const char *const a = step_of(s, 0)->moment, *const b = step_of(s, 1)->moment;
  if (a[0] == '\0' || b[0] == '\0' || ot_text_equal(a, b)) return OT_OK;
  return ot_same_step_fail("gradients were recorded \"%s\" (%s) and \"%s\" (%s)", a,
                           step_of(s, 0)->path, b, step_of(s, 1)->path);
}

static ot_status check_clip(const same_step *s) {
  double a, b;
  const bool both = ot_recorded_scalar_of(step_of(s, 0), "clip", 0, &a) &&
                    ot_recorded_scalar_of(step_of(s, 1), "clip", 0, &b);
  if (!both || ot_judged_equal(a, b)) return OT_OK;
  return ot_same_step_fail("gradients were clipped to %.9g (%s) and %.9g (%s)", a,
                           step_of(s, 0)->path, b, step_of(s, 1)->path);
}

// The settings that decide an update. Others say how it is computed.
static ot_status check_setting(const same_step *s, const char *tensor, const char *name) {
  const ot_recorded_setting *found[2];
  for (int i = 0; i < 2; i++) {
    const ot_recorded_group *const group = ot_recorded_group_of(step_of(s, i), tensor);
    found[i] = group ? ot_recorded_setting_of(group, name) : NULL;
    if (!found[i]) return OT_OK;
  }
  for (int k = 0; k < found[0]->count && k < found[1]->count; k++) {
    const double a = found[0]->value[k], b = found[1]->value[k];
    if (!ot_judged_equal(a, b))
      return ot_same_step_fail("the optimizer's %s of %s is %.9g (%s) and %.9g (%s)", name, tensor,
                               a, step_of(s, 0)->path, b, step_of(s, 1)->path);
  }
  return OT_OK;
}

static ot_status check_settings(const same_step *s, const char *tensor) {
  static const char *const names[] = {"lr", "betas", "eps", "weight_decay", "step"};
  for (int i = 0; i < OT_COUNT(names); i++) OT_TRY(check_setting(s, tensor, names[i]));
  return OT_OK;
}

// ---- values ----

// How two whole tensors differ.
typedef struct value_difference {
  int64_t count, first;  // elements that differ, and the first of them
  double values[2];      // of the first
  double square, base;   // of the differences, and of the values of the first record
} value_difference;

static void compare_chunk(void *context, double *const *values, int64_t first, int64_t count) {
  value_difference *const d = context;
  for (int64_t i = 0; i < count; i++) {
    const double a = values[0][i], b = values[1][i];
    d->base += a * a;
    if (ot_judged_equal(a, b)) continue;
    if (d->count++ == 0) {
      d->first = first + i;
      d->values[0] = a;
      d->values[1] = b;
    }
    d->square += (a - b) * (a - b);
  }
}

static ot_status read_chunks(const ot_paired_views *v, int64_t first, int64_t count,
                             double **values) {
  for (int i = 0; i < v->count; i++) {
    const ot_assembly_request request = {
        .view = &v->views[i], .first = first, .count = count, .dtype = OT_F64};
    OT_TRY(ot_assemble(v->steps[i], &request, NULL, values[i], NULL));
  }
  return OT_OK;
}

ot_status ot_paired_views_read(const ot_paired_views *v, ot_values_receiver *receive,
                               void *context) {
  enum { CHUNK = 1 << 20 };
  const int64_t all = v->views[0].elements;
  ot_status status = OT_OK;
  for (int64_t first = 0; first < all && status == OT_OK; first += CHUNK) {
    const int64_t count = all - first < CHUNK ? all - first : CHUNK;
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    double *values[3];
    for (int i = 0; i < v->count; i++) values[i] = ot_arena_array(&scratch, count, sizeof(double));
    status = read_chunks(v, first, count, values);
    if (status == OT_OK) receive(context, values, first, count);
    ot_heap_release(&heap);
  }
  return status;
}

// Whether one of the records has a gradient of it. Other tensors, such as buffers, may be recorded
// by one software only.
static bool has_gradient(const same_step *s, const char *name) {
  ot_recorded_view view;
  return ot_recorded_find(step_of(s, 0), OT_RECORDED_GRAD, name, &view) ||
         ot_recorded_find(step_of(s, 1), OT_RECORDED_GRAD, name, &view);
}

static ot_status check_values(const same_step *s, ot_recorded_kind kind, const char *name) {
  ot_paired_views v = {2, {step_of(s, 0), step_of(s, 1)}, {{0}}};
  value_difference d = {0};
  for (int i = 0; i < 2; i++) {
    const bool found = ot_recorded_find(v.steps[i], kind, name, &v.views[i]);
    if (!found && kind == OT_RECORDED_WEIGHT && has_gradient(s, name))
      return ot_same_step_fail("there is no weight %s (%s)", name, v.steps[i]->path);
    if (!found) return OT_OK;
  }
  if (v.views[0].elements != v.views[1].elements)
    return ot_same_step_fail("%s of %s has %lld elements (%s) and %lld (%s)",
                             ot_recorded_kind_name(kind), name, (long long)v.views[0].elements,
                             v.steps[0]->path, (long long)v.views[1].elements, v.steps[1]->path);
  OT_TRY(ot_paired_views_read(&v, compare_chunk, &d));
  if (d.count == 0) return OT_OK;
  return ot_same_step_fail(
      "%s of %s differs in %lld of %lld elements, by %.2g of its length; "
      "element %lld is %.9g (%s) and %.9g (%s)",
      ot_recorded_kind_name(kind), name, (long long)d.count, (long long)v.views[0].elements,
      d.base > 0 ? sqrt(d.square / d.base) : INFINITY, (long long)d.first, d.values[0],
      v.steps[0]->path, d.values[1], v.steps[1]->path);
}

// ---- all tensors ----

static int64_t count_weights(const ot_recorded_step *step) {
  int64_t count = 0;
  for (int64_t i = 0; i < step->num_tensors; i++)
    count += step->tensors[i].kind == OT_RECORDED_WEIGHT;
  return count;
}

const ot_recorded_step *ot_finer_names(const ot_recorded_step *a, const ot_recorded_step *b) {
  return count_weights(b) > count_weights(a) ? b : a;
}

static ot_status check_tensors(same_step *s) {
  static const ot_recorded_kind kinds[] = {OT_RECORDED_WEIGHT, OT_RECORDED_MASTER,
                                           OT_RECORDED_M_BEFORE, OT_RECORDED_V_BEFORE};
  const ot_recorded_step *const named = ot_finer_names(step_of(s, 0), step_of(s, 1));
  for (int64_t i = 0; i < named->num_tensors; i++) {
    if (named->tensors[i].kind != OT_RECORDED_WEIGHT) continue;
    OT_TRY(check_settings(s, named->tensors[i].name));
  }
  for (int64_t i = 0; i < named->num_tensors; i++) {
    if (named->tensors[i].kind != OT_RECORDED_WEIGHT) continue;
    for (int k = 0; k < OT_COUNT(kinds); k++)
      OT_TRY(check_values(s, kinds[k], named->tensors[i].name));
  }
  return OT_OK;
}

ot_status ot_same_step_check(const ot_step_record *first, const ot_step_record *second,
                             ot_arena *scratch) {
  same_step s = {{first, second}, scratch};
  OT_TRY(check_model(&s));
  OT_TRY(ot_same_samples_check(first, second, scratch));
  OT_TRY(check_moment(&s));
  OT_TRY(check_clip(&s));
  return check_tensors(&s);
}
