// SPDX-License-Identifier: Apache-2.0
// Files to parameters: first matches every tensor of the file with one of the model, then reads
// each once. Nothing is written before all names and shapes match.
#include <stdlib.h>
#include <string.h>

#include "base/name_list.h"
#include "base/sort.h"
#include "base/text.h"
#include "checkpoint/weight_stack.h"
#include "checkpoint/weights.h"

typedef struct matching {
  ot_arena *arena;
  const ot_weight_map *map;
  ot_checkpoint *checkpoint;
  const ot_safetensors *tensors;  // of the file
  const char *path;               // of its first file, for messages
  ot_weight_source *source;       // [map->num_tensors] in the file, index -1: not found
  int tied_head;                  // index in the file of a repeated tied head, or -1
  int num_scaled;                 // fp8 tensors
  int num_further;                // tensors of multi-token prediction layers
} matching;

// ---- matching ----

// Masks and tables that older versions of transformers saved with the weights.
static bool is_buffer(const char *name) {
  return ot_text_matches(name, "*h.*.attn.bias") ||
         ot_text_matches(name, "*h.*.attn.masked_bias") ||
         ot_text_matches(name, "*rotary_emb.inv_freq");
}

static ot_status check_shape(ot_arena *arena, const char *path, const ot_weight_tensor *expected,
                             const ot_safetensors_tensor *found) {
  const bool same = found->rank == expected->rank && found->dim[0] == expected->dim[0] &&
                    (found->rank < 2 || found->dim[1] == expected->dim[1]);
  if (same) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "tensor %s has shape [%s], the model needs [%s] (%s)", found->name,
          ot_dims_text(arena, found->dim, found->rank),
          ot_dims_text(arena, expected->dim, expected->rank), path);
  return ot_fail_hint(OT_ENVIRONMENT, "check that config.json belongs to these weights");
}

static ot_status add_source(matching *in, int tensor, ot_weight_source source) {
  OT_CHECK(in->source[tensor].index < 0, OT_ENVIRONMENT,
           "tensors %s and %s are the same weight (%s)",
           ot_safetensors_tensor_at(in->tensors, in->source[tensor].index)->name,
           ot_safetensors_tensor_at(in->tensors, source.index)->name, in->path);
  in->source[tensor] = source;
  return OT_OK;
}

// True for a tensor of a layer after the last, used elsewhere for multi-token prediction.
static bool is_further(const matching *in, const char *name) {
  const ot_model *const files = in->map->files;
  for (int64_t i = 0; files && i < files->prediction_layers; i++) {
    const int64_t layer = files->num_layers + i;
    if (ot_text_starts_with(name, ot_arena_format(in->arena, "model.layers.%ld.", layer)))
      return true;
  }
  return false;
}

// ---- fp8 ----

static const char scales_suffix[] = "_scale_inv";

static int64_t num_blocks(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

static ot_status check_scales(const matching *in, const ot_safetensors_tensor *found,
                              const ot_safetensors_tensor *scales) {
  const int64_t *const block = in->map->files->scale_block;
  const int64_t rows = num_blocks(found->dim[0], block[0]);
  const int64_t cols = num_blocks(found->dim[1], block[1]);
  OT_CHECK(
      found->rank == 2 && scales->rank == 2 && scales->dim[0] == rows && scales->dim[1] == cols,
      OT_ENVIRONMENT,
      "tensor %s has shape [%s], %s in blocks of %lld x %lld needs [%lld, %lld] (%s)", scales->name,
      ot_dims_text(in->arena, scales->dim, scales->rank), found->name, (long long)block[0],
      (long long)block[1], (long long)rows, (long long)cols, in->path);
  ot_dtype dtype;
  OT_CHECK(ot_safetensors_type_dtype(scales->type, &dtype) && ot_dtype_is_real(dtype),
           OT_ENVIRONMENT, "tensor %s is %s, but scales must be F32 or BF16 (%s)", scales->name,
           ot_safetensors_type_name(scales->type), in->path);
  return OT_OK;
}

// Finds the scales of an fp8 tensor.
static ot_status find_scales(matching *in, const ot_safetensors_tensor *found,
                             ot_weight_source *source) {
  if (found->type != OT_SAFETENSORS_F8_E4M3) return OT_OK;
  const ot_model *const files = in->map->files;
  if (!files || files->scale_block[0] == 0) {
    ot_fail(OT_ENVIRONMENT, "tensor %s is F8_E4M3, but config.json has no quantization_config (%s)",
            found->name, in->path);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]} says what "
                        "shares a scale");
  }
  ot_block_scales *const scales = ot_arena_take(in->arena, sizeof *scales);
  const char *const name = ot_arena_format(in->arena, "%s%s", found->name, scales_suffix);
  *scales = (ot_block_scales){.index = ot_safetensors_find(in->tensors, name),
                              .rows = files->scale_block[0],
                              .cols = files->scale_block[1]};
  OT_CHECK(scales->index >= 0, OT_ENVIRONMENT, "tensor %s is F8_E4M3, but %s is missing (%s)",
           found->name, name, in->path);
  OT_TRY(check_scales(in, found, ot_safetensors_tensor_at(in->tensors, scales->index)));
  ot_checkpoint_skip(in->checkpoint, OT_CHECKPOINT_MODEL, scales->index);
  source->scales = scales;
  in->num_scaled++;
  return OT_OK;
}

