// SPDX-License-Identifier: Apache-2.0
// One file per process: events.out.tfevents.SECONDS.HOST.PID.N, appended record by record; and the
// encoding of a record.
#include "record/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static const uint32_t castagnoli = 0x82f63b78;  // reflected polynomial
static const uint32_t mask_delta = 0xa282ead8;  // of the record format

uint32_t ot_crc32c(const void *bytes, int64_t length) {
  const unsigned char *const data = bytes;
  uint32_t crc = 0xffffffff;
  for (int64_t i = 0; i < length; i++) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (castagnoli & (0u - (crc & 1u)));
  }
  return ~crc;
}

// ---- protobuf ----

static void append_fixed(ot_text_builder *out, uint64_t value, int bytes) {
  char little_endian[8];
  for (int i = 0; i < bytes; i++) little_endian[i] = (char)(value >> 8 * i);
  ot_text_append(out, little_endian, bytes);
}

static void append_varint(ot_text_builder *out, uint64_t value) {
  char bytes[10];
  int length = 0;
  for (; value >= 0x80; value >>= 7) bytes[length++] = (char)(value | 0x80);
  bytes[length++] = (char)value;
  ot_text_append(out, bytes, length);
}

static void append_key(ot_text_builder *out, int field, int wire) {
  append_varint(out, (uint64_t)(field << 3 | wire));
}

static void append_double(ot_text_builder *out, int field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  append_key(out, field, WIRE_64);
  append_fixed(out, bits, 8);
}

static void append_float(ot_text_builder *out, int field, double value) {
  const float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  append_key(out, field, WIRE_32);
  append_fixed(out, bits, 4);
}

static void append_integer(ot_text_builder *out, int field, int64_t value) {
  append_key(out, field, WIRE_VARINT);
  append_varint(out, (uint64_t)value);
}

static void append_bytes(ot_text_builder *out, int field, const char *bytes, int64_t length) {
  append_key(out, field, WIRE_BYTES);
  append_varint(out, (uint64_t)length);
  ot_text_append(out, bytes, length);
}

// ---- records ----

static uint32_t masked_crc(const char *bytes, int64_t length) {
  const uint32_t crc = ot_crc32c(bytes, length);
  return (crc >> 15 | crc << 17) + mask_delta;
}

static void append_record(ot_text_builder *out, const ot_text_builder *event) {
  const int64_t start = out->length;
  append_fixed(out, (uint64_t)event->length, 8);
  append_fixed(out, masked_crc(out->text + start, 8), 4);
  ot_text_append(out, event->text, event->length);
  append_fixed(out, masked_crc(event->text, event->length), 4);
}

void ot_event_record_version(ot_text_builder *out, double wall_s) {
  static const char version[] = "brain.Event:2";
  ot_text_builder event = {.arena = out->arena};
  append_double(&event, 1, wall_s);
  append_bytes(&event, 3, version, sizeof version - 1);
  append_record(out, &event);
}

void ot_event_record_restart(ot_text_builder *out, double wall_s, int64_t step) {
  static const char start[] = {1 << 3 | WIRE_VARINT, 1};
  ot_text_builder event = {.arena = out->arena};
  append_double(&event, 1, wall_s);
  append_integer(&event, 2, step);
  append_bytes(&event, 7, start, sizeof start);
  append_record(out, &event);
}

static void append_value(ot_text_builder *summary, const ot_metric *scalar) {
  ot_text_builder value = {.arena = summary->arena};
  append_bytes(&value, 1, scalar->name, ot_text_length(scalar->name));
  append_float(&value, 2, scalar->value);
  append_bytes(summary, 1, value.text, value.length);
}

void ot_event_record_scalars(ot_text_builder *out, double wall_s, int64_t step,
                             const ot_metric *scalars, int num_scalars) {
  ot_text_builder summary = {.arena = out->arena};
  for (int i = 0; i < num_scalars; i++) append_value(&summary, &scalars[i]);
  ot_text_builder event = {.arena = out->arena};
  append_double(&event, 1, wall_s);
  append_integer(&event, 2, step);
  append_bytes(&event, 5, ot_text_builder_text(&summary), summary.length);
  append_record(out, &event);
}

enum { HOST_BYTES = 128, FILES_MAX = 1000 };

