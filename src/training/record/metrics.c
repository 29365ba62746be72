// SPDX-License-Identifier: Apache-2.0
// Builds lines in an arena that is reset after each, and writes each with one call.
#include "record/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/number.h"
#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"

enum { LOSS_DIGITS = 17, NUMBER_BYTES = 32 };

struct ot_metrics {
  ot_heap heap;
  ot_arena arena;
  ot_log_file *log;
  ot_json_writer line;
};

// ---- existing lines, when a run resumes ----

// The step of a line that this writer wrote; -1 for any other text.
static int64_t step_of_line(const char *line) {
  static const char start[] = "{\"step\":";
  if (strncmp(line, start, sizeof start - 1) != 0) return -1;
  char *end = NULL;
  const long long step = strtoll(line + sizeof start - 1, &end, 10);
  const bool ended = *end == ',' || *end == '}';
  return ended && step < (INT64_C(1) << 53) ? step : -1;
}

// The step_seconds of a line, if it has them.
static void add_seconds(const char *line, bool later, ot_metrics_extent *extent) {
  static const char key[] = "\"step_seconds\":";
  const char *const at = strstr(line, key);
  const double seconds = at ? strtod(at + sizeof key - 1, NULL) : 0;
  if (later)
    extent->later_s += seconds;
  else
    extent->kept_s += seconds;
}

typedef struct line_survey {
  ot_metrics_extent extent;
  int64_t kept;   // bytes of the leading lines up to the kept step
  int64_t bytes;  // bytes of complete lines
} line_survey;

// `timed`: also adds up seconds.
static ot_status survey_lines(const char *path, FILE *file, int64_t step, bool timed,
                              line_survey *survey) {
  char *line = NULL;
  size_t capacity = 0;
  *survey = (line_survey){0};
  for (ssize_t length; (length = getline(&line, &capacity, file)) > 0;) {
    if (line[length - 1] != '\n') break;
    const int64_t of_line = step_of_line(line);
    if (survey->kept == survey->bytes && of_line <= step) survey->kept += length;
    if (timed) add_seconds(line, of_line > step, &survey->extent);
    if (of_line > survey->extent.newest) survey->extent.newest = of_line;
    survey->bytes += length;
  }
  free(line);
  if (ferror(file)) return ot_disk_fail("read", path, errno);
  return OT_OK;
}

// A missing file has no lines.
static ot_status survey(const char *path, int64_t step, bool timed, line_survey *out) {
  int descriptor = -1;
  *out = (line_survey){0};
  if (access(path, F_OK) != 0 && errno == ENOENT) return OT_OK;
  OT_TRY(ot_disk_open(path, &descriptor));
  FILE *const file = fdopen(descriptor, "rb");
  if (file == NULL) {
    close(descriptor);
    return ot_fail(OT_ENVIRONMENT, "out of memory (%s)", path);
  }
  const ot_status status = survey_lines(path, file, step, timed, out);
  fclose(file);
  return status;
}

ot_status ot_metrics_measure(const char *path, int64_t step, ot_metrics_extent *extent) {
  line_survey found;
  OT_TRY(survey(path, step, true, &found));
  *extent = found.extent;
  return OT_OK;
}

ot_status ot_metrics_newest(const char *path, int64_t *step) {
  line_survey found;
  OT_TRY(survey(path, 0, false, &found));
  *step = found.extent.newest;
  return OT_OK;
}

ot_status ot_metrics_copy_later(const char *path, int64_t step, const char *copy) {
  line_survey found;
  OT_TRY(survey(path, step, false, &found));
  if (found.kept == found.bytes) return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char *text = NULL;
  int64_t bytes = 0;
  ot_status status = ot_disk_read(&arena, path, INT64_MAX, &text, &bytes);
  if (status == OT_OK) status = ot_disk_write(copy, text + found.kept, found.bytes - found.kept);
  ot_heap_release(&heap);
  return status;
}

static ot_status open_log(ot_metrics *metrics, const char *path, int64_t step) {
  const ot_log_request request = {.path = path, .flags = O_CREAT};
  line_survey found;
  OT_TRY(survey(path, step, false, &found));
  OT_TRY(ot_log_file_create(&request, found.kept, &metrics->log));
  ot_log_file_sync(metrics->log);
  return OT_OK;
}

ot_status ot_metrics_create(const char *path, int64_t step, ot_metrics **out) {
  ot_metrics *metrics = calloc(1, sizeof *metrics);
  OT_CHECK(metrics != NULL, OT_ENVIRONMENT, "out of memory (%s)", path);
  metrics->arena = ot_heap_arena_create(&metrics->heap);
  metrics->line = ot_json_begin(&metrics->arena, 0);
  const ot_status status = open_log(metrics, path, step);
  if (status != OT_OK) ot_metrics_destroy(&metrics);
  *out = metrics;
  return status;
}

void ot_metrics_destroy(ot_metrics **metrics) {
  if (*metrics == NULL) return;
  ot_log_file_destroy(&(*metrics)->log);
  ot_heap_release(&(*metrics)->heap);
  free(*metrics);
  *metrics = NULL;
}

ot_log_file *ot_metrics_log(const ot_metrics *metrics) { return metrics->log; }

// ---- lines ----