// True for the scales of an fp8 weight, which are found with it.
static bool is_scales(const matching *in, const char *name) {
  if (!ot_text_ends_with(name, scales_suffix)) return false;
  const int64_t length = ot_text_length(name) - ot_text_length(scales_suffix);
  const int weight = ot_safetensors_find(in->tensors, ot_arena_text(in->arena, name, length));
  return weight >= 0 &&
         ot_safetensors_tensor_at(in->tensors, weight)->type == OT_SAFETENSORS_F8_E4M3;
}

static ot_status refuse_mxfp4(const char *name, const char *path) {
  const bool quantised = ot_text_matches(name, "*.experts.*_proj_blocks") ||
                         ot_text_matches(name, "*.experts.*_proj_scales");
  if (!quantised) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "tensor %s is quantised with mxfp4, which is not supported (%s)", name,
          path);
  return ot_fail_hint(OT_ENVIRONMENT, "use a conversion to bf16");
}

// ---- matching all tensors ----

static ot_status match_tensor(matching *in, int index, ot_name_list *ignored,
                              ot_name_list *unexpected) {
  const ot_safetensors_tensor *const found = ot_safetensors_tensor_at(in->tensors, index);
  const int tensor = ot_weight_map_find(in->map, found->name);
  if (tensor >= 0) {
    ot_weight_source source = {.index = index};
    OT_TRY(check_shape(in->arena, in->path, &in->map->tensors[tensor], found));
    OT_TRY(find_scales(in, found, &source));
    return add_source(in, tensor, source);
  }
  if (is_further(in, found->name)) {
    in->num_further++;
    ot_checkpoint_skip(in->checkpoint, OT_CHECKPOINT_MODEL, index);
    return OT_OK;
  }
  if (is_scales(in, found->name)) return OT_OK;
  if (ot_text_equal(found->name, "lm_head.weight") && in->map->tied_tensor >= 0) {
    in->tied_head = index;
    return check_shape(in->arena, in->path, &in->map->tensors[in->map->tied_tensor], found);
  }
  OT_TRY(refuse_mxfp4(found->name, in->path));
  if (ot_weight_stack_is(in->map, found)) {
    ot_weight_stack stack;
    OT_TRY(ot_weight_stack_read(in->arena, in->map, found, &stack));
    for (int i = 0; i < stack.count; i++) {
      OT_TRY(add_source(in, stack.tensors[i], (ot_weight_source){index, i * stack.elements, NULL}));
    }
    return OT_OK;
  }
  if (!is_buffer(found->name)) {
    ot_name_list_add(unexpected, found->name);
    return OT_OK;
  }
  ot_name_list_add(ignored, found->name);
  ot_checkpoint_skip(in->checkpoint, OT_CHECKPOINT_MODEL, index);
  return OT_OK;
}

