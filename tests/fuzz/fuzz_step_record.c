// SPDX-License-Identifier: Apache-2.0
// The record of a training step: the texts of two ranks, and what their tensor files hold, divided
// by zero bytes. The files have those of the tensors below that occur in the text of their rank, so
// that mutations of a text need not fit a file.
#include <string.h>

#include "base/text.h"
#include "fuzz/fuzz.h"
#include "judge/assemble.h"

enum { RANKS = 2, HEADER_BYTES = 4096, DATA_BYTES = 1024, ELEMENTS_MAX = 1 << 16 };

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 16, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"vocab_size\": 31, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
    "\"rope_theta\": 10000.0, \"tie_word_embeddings\": false}";

static const struct {
  const char *key, *type, *shape;
  int bytes;
} tensors[] = {
    {"grad/w", "F32", "[2,3]", 24},
    {"grad/v", "BF16", "[4]", 8},
    {"weight/w", "F64", "[6]", 48},
    {"grad/l.mlp.experts.gate_up_proj", "F32", "[2,4,1]", 32},
    {"batch/0.ids", "I32", "[2,4]", 32},
    {"batch/0.labels", "I32", "[2,4]", 32},
    {"batch/0.documents", "I64", "[2,4]", 64},
    {"batch/0.positions", "I32", "[2,4]", 32},
    {"batch/0.weight", "F32", "[2,4]", 32},
    {"batch/1.ids", "I64", "[3]", 24},
    {"batch/1.labels", "I64", "[3]", 24},
    {"act/0.l", "F16", "[2]", 4},
    {"routes/0.l", "I32", "[2,2]", 16},
    {"new/x", "U8", "[1]", 1},
};

// ---- files ----

// The tensor file of a rank with the text `text` [size]; values are those of `data`, then zeros.
static void write_tensors(int rank, const uint8_t *text, size_t size, const uint8_t *data,
                          size_t data_bytes) {
  uint8_t file[8 + HEADER_BYTES + DATA_BYTES] = {0};
  char *const header = (char *)file + 8;
  int64_t length = 0, offset = 0;
  for (int i = 0; i < OT_COUNT(tensors); i++) {
    char quoted[64];
    ot_text_format(quoted, sizeof quoted, "\"%s\"", tensors[i].key);
    if (size == 0 || !memmem(text, size, quoted, (size_t)ot_text_length(quoted))) continue;
    length += ot_text_format(header + length, HEADER_BYTES - length,
                             "%s%s:{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%d,%d]}",
                             length == 0 ? "{" : ",", quoted, tensors[i].type, tensors[i].shape,
                             (int)offset, (int)offset + tensors[i].bytes);
    offset += tensors[i].bytes;
  }
  length += ot_text_format(header + length, HEADER_BYTES - length, "%s", length == 0 ? "{}" : "}");
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)(length >> 8 * i);
  const size_t most = data_bytes < (size_t)offset ? data_bytes : (size_t)offset;
  memcpy(header + length, data, most);
  fuzz_file(rank == 0 ? "rank-00000.safetensors" : "rank-00001.safetensors", file,
            8 + (size_t)(length + offset));
}

// The bytes before the next zero byte, which are removed from `data`.
static size_t next_part(const uint8_t **data, size_t *size, const uint8_t **part) {
  const uint8_t *const zero = *size > 0 ? memchr(*data, 0, *size) : NULL;
  const size_t length = zero ? (size_t)(zero - *data) : *size;
  *part = *data;
  *data += zero ? length + 1 : length;
  *size -= zero ? length + 1 : length;
  return length;
}

static void write_record(const uint8_t *data, size_t size) {
  const uint8_t *text[RANKS];
  size_t bytes[RANKS];
  for (int rank = 0; rank < RANKS; rank++) bytes[rank] = next_part(&data, &size, &text[rank]);
  for (int rank = 0; rank < RANKS; rank++) {
    const char *const name = rank == 0 ? "rank-00000.json" : "rank-00001.json";
    write_tensors(rank, text[rank], bytes[rank], data, size);
    fuzz_file(name, text[rank], bytes[rank]);
    if (rank > 0 && bytes[rank] == 0) fuzz_remove(name);
  }
  fuzz_file("config.json", config, sizeof config - 1);
}

// ---- what is read ----

static ot_status assemble(const ot_recorded_step *step, const ot_recorded_tensor *tensor,
                          ot_arena *arena) {
  if (!ot_dtype_is_real(tensor->dtype) || tensor->elements > ELEMENTS_MAX) return OT_OK;
  const ot_recorded_view view = {.tensor = tensor, .elements = tensor->elements};
  double *const out = ot_arena_array(arena, tensor->elements, sizeof *out);
  float *const half = ot_arena_array(arena, tensor->elements, sizeof *half);
  const int64_t middle = tensor->elements / 2;
  const ot_assembly_request whole = {.view = &view, .count = tensor->elements, .dtype = OT_F64};
  const ot_assembly_request part = {.view = &view,
                                    .first = middle,
                                    .count = tensor->elements - middle,
                                    .dtype = OT_F32,
                                    .sum_axes = 1};
  ot_assembly report;
  OT_TRY(ot_assemble(step, &whole, arena, out, &report));
  return ot_assemble(step, &part, arena, half, &report);
}

static ot_status read_rows(const ot_recorded_step *step, ot_arena *arena) {
  ot_step_rows rows;
  OT_TRY(ot_assemble_rows(step, arena, &rows));
  for (int64_t i = 0; i < rows.count; i++) {
    fuzz_require(rows.ids[i] >= 0 && rows.ids[i] < 31, "ids are in the vocabulary");
    fuzz_require(rows.targets[i] >= -1 && rows.targets[i] < 31, "targets are in the vocabulary");
    fuzz_require(rows.sequences[i] <= rows.documents[i] && rows.documents[i] <= i,
                 "a row sees its own document up to itself");
    fuzz_require(rows.batches[i] >= 0 && rows.batches[i] < rows.num_batches, "a row has a batch");
  }
  return OT_OK;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  ot_recorded_step step;
  ot_recorded_view view;
  write_record(data, size);
  OT_TRY(ot_recorded_read(fuzz_directory(), arena, &step));
  for (int64_t i = 0; i < step.num_tensors; i++) OT_TRY(assemble(&step, &step.tensors[i], arena));
  if (ot_recorded_find(&step, OT_RECORDED_GRAD, "l.mlp.experts.1.up_proj.weight", &view))
    fuzz_require(view.first + view.elements <= view.tensor->elements, "a view is in its tensor");
  (void)ot_recorded_group_of(&step, "w");
  return step.num_batches > 0 ? read_rows(&step, arena) : OT_OK;
}
