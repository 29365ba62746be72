// SPDX-License-Identifier: Apache-2.0
// run: alone. Event files against records made by TensorBoard's own writer, byte for byte, and the
// published check value of CRC-32C.
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/heap.h"
#include "record/tensorboard.h"
#include "support/scratch.h"

static const unsigned char version_record[] = {
    0x18, 0,   0,   0,   0,   0,    0,    0,    0xa3, 0x7f, 0x4b, 0x22, 0x09, 0,
    0,    0,   0,   0,   0,   0xf0, 0x3f, 0x1a, 0x0d, 'b',  'r',  'a',  'i',  'n',
    '.',  'E', 'v', 'e', 'n', 't',  ':',  '2',  0x86, 0xbf, 0x57, 0x7a};

static const unsigned char loss_record[] = {
    0x21, 0,   0,   0,    0,    0,    0,    0,    0x01, 0x7b, 0xec, 0xf6, 0x09, 0,    0,   0,   0,
    0,    0,   0,   0x40, 0x10, 0xac, 0x02, 0x2a, 0x13, 0x0a, 0x11, 0x0a, 0x0a, 't',  'r', 'a', 'i',
    'n',  '/', 'l', 'o',  's',  's',  0x15, 0,    0,    0x20, 0x40, 0x19, 0xeb, 0x1e, 0x89};

static void knows_the_check_value_of_crc32c(void **state) {
  (void)state;
  assert_int_equal(ot_crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(ot_crc32c("", 0), 0);
}

static void writes_the_bytes_of_the_reference_writer(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_text_builder out = {.arena = &arena};
  ot_event_record_version(&out, 1.0);
  assert_int_equal(out.length, sizeof version_record);
  assert_memory_equal(out.text, version_record, sizeof version_record);
  const ot_metric loss = {"train/loss", 2.5};
  ot_event_record_scalars(&out, 2.0, 300, &loss, 1);
  assert_int_equal(out.length, sizeof version_record + sizeof loss_record);
  assert_memory_equal(out.text + sizeof version_record, loss_record, sizeof loss_record);
  ot_heap_release(&heap);
}

static uint64_t little_endian(const unsigned char *bytes, int n) {
  uint64_t value = 0;
  for (int i = n - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

// Iterates over the records of a file and checks both checksums of each; returns their number.
static int count_records(const unsigned char *data, int64_t bytes) {
  int records = 0;
  for (int64_t at = 0; at < bytes; records++) {
    assert_true(bytes - at >= 16);
    const int64_t length = (int64_t)little_endian(data + at, 8);
    assert_true(length <= bytes - at - 16);
    const uint32_t head = ot_crc32c(data + at, 8), body = ot_crc32c(data + at + 12, length);
    assert_int_equal(little_endian(data + at + 8, 4),
                     (uint32_t)((head >> 15 | head << 17) + 0xa282ead8u));
    assert_int_equal(little_endian(data + at + 12 + length, 4),
                     (uint32_t)((body >> 15 | body << 17) + 0xa282ead8u));
    at += length + 16;
  }
  return records;
}

static int count_files(const char *directory, char *newest) {
  int files = 0;
  DIR *const handle = opendir(directory);
  assert_non_null(handle);
  newest[0] = '\0';
  for (struct dirent *entry; (entry = readdir(handle)) != NULL;) {
    if (strncmp(entry->d_name, "events.out.tfevents.", 20) != 0) continue;
    files++;
    if (strcmp(entry->d_name, newest) > 0) strcpy(newest, entry->d_name);
  }
  closedir(handle);
  return files;
}

static void writes_a_file_of_whole_records_for_each_start(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES], newest[256];
  scratch_create(directory);
  const ot_metric health[] = {{"gradient_norm/layers.0", 1.5}, {"gradient_norm/layers.1", NAN}};
  const ot_metrics_step step = {.step = 3,
                                .loss_nats = 2.5,
                                .mfu = NAN,
                                .memory_peak_bytes = -1,
                                .num_health = 2,
                                .health = health};
  for (int start = 0; start < 3; start++) {
    ot_tensorboard *tensorboard = NULL;
    assert_int_equal(ot_tensorboard_create(directory, start * 100, &tensorboard), OT_OK);
    ot_tensorboard_write_step(tensorboard, &step);
    ot_tensorboard_destroy(&tensorboard);
    assert_int_equal(count_files(directory, newest), start + 1);
    int64_t bytes;
    char *const data = scratch_read(scratch_path(directory, newest), &bytes);
    // Version, a restart mark if resumed, the step, its health.
    assert_int_equal(count_records((const unsigned char *)data, bytes), start > 0 ? 4 : 3);
    assert_memory_equal(data + 8, version_record + 8, 4);
    free(data);
  }
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(knows_the_check_value_of_crc32c),
      cmocka_unit_test(writes_the_bytes_of_the_reference_writer),
      cmocka_unit_test(writes_a_file_of_whole_records_for_each_start),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