static ot_status check_missing(const matching *in) {
  ot_name_list missing = ot_name_list_create(in->arena);
  bool head = false;
  for (int i = 0; i < in->map->num_tensors; i++) {
    if (in->source[i].index >= 0) continue;
    ot_name_list_add(&missing, in->map->tensors[i].name);
    head = head || ot_text_equal(in->map->tensors[i].name, "lm_head.weight");
  }
  if (missing.count == 0) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "%d tensor%s of the model missing: %s (%s)", missing.count,
          ot_text_plural(missing.count, "s"), ot_name_list_text(&missing), in->path);
  if (head)
    ot_fail_hint(OT_ENVIRONMENT, "if the head shares the embedding: tie_word_embeddings: true");
  return OT_ENVIRONMENT;
}

static ot_status match_all(matching *in, ot_weight_notes *notes) {
  for (int i = 0; i < in->map->num_tensors; i++) in->source[i].index = -1;
  ot_name_list ignored = ot_name_list_create(in->arena);
  ot_name_list unexpected = ot_name_list_create(in->arena);
  for (int i = 0; i < ot_safetensors_count(in->tensors); i++)
    OT_TRY(match_tensor(in, i, &ignored, &unexpected));
  OT_TRY(check_missing(in));
  OT_CHECK(unexpected.count == 0, OT_ENVIRONMENT, "%d tensor%s unknown to this model: %s (%s)",
           unexpected.count, ot_text_plural(unexpected.count, "s"), ot_name_list_text(&unexpected),
           in->path);
  notes->num_ignored = ignored.count;
  notes->ignored = ot_name_list_text(&ignored);
  notes->tied_head = in->tied_head >= 0;
  notes->num_scaled = in->num_scaled;
  notes->num_further = in->num_further;
  return OT_OK;
}

// ---- reading ----

// The part of a piece in rows [row, row + rows) of its tensor; false: none.
static bool cut_piece(const ot_weight_slice *piece, int64_t row, int64_t rows,
                      ot_weight_slice *part) {
  const int64_t begin = row > piece->hf_first ? row : piece->hf_first;
  const int64_t piece_end = piece->hf_first + piece->rows;
  const int64_t end = row + rows < piece_end ? row + rows : piece_end;
  *part = (ot_weight_slice){piece->parameter, piece->first_row + begin - piece->hf_first,
                            end - begin, begin};
  return begin < end;
}

static void write_rows(const ot_weight_stage *stage, const ot_weight_tensor *tensor, int64_t row,
                       int64_t rows, const void *from) {
  const int64_t row_bytes = tensor->cols * ot_dtype_bytes(stage->access->dtype);
  for (int i = 0; i < tensor->num_pieces; i++) {
    ot_weight_slice part;
    if (!cut_piece(&tensor->pieces[i], row, rows, &part)) continue;
    stage->access->write(stage->access->context, &part,
                         (const char *)from + (part.hf_first - row) * row_bytes);
  }
}

// Counts elements that this process does not need as handled.
static void pass_over(const ot_weight_reader *r, int64_t elements) {
  if (!r->counted) return;
  ot_checkpoint_skip_elements(r->checkpoint, r->set, r->source.index, elements);
}

// Whether any of rows [row, row + rows) of a tensor would be stored.
static bool is_held(const ot_weight_access *access, const ot_weight_tensor *tensor, int64_t row,
                    int64_t rows) {
  if (!access->holds) return true;
  for (int i = 0; i < tensor->num_pieces; i++) {
    ot_weight_slice part;
    if (!cut_piece(&tensor->pieces[i], row, rows, &part)) continue;
    if (access->holds(access->context, &part)) return true;
  }
  return false;
}

// Reads only blocks of rows of which some would be stored.
static ot_status read_rows_of(const ot_weight_stage *stage, const ot_weight_tensor *tensor,
                              const ot_weight_reader *r) {
  const int64_t rows = tensor->rows, cols = tensor->cols;
  for (int64_t row = 0; row < rows; row += stage->block_rows) {
    const int64_t count = rows - row < stage->block_rows ? rows - row : stage->block_rows;
    if (!is_held(stage->access, tensor, row, count)) {
      pass_over(r, count * cols);
      continue;
    }
    OT_TRY(ot_weight_read(r, row * cols, count * cols, stage->access->dtype, stage->block));
    write_rows(stage, tensor, row, count, stage->block);
  }
  return OT_OK;
}

