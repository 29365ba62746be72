// SPDX-License-Identifier: Apache-2.0
// Fields of tensorflow/core/util/event.proto and framework/summary.proto:
//   Event        1 double wall_time   2 int64 step   3 string file_version   5 Summary   7
//   SessionLog Summary      1 Value              Value  1 string tag   2 float simple_value
//   SessionLog   1 enum status (1 = START)
#include "train/event_record.h"

#include <string.h>

#include "base/text.h"

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
