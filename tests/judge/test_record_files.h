// SPDX-License-Identifier: Apache-2.0
// Records of steps written by hand, for the tests of their reader: an arena and an empty folder for
// each test, texts, and tensor files.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text_builder.h"
#include "checkpoint/safetensors_writer.h"
#include "host/heap.h"
#include "judge/recorded.h"
#include "support/scratch.h"

#define CONFIG                                                                         \
  "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 16, "        \
  "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, " \
  "\"vocab_size\": 31, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "      \
  "\"rope_theta\": 10000.0, \"tie_word_embeddings\": false}"

static ot_heap heap;
static ot_arena arena;
static char folder[SCRATCH_BYTES];
static ot_recorded_step step;

static inline int begin(void **state) {
  (void)state;
  arena = ot_heap_arena_create(&heap);
  scratch_create(folder);
  scratch_write(scratch_path(folder, "config.json"), CONFIG, (int64_t)strlen(CONFIG));
  return 0;
}

static inline int finish(void **state) {
  (void)state;
  ot_heap_release(&heap);
  scratch_destroy(folder);
  return 0;
}

// A tensor to write: `data` [elements] of float or int32_t, by its dtype.
typedef struct stored_tensor {
  const char *key;
  ot_dtype dtype;
  int rank;
  int64_t dim[4];
  const void *data;
} stored_tensor;

#define STORED(name, type, values, ...)                                         \
  {                                                                             \
    .key = (name), .dtype = (type), .data = (values),                           \
    .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = { \
      __VA_ARGS__                                                               \
    }                                                                           \
  }

// Writes `text` as the text of `rank`.
static inline void write_text(int rank, const char *text) {
  const char *const name = ot_arena_format(&arena, "rank-%05d.json", rank);
  scratch_write(scratch_path(folder, name), text, (int64_t)strlen(text));
}

// Writes the tensor file of `rank`.
static inline void write_tensors(int rank, const stored_tensor *stored, int count) {
  ot_safetensors_tensor *const tensors = ot_arena_array(&arena, count, sizeof *tensors);
  for (int i = 0; i < count; i++) {
    tensors[i] = (ot_safetensors_tensor){.name = stored[i].key,
                                         .type = ot_safetensors_type_of(stored[i].dtype),
                                         .rank = stored[i].rank};
    memcpy(tensors[i].dim, stored[i].dim, sizeof stored[i].dim);
  }
  const ot_safetensors_request request = {
      .stem = ot_arena_format(&arena, "rank-%05d", rank), .num_tensors = count, .tensors = tensors};
  ot_safetensors_layout layout;
  ot_safetensors_writer *writer = NULL;
  assert_int_equal(ot_safetensors_layout_build(&arena, &request, &layout), OT_OK);
  remove(scratch_path(folder, layout.files[0].name));
  assert_int_equal(ot_safetensors_files_create(folder, &layout), OT_OK);
  assert_int_equal(ot_safetensors_writer_create(folder, &layout, &writer), OT_OK);
  assert_int_equal(ot_safetensors_write_header(writer, 0), OT_OK);
  for (int i = 0; i < count; i++)
    assert_int_equal(ot_safetensors_write_tensor(writer, i, stored[i].data), OT_OK);
  assert_int_equal(ot_safetensors_writer_sync(writer), OT_OK);
  ot_safetensors_writer_destroy(&writer);
}

// The text of `rank` of `world`: `members`, such as "\"moment\": \"\",", and the places of its
// tensors, such as "\"grad/w\": {\"shape\": [2]}".
static inline void write_rank(int rank, int world, const char *members, const char *places) {
  write_text(rank, ot_arena_format(&arena,
                                   "{\"format\": \"orthant-step-1\", \"rank\": %d, \"world\": %d, "
                                   "%s \"tensors\": {%s}}",
                                   rank, world, members, places));
}

// A mesh of `axes` names and sizes, "dp 2 tp 2", innermost last: the members of a rank.
static inline const char *mesh_of(const char *const *axes, const int *sizes, int count, int rank) {
  ot_text_builder mesh = {.arena = &arena}, at = {.arena = &arena};
  int inner = 1;
  for (int i = 0; i < count; i++) inner *= sizes[i];
  for (int i = 0; i < count; i++) {
    inner /= sizes[i];
    ot_text_appendf(&mesh, "%s\"%s\": %d", i > 0 ? ", " : "", axes[i], sizes[i]);
    ot_text_appendf(&at, "%s\"%s\": %d", i > 0 ? ", " : "", axes[i], rank / inner % sizes[i]);
  }
  return ot_arena_format(&arena, "\"mesh\": {%s}, \"coordinates\": {%s},",
                         ot_text_builder_text(&mesh), ot_text_builder_text(&at));
}

static inline ot_status read_step(void) { return ot_recorded_read(folder, &arena, &step); }

static inline void assert_read(void) {
  if (read_step() != OT_OK) fail_msg("%s", ot_fail_message());
}

// Fails unless reading fails with this status, and a message with these parts.
static inline void assert_refused(ot_status status, const char *part, const char *another) {
  const ot_status found = read_step();
  if (found == OT_OK) fail_msg("accepted; expected: %s", part);
  assert_message_has(part);
  assert_message_has(another);
  if (found != status) fail_msg("status %d, expected %d: %s", found, status, ot_fail_message());
}