// Our rows are columns of the file: first reads the whole tensor to `whole`.
static ot_status read_columns_of(const ot_weight_stage *stage, const ot_weight_tensor *tensor,
                                 const ot_weight_reader *r, char *whole) {
  const int64_t rows = tensor->rows, cols = tensor->cols;
  const int64_t bytes = ot_dtype_bytes(stage->access->dtype);
  OT_TRY(ot_weight_read(r, 0, rows * cols, stage->access->dtype, whole));
  for (int64_t row = 0; row < rows; row++) {
    const char *const from = whole + ot_weight_file_row(tensor, row) * bytes;
    for (int64_t i = 0; i < cols; i++)
      memcpy((char *)stage->turned + i * bytes, from + i * rows * bytes, (size_t)bytes);
    write_rows(stage, tensor, row, 1, stage->turned);
  }
  return OT_OK;
}

static ot_status read_tensor(const ot_weight_stage *stage, const ot_weight_tensor *tensor,
                             const ot_weight_reader *r) {
  if (!tensor->transposed && !tensor->interleaved) return read_rows_of(stage, tensor, r);
  if (!is_held(stage->access, tensor, 0, tensor->rows)) {
    pass_over(r, tensor->rows * tensor->cols);
    return OT_OK;
  }
  const size_t bytes = (size_t)(tensor->rows * tensor->cols * ot_dtype_bytes(stage->access->dtype));
  char *const whole = malloc(bytes);
  OT_CHECK(whole != NULL, OT_ENVIRONMENT, "out of memory for tensor %s", tensor->name);
  const ot_status status = read_columns_of(stage, tensor, r, whole);
  free(whole);
  return status;
}

// A file may repeat the embedding as head; tying would lose different content.
static ot_status check_tied_head(const matching *in) {
  enum { BLOCK = 4096 };
  if (in->tied_head < 0) return OT_OK;
  const int embedding = in->source[in->map->tied_tensor].index;
  const int64_t elements = ot_safetensors_tensor_at(in->tensors, in->tied_head)->elements;
  double head[BLOCK], shared[BLOCK];
  for (int64_t first = 0; first < elements; first += BLOCK) {
    const int64_t count = elements - first < BLOCK ? elements - first : BLOCK;
    OT_TRY(ot_checkpoint_read_range(in->checkpoint, OT_CHECKPOINT_MODEL,
                                    (ot_safetensors_range){in->tied_head, first, count}, OT_F64,
                                    head));
    OT_TRY(ot_checkpoint_fetch(in->checkpoint, OT_CHECKPOINT_MODEL,
                               (ot_safetensors_range){embedding, first, count}, OT_F64, shared));
    if (memcmp(head, shared, (size_t)count * sizeof *head) == 0) continue;
    ot_fail(OT_ENVIRONMENT,
            "the model ties its head to its embedding, but lm_head.weight differs from %s (%s)",
            ot_safetensors_tensor_at(in->tensors, embedding)->name, in->path);
    return ot_fail_hint(OT_ENVIRONMENT, "for these weights, tie_word_embeddings: false");
  }
  return OT_OK;
}

// Tensors to read, sorted by their place in the files: neighbours share blocks.
typedef struct reading_order {
  const ot_safetensors *tensors;
  const ot_weight_source *source;  // index -1: not read
} reading_order;