struct ot_tensorboard {
  ot_log_file *log;
};

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Readers sort the files of a directory by name, so a newer file needs a later name.
static ot_status open_new_file(ot_tensorboard *tensorboard, const char *directory,
                               const ot_text_builder *head) {
  char host[HOST_BYTES] = "host", path[OT_PATH_BYTES];
  ot_log_request request = {
      .path = path, .head = head->text, .head_bytes = head->length, .flags = O_CREAT | O_EXCL};
  gethostname(host, sizeof host - 1);
  for (int i = 0; i < FILES_MAX; i++) {
    ot_text_format(path, OT_PATH_BYTES, "%s/events.out.tfevents.%lld.%s.%lld.%d", directory,
                   (long long)time(NULL), host, (long long)getpid(), i);
    if (access(path, F_OK) != 0) return ot_log_file_create(&request, 0, &tensorboard->log);
  }
  return ot_disk_fail("create", path, EEXIST);
}

static ot_status start_file(ot_tensorboard *tensorboard, const char *directory, int64_t step) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_text_builder head = {.arena = &arena};
  ot_event_record_version(&head, now_s());
  if (step > 0) ot_event_record_restart(&head, now_s(), step + 1);
  const ot_status status = open_new_file(tensorboard, directory, &head);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_tensorboard_create(const char *directory, int64_t step, ot_tensorboard **out) {
  ot_tensorboard *tensorboard = calloc(1, sizeof *tensorboard);
  OT_CHECK(tensorboard != NULL, OT_ENVIRONMENT, "out of memory (%s)", directory);
  const ot_status status = start_file(tensorboard, directory, step);
  if (status != OT_OK) ot_tensorboard_destroy(&tensorboard);
  *out = tensorboard;
  return status;
}

void ot_tensorboard_destroy(ot_tensorboard **tensorboard) {
  if (*tensorboard == NULL) return;
  ot_log_file_destroy(&(*tensorboard)->log);
  free(*tensorboard);
  *tensorboard = NULL;
}

ot_log_file *ot_tensorboard_log(const ot_tensorboard *tensorboard) { return tensorboard->log; }

void ot_tensorboard_write(ot_tensorboard *tensorboard, int64_t step, const ot_metric *scalars,
                          int num_scalars) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_text_builder out = {.arena = &arena};
  ot_event_record_scalars(&out, now_s(), step, scalars, num_scalars);
  ot_log_file_append(tensorboard->log, out.text, out.length);
  ot_heap_release(&heap);
}

static double known_count(int64_t count) { return count >= 0 ? (double)count : NAN; }

void ot_tensorboard_write_step(ot_tensorboard *tensorboard, const ot_metrics_step *step) {
  const ot_metric all[] = {
      {"train/loss", step->loss_nats},
      {"train/data_loss", step->data_loss_nats},
      {"train/teacher_kl", step->teacher_kl_nats},
      {"train/grad_norm", step->gradient_norm},
      {"train/lr", step->learning_rate},
      {"train/tokens", known_count(step->tokens)},
      {"train/noise_scale_tokens", step->noise_scale_tokens},
      {"moe/aux_loss", step->experts.aux_loss},
      {"moe/z_loss", step->experts.z_loss},
      {"moe/load_max", step->experts.load_max},
      {"moe/load_entropy", step->experts.load_entropy},
      {"moe/drop_share", step->experts.drop_share},
      {"moe/rounds", step->experts.rounds},
      {"perf/step_seconds", step->step_s},
      {"perf/tokens_per_second", step->tokens_per_s},
      {"perf/mfu", step->mfu},
      {"perf/goodput", step->goodput},
      {"perf/predicted_step_seconds", step->predicted_step_s},
      {"perf/bubble_fraction", step->bubble_fraction},
      {"memory/peak_bytes", known_count(step->memory_peak_bytes)},
      {"exposed_seconds/tp", step->exposed.tp_s},
      {"exposed_seconds/cp", step->exposed.cp_s},
      {"exposed_seconds/ep", step->exposed.ep_s},
      {"exposed_seconds/pp", step->exposed.pp_s},
      {"exposed_seconds/dp", step->exposed.dp_s},
  };
  ot_metric known[sizeof all / sizeof all[0]];
  int num_known = 0;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (!isnan(all[i].value)) known[num_known++] = all[i];
  ot_tensorboard_write(tensorboard, step->step, known, num_known);
  if (step->num_health > 0)
    ot_tensorboard_write(tensorboard, step->step, step->health, step->num_health);
}