static void print_loss(ot_json_writer *json, const char *key, double loss_nats) {
  char text[NUMBER_BYTES];
  if (isfinite(loss_nats))
    ot_number_print(text, sizeof text, loss_nats, LOSS_DIGITS);
  else
    ot_text_format(text, sizeof text, "null");
  ot_json_raw(json, key, text);
}

static void print_count(ot_json_writer *json, const char *key, int64_t count) {
  if (count >= 0)
    ot_json_integer(json, key, count);
  else
    ot_json_null(json, key);
}

static void print_exposed(ot_json_writer *json, const ot_metrics_exposed *exposed) {
  ot_json_object(json, "exposed_seconds");
  ot_json_real(json, "tp", exposed->tp_s);
  ot_json_real(json, "cp", exposed->cp_s);
  ot_json_real(json, "ep", exposed->ep_s);
  ot_json_real(json, "pp", exposed->pp_s);
  ot_json_real(json, "dp", exposed->dp_s);
  ot_json_end(json);
}

// The writer reuses the memory of its text between lines.
static ot_json_writer *begin_line(ot_metrics *metrics, int64_t step) {
  metrics->line.length = 0;
  metrics->line.filled = 0;
  ot_json_object(&metrics->line, NULL);
  ot_json_integer(&metrics->line, "step", step);
  return &metrics->line;
}

static void end_line(ot_metrics *metrics) {
  ot_json_writer *const json = &metrics->line;
  ot_json_end(json);
  // The terminating zero becomes the end of the line.
  json->text[json->length] = '\n';
  ot_log_file_append(metrics->log, json->text, json->length + 1);
  json->text[json->length] = '\0';
}

void ot_metrics_write_step(ot_metrics *metrics, const ot_metrics_step *step) {
  ot_json_writer *const json = begin_line(metrics, step->step);
  print_loss(json, "loss", step->loss_nats);
  print_loss(json, "data_loss", step->data_loss_nats);
  ot_json_real(json, "teacher_kl", step->teacher_kl_nats);
  ot_json_real(json, "grad_norm", step->gradient_norm);
  ot_json_real(json, "lr", step->learning_rate);
  print_count(json, "tokens", step->tokens);
  ot_json_real(json, "step_seconds", step->step_s);
  ot_json_real(json, "tokens_per_second", step->tokens_per_s);
  ot_json_real(json, "mfu", step->mfu);
  ot_json_real(json, "goodput", step->goodput);
  ot_json_real(json, "predicted_step_seconds", step->predicted_step_s);
  print_exposed(json, &step->exposed);
  ot_json_real(json, "bubble_fraction", step->bubble_fraction);
  print_count(json, "memory_peak_bytes", step->memory_peak_bytes);
  print_count(json, "memory_planned_bytes", step->memory_planned_bytes);
  print_count(json, "products_by_own_kernel", step->products_by_own_kernel);
  print_count(json, "algorithms_replaced", step->algorithms_replaced);
  ot_json_real(json, "noise_scale_tokens", step->noise_scale_tokens);
  ot_json_real(json, "moe_aux_loss", step->experts.aux_loss);
  ot_json_real(json, "moe_z_loss", step->experts.z_loss);
  ot_json_real(json, "moe_load_max", step->experts.load_max);
  ot_json_real(json, "moe_load_entropy", step->experts.load_entropy);
  ot_json_real(json, "moe_drop_share", step->experts.drop_share);
  ot_json_real(json, "moe_rounds", step->experts.rounds);
  for (int i = 0; i < step->num_health; i++)
    ot_json_real(json, step->health[i].name, step->health[i].value);
  end_line(metrics);
}

void ot_metrics_write_validation(ot_metrics *metrics, int64_t step, const char *name,
                                 double loss_nats) {
  enum { KEY_BYTES = 512 };
  char key[KEY_BYTES];
  const bool named = name != NULL && name[0] != '\0';
  ot_text_format(key, sizeof key, named ? "val_loss/%s" : "val_loss", name);
  print_loss(begin_line(metrics, step), key, loss_nats);
  end_line(metrics);
}

void ot_metrics_write_audit(ot_metrics *metrics, int64_t step, const char *name, int64_t findings) {
  char key[64];
  ot_text_format(key, sizeof key, "audit_findings/%s", name);
  ot_json_integer(begin_line(metrics, step), key, findings);
  end_line(metrics);
}

void ot_metrics_write_values(ot_metrics *metrics, int64_t step, const ot_metric *values,
                             int count) {
  ot_json_writer *const json = begin_line(metrics, step);
  for (int i = 0; i < count; i++) ot_json_real(json, values[i].name, values[i].value);
  end_line(metrics);
}

void ot_metrics_write_figure(ot_metrics *metrics, int64_t step, const char *key, double value) {
  ot_json_real(begin_line(metrics, step), key, value);
  end_line(metrics);
}

void ot_metrics_write_spike(ot_metrics *metrics, const ot_metrics_spike *spike) {
  char key[64];
  ot_text_format(key, sizeof key, "spike/%s", spike->name);
  ot_json_writer *const line = begin_line(metrics, spike->step);
  ot_json_real(line, key, spike->z);
  ot_json_integer(line, "first_sample", spike->first_sample);
  ot_json_integer(line, "last_sample", spike->last_sample);
  end_line(metrics);
}

void ot_metrics_sync(ot_metrics *metrics) { ot_log_file_sync(metrics->log); }