static int by_place(const void *a, const void *b, const void *context) {
  const reading_order *const order = context;
  const ot_weight_source *const x = &order->source[*(const int *)a];
  const ot_weight_source *const y = &order->source[*(const int *)b];
  if (x->index < 0 || y->index < 0) return (x->index < 0) - (y->index < 0);
  const ot_safetensors_tensor *const s = ot_safetensors_tensor_at(order->tensors, x->index);
  const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(order->tensors, y->index);
  if (s->file != t->file) return s->file < t->file ? -1 : 1;
  if (s->offset != t->offset) return s->offset < t->offset ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

// Reads all tensors of `map` that have a source, as `first` with theirs.
static ot_status read_sources(ot_arena *arena, const ot_weight_stage *stage,
                              const ot_weight_reader *first, const ot_weight_source *source) {
  const ot_weight_map *const map = stage->map;
  const reading_order order = {ot_checkpoint_tensors(first->checkpoint, first->set), source};
  int *const sorted = ot_arena_array(arena, map->num_tensors, sizeof *sorted);
  for (int i = 0; i < map->num_tensors; i++) sorted[i] = i;
  ot_sort(sorted, map->num_tensors, sizeof *sorted, (ot_ordering){by_place, &order}, arena);
  for (int i = 0; i < map->num_tensors; i++) {
    ot_weight_reader r = *first;
    r.source = source[sorted[i]];
    if (r.source.index < 0) break;
    OT_TRY(read_tensor(stage, &map->tensors[sorted[i]], &r));
  }
  return OT_OK;
}

static ot_status read_all(const matching *in, const ot_weight_access *access, bool counted) {
  ot_weight_stage stage;
  ot_weight_stage_build(in->arena, in->map, access, &stage);
  const ot_weight_reader first = {
      .checkpoint = in->checkpoint, .set = OT_CHECKPOINT_MODEL, .counted = counted};
  return read_sources(in->arena, &stage, &first, in->source);
}

static ot_status match(matching *in, ot_weight_notes *notes) {
  *notes = (ot_weight_notes){0};
  in->tensors = ot_checkpoint_tensors(in->checkpoint, OT_CHECKPOINT_MODEL);
  in->path = ot_safetensors_file_path(in->tensors, 0);
  OT_TRY(match_all(in, notes));
  return check_tied_head(in);
}

ot_status ot_weights_match(ot_arena *arena, const ot_weight_map *map, ot_checkpoint *checkpoint,
                           ot_weight_source *source, ot_weight_notes *notes) {
  matching in = {
      .arena = arena, .map = map, .checkpoint = checkpoint, .source = source, .tied_head = -1};
  return match(&in, notes);
}

ot_status ot_weights_import(ot_arena *arena, const ot_weight_import *into,
                            ot_checkpoint *checkpoint, ot_weight_notes *notes) {
  matching in = {.arena = arena, .map = into->map, .checkpoint = checkpoint, .tied_head = -1};
  in.source = ot_arena_array(arena, into->map->num_tensors, sizeof *in.source);
  OT_TRY(match(&in, notes));
  for (int i = 0; i < into->num_access; i++) OT_TRY(read_all(&in, &into->access[i], i == 0));
  return ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_MODEL);
}

// ---- the optimizer's state ----

static ot_status find_saved(ot_arena *arena, const ot_weight_export *what, const char *path,
                            const ot_safetensors *tensors, ot_weight_source *source) {
  ot_name_list missing = ot_name_list_create(arena);
  for (int i = 0; i < what->map->num_tensors; i++) {
    source[i] = (ot_weight_source){.index = -1};
    if (what->selected != NULL && !what->selected[i]) continue;
    const ot_weight_tensor *const tensor = &what->map->tensors[i];
    const char *const name = ot_arena_format(arena, "%s%s", what->prefix, tensor->name);
    source[i].index = ot_safetensors_find(tensors, name);
    if (source[i].index < 0)
      ot_name_list_add(&missing, name);
    else
      OT_TRY(check_shape(arena, path, tensor, ot_safetensors_tensor_at(tensors, source[i].index)));
  }
  OT_CHECK(missing.count == 0, OT_ENVIRONMENT, "%d tensor%s of the optimizer missing: %s (%s)",
           missing.count, ot_text_plural(missing.count, "s"), ot_name_list_text(&missing), path);
  return OT_OK;
}

ot_status ot_weights_restore(ot_arena *arena, const ot_weight_export *what,
                             ot_checkpoint *checkpoint) {
  const ot_safetensors *const tensors = ot_checkpoint_tensors(checkpoint, OT_CHECKPOINT_OPTIMIZER);
  const char *const path = ot_checkpoint_directory(checkpoint);
  OT_CHECK(tensors != NULL, OT_ENVIRONMENT, "no optimizer state to resume from (%s)", path);
  ot_weight_source *const source = ot_arena_array(arena, what->map->num_tensors, sizeof *source);
  OT_TRY(find_saved(arena, what, path, tensors, source));
  ot_weight_stage stage;
  ot_weight_stage_build(arena, what->map, what->access, &stage);
  const ot_weight_reader first = {
      .checkpoint = checkpoint, .set = OT_CHECKPOINT_OPTIMIZER, .counted = true};
  return read_sources(arena, &stage, &first, source);
}
