// SPDX-License-Identifier: Apache-2.0
// run: alone. Weights between HF files and parameters, on models written by transformers
// (fixtures/parity): every element is stored where the graph says, an export has the bytes of the
// source file, and nothing is dropped silently.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/weights.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "graph/graph.h"
#include "host/heap.h"
#include "support/scratch.h"
#include "support/tensor_data.h"

static const char *const cases[] = {
    "gpt2",      "gpt2-untied", "llama",       "llama-tied-bias", "llama3.1", "qwen2-sliding",
    "qwen3",     "olmo2",       "mistral",     "gemma2",          "gemma3",   "mixtral",
    "qwen3-moe", "olmoe",       "deepseek-v3", "smollm3",         "phi3",     "qwen2-moe",
    "olmo3",     "gpt-oss",     "kimi-k2",     "glm4-moe"};

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_graph graph;
  ot_weight_map map;
  double **values;  // [num_parameters] each [rows, cols], of the current type
} fixture;

// Weights in plain memory.
typedef struct memory {
  fixture *f;
  ot_dtype dtype;
} memory;

static char *rows_at(const memory *m, const ot_weight_slice *rows, int64_t *bytes) {
  const ot_parameter *const parameter = &m->f->graph.parameters[rows->parameter];
  assert_true(rows->first_row >= 0 && rows->rows > 0);
  assert_true(rows->first_row + rows->rows <= parameter->rows);
  const int64_t row_bytes = parameter->cols * ot_dtype_bytes(m->dtype);
  *bytes = rows->rows * row_bytes;
  return (char *)m->f->values[rows->parameter] + rows->first_row * row_bytes;
}

static ot_status read_memory(void *context, const ot_weight_slice *rows, void *to) {
  int64_t bytes;
  const char *const from = rows_at(context, rows, &bytes);
  memcpy(to, from, (size_t)bytes);
  return OT_OK;
}

static void write_memory(void *context, const ot_weight_slice *rows, const void *from) {
  int64_t bytes;
  char *const to = rows_at(context, rows, &bytes);
  memcpy(to, from, (size_t)bytes);
}

static ot_weight_access access_to(memory *m) {
  return (ot_weight_access){
      .dtype = m->dtype, .read = read_memory, .write = write_memory, .context = m};
}

static void build_model(fixture *f, const char *name) {
  char path[SCRATCH_BYTES];
  snprintf(path, sizeof path, "parity/%s/config.json", name);
  ot_node *tree = NULL;
  assert_int_equal(ot_tree_load(fixture_path(path), &f->arena, &tree), OT_OK);
  assert_int_equal(ot_model_read(tree, &f->arena, &f->model), OT_OK);
  const ot_graph_request request = {.model = &f->model,
                                    .mode = OT_MODE_LOGITS,
                                    .micro_batch_size = 1,
                                    .sequence_length = 4,
                                    .compute = OT_F32,
                                    .storage = OT_F32,
                                    .threads = 1};
  assert_int_equal(ot_graph_build(&request, &f->arena, &f->graph), OT_OK);
  assert_int_equal(
      ot_weight_map_build(&f->arena, f->graph.parameters, f->graph.num_parameters, &f->map), OT_OK);
  f->values = ot_arena_array(&f->arena, f->graph.num_parameters, sizeof *f->values);
  for (int i = 0; i < f->graph.num_parameters; i++) {
    const int64_t elements = ot_parameter_elements(&f->graph.parameters[i]);
    f->values[i] = ot_arena_array(&f->arena, elements, sizeof(double));
    memset(f->values[i], 0xff, (size_t)elements * sizeof(double));  // NaN in every type
  }
}

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

static ot_status import_file(fixture *f, const char *path, ot_dtype dtype, ot_weight_notes *notes) {
  memory m = {f, dtype};
  const ot_weight_access access = access_to(&m);
  const ot_weight_import into = {&f->map, &access, 1};
  ot_checkpoint *checkpoint = NULL;
  OT_TRY(ot_checkpoint_create(path, &checkpoint));
  const ot_status status = ot_weights_import(&f->arena, &into, checkpoint, notes);
  ot_checkpoint_destroy(&checkpoint);
  return status;
}

static const char *model_path(const char *name) {
  char path[SCRATCH_BYTES];
  snprintf(path, sizeof path, "parity/%s/model.safetensors", name);
  return fixture_path(path);
}

static ot_status export_model(fixture *f, ot_dtype memory_dtype, ot_dtype file_dtype) {
  memory m = {f, memory_dtype};
  const ot_weight_access access = access_to(&m);
  const ot_weight_export what = {&f->map, &access, "", file_dtype, NULL};
  ot_tensor_source *const sources = ot_arena_array(&f->arena, f->map.num_tensors, sizeof *sources);
  int count;
  ot_weight_sources_build(&f->arena, &what, sources, &count, NULL);
  const ot_checkpoint_content content = {.num_model = count, .model = sources};
  return ot_checkpoint_write(scratch_path(f->directory, "out"), &content);
}

static void every_file_round_trips_byte_for_byte(void **state) {
  fixture *const f = *state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const ot_dtype memory_dtypes[] = {OT_F32, OT_F64};
    for (int d = 0; d < 2; d++) {
      build_model(f, cases[i]);
      ot_weight_notes notes;
      if (import_file(f, model_path(cases[i]), memory_dtypes[d], &notes) != OT_OK)
        fail_msg("%s: %s", cases[i], ot_fail_message());
      assert_int_equal(notes.num_ignored, 0);
      assert_false(notes.tied_head);
      assert_int_equal(export_model(f, memory_dtypes[d], OT_F32), OT_OK);
      assert_files_equal(scratch_path(f->directory, "out/model.safetensors"), model_path(cases[i]));
    }
  }
}

static const float *file_values(const ot_safetensors *set, const char *name) {
  const int index = ot_safetensors_find(set, name);
  assert_true(index >= 0);
  return tensor_data(set, index);
}

static int parameter_index(const fixture *f, const char *name) {
  const ot_parameter *const parameter = ot_graph_parameter(&f->graph, name);
  assert_non_null(parameter);
  return (int)(parameter - f->graph.parameters);
}

static float value_at(const fixture *f, const char *name, int64_t row, int64_t col) {
  const int index = parameter_index(f, name);
  return ((const float *)f->values[index])[row * f->graph.parameters[index].cols + col];
}

// The parameter that holds the first part of HF tensor `hf_name`.
static const ot_parameter *holder_of(const fixture *f, const char *hf_name, int64_t *first_row) {
  const int tensor = ot_weight_map_find(&f->map, hf_name);
  assert_true(tensor >= 0);
  const ot_weight_slice *const piece = &f->map.tensors[tensor].pieces[0];
  *first_row = piece->first_row;
  return &f->graph.parameters[piece->parameter];
}

static void stacks_llama_projections(void **state) {
  fixture *const f = *state;
  build_model(f, "llama");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, model_path("llama"), OT_F32, &notes), OT_OK);
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(model_path("llama"), "", &set), OT_OK);
  const int64_t C = f->model.hidden_size, D = f->model.head_dim;
  const int64_t starts[] = {0, f->model.num_heads * D,
                            (f->model.num_heads + f->model.num_kv_heads) * D};
  static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
  for (int i = 0; i < 3; i++) {
    char name[128];
    snprintf(name, sizeof name, "model.layers.1.self_attn.%s.weight", names[i]);
    int64_t first_row;
    const ot_parameter *const qkv = holder_of(f, name, &first_row);
    assert_int_equal(first_row, starts[i]);
    const float *const q = file_values(set, name);
    assert_true(value_at(f, qkv->name, first_row + 2, 3) == q[2 * C + 3]);
  }
  ot_safetensors_destroy(&set);
}

static void transposes_gpt2_matrices(void **state) {
  fixture *const f = *state;
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, model_path("gpt2"), OT_F32, &notes), OT_OK);
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(model_path("gpt2"), "", &set), OT_OK);
  int64_t first_row;
  const ot_parameter *const qkv = holder_of(f, "transformer.h.0.attn.c_attn.weight", &first_row);
  const int64_t C = f->model.hidden_size;
  assert_int_equal(qkv->rows, 3 * C);
  const float *const file = file_values(set, "transformer.h.0.attn.c_attn.weight");  // [C, 3C]
  for (int64_t row = 0; row < 3 * C; row += 7)
    for (int64_t col = 0; col < C; col += 3)
      assert_true(value_at(f, qkv->name, row, col) == file[col * 3 * C + row]);
  ot_safetensors_destroy(&set);
}

// Any partition of a tensor into ranges gives the same elements.
static void assembles_any_range(void **state) {
  fixture *const f = *state;
  static const char *const names[] = {"transformer.wte.weight",
                                      "transformer.h.0.attn.c_attn.weight",
                                      "transformer.h.1.attn.c_attn.bias"};
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, model_path("gpt2"), OT_F32, &notes), OT_OK);
  memory m = {f, OT_F32};
  const ot_weight_access access = access_to(&m);
  ot_weight_stage stage;
  ot_weight_stage_build(&f->arena, &f->map, &access, &stage);
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(model_path("gpt2"), "", &set), OT_OK);
  for (int i = 0; i < 3; i++) {
    const int tensor = ot_weight_map_find(&f->map, names[i]);
    const int64_t elements = f->map.tensors[tensor].rows * f->map.tensors[tensor].cols;
    const float *const expected = file_values(set, names[i]);
    float *const out = calloc((size_t)elements, sizeof *out);
    for (int64_t step = 1; step < elements; step = step * 3 + 1) {
      for (int64_t first = 0; first < elements; first += step) {
        const int64_t count = elements - first < step ? elements - first : step;
        const ot_safetensors_range range = {tensor, first, count};
        assert_int_equal(ot_weights_assemble(&stage, range, OT_F32, out + first), OT_OK);
      }
      assert_memory_equal(out, expected, (size_t)elements * sizeof *out);
    }
    free(out);
  }
  ot_safetensors_destroy(&set);
}

static void exports_bf16_rounded_once(void **state) {
  fixture *const f = *state;
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, model_path("gpt2"), OT_F32, &notes), OT_OK);
  assert_int_equal(export_model(f, OT_F32, OT_BF16), OT_OK);
  ot_safetensors *narrow = NULL, *wide = NULL;
  assert_int_equal(ot_safetensors_create(scratch_path(f->directory, "out"), "model", &narrow),
                   OT_OK);
  assert_int_equal(ot_safetensors_create(model_path("gpt2"), "", &wide), OT_OK);
  assert_int_equal(ot_safetensors_count(narrow), ot_safetensors_count(wide));
  for (int i = 0; i < ot_safetensors_count(wide); i++) {
    const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(wide, i);
    const uint16_t *const bits = tensor_data(narrow, i);
    const float *const values = tensor_data(wide, i);
    for (int64_t j = 0; j < tensor->elements; j++)
      assert_int_equal(bits[j], ot_bf16_from_float(values[j]));
  }
  ot_safetensors_destroy(&narrow);
  ot_safetensors_destroy(&wide);
}

// ---- variations of a file ----

typedef struct variation {
  const char *drop;      // tensor to omit
  const char *strip;     // prefix to remove from every name
  const char *add, *as;  // tensor to write again under another name
  bool change;           // the added tensor differs in its last element
  const char *swap;      // tensor whose dimensions are swapped
} variation;

// Writes `name`'s model.safetensors with changes to the scratch directory.
static const char *write_variation(fixture *f, const char *name, const variation *v) {
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(model_path(name), "", &set), OT_OK);
  const int n = ot_safetensors_count(set);
  ot_tensor_source *const sources = ot_arena_array(&f->arena, n + 1, sizeof *sources);
  int count = 0;
  for (int i = 0; i < n; i++) {
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, i);
    const bool strips = v->strip != NULL && strncmp(t->name, v->strip, strlen(v->strip)) == 0;
    const ot_tensor_source source = {.name = t->name + (strips ? strlen(v->strip) : 0),
                                     .dtype = OT_F32,
                                     .rank = t->rank,
                                     .dim = {t->dim[0], t->dim[1]},
                                     .data = tensor_data(set, i)};
    if (v->drop == NULL || strcmp(t->name, v->drop) != 0) sources[count++] = source;
    if (v->swap != NULL && strcmp(t->name, v->swap) == 0) {
      sources[count - 1].dim[0] = t->dim[1];
      sources[count - 1].dim[1] = t->dim[0];
    }
    if (v->add == NULL || strcmp(t->name, v->add) != 0) continue;
    float *const copy = ot_arena_array(&f->arena, t->elements, sizeof *copy);
    memcpy(copy, source.data, (size_t)t->bytes);
    if (v->change) copy[t->elements - 1] += 1.0f;
    sources[count] = source;
    sources[count].name = v->as;
    sources[count++].data = copy;
  }
  const ot_checkpoint_content content = {.num_model = count, .model = sources};
  const char *const path = scratch_path(f->directory, "variation");
  if (ot_checkpoint_write(path, &content) != OT_OK) fail_msg("%s", ot_fail_message());
  ot_safetensors_destroy(&set);
  return path;
}

static void expect_refusal(fixture *f, const char *name, const variation *v, const char *message) {
  build_model(f, name);
  ot_weight_notes notes;
  if (import_file(f, write_variation(f, name, v), OT_F32, &notes) != OT_ENVIRONMENT)
    fail_msg("accepted: %s", message);
  assert_message_has(message);
}

static void takes_names_with_and_without_prefix(void **state) {
  fixture *const f = *state;
  const variation bare = {.strip = "transformer."};
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, write_variation(f, "gpt2", &bare), OT_F32, &notes), OT_OK);
  assert_int_equal(export_model(f, OT_F32, OT_F32), OT_OK);
  assert_files_equal(scratch_path(f->directory, "out/model.safetensors"), model_path("gpt2"));
  const variation both = {.add = "transformer.ln_f.bias", .as = "ln_f.bias"};
  expect_refusal(f, "gpt2", &both,
                 "tensors ln_f.bias and transformer.ln_f.bias are the same weight");
}

// ---- stacks of experts ----

enum { EXPERTS = 8, OLMOE_LAYERS = 2 };

// Matrices `names` of each expert of `layer`, concatenated.
static ot_tensor_source stack_of(fixture *f, const ot_safetensors *set, int layer,
                                 const char *const names[], bool swap) {
  const int parts = names[1] ? 2 : 1;
  ot_tensor_source source = {.dtype = OT_F32, .rank = 3};
  float *values = NULL;
  for (int i = 0; i < EXPERTS * parts; i++) {
    const char *const name = ot_arena_format(&f->arena, "model.layers.%d.mlp.experts.%d.%s.weight",
                                             layer, i / parts, names[i % parts]);
    const int index = ot_safetensors_find(set, name);
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, index);
    if (!values) values = ot_arena_array(&f->arena, EXPERTS * parts * t->elements, sizeof *values);
    memcpy(values + i * t->elements, tensor_data(set, index), (size_t)t->bytes);
    source.dim[0] = EXPERTS;
    source.dim[swap ? 2 : 1] = parts * t->dim[0];
    source.dim[swap ? 1 : 2] = t->dim[1];
  }
  source.name = ot_arena_format(&f->arena, "model.layers.%d.mlp.experts.%s", layer,
                                parts == 2 ? "gate_up_proj" : "down_proj");
  source.data = values;
  return source;
}

// The olmoe fixture with all experts of a layer in two tensors.
static const char *write_stacks(fixture *f, bool swap) {
  static const char *const up[] = {"gate_proj", "up_proj"};
  static const char *const down[] = {"down_proj", NULL};
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(model_path("olmoe"), "", &set), OT_OK);
  const int n = ot_safetensors_count(set);
  ot_tensor_source *const sources = ot_arena_array(&f->arena, n, sizeof *sources);
  int count = 0;
  for (int layer = 0; layer < OLMOE_LAYERS; layer++) {
    sources[count++] = stack_of(f, set, layer, up, swap);
    sources[count++] = stack_of(f, set, layer, down, swap);
  }
  for (int i = 0; i < n; i++) {
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, i);
    if (strstr(t->name, ".experts.")) continue;
    sources[count++] = (ot_tensor_source){.name = t->name,
                                          .dtype = OT_F32,
                                          .rank = t->rank,
                                          .dim = {t->dim[0], t->dim[1]},
                                          .data = tensor_data(set, i)};
  }
  const ot_checkpoint_content content = {.num_model = count, .model = sources};
  const char *const path = scratch_path(f->directory, "stacks");
  if (ot_checkpoint_write(path, &content) != OT_OK) fail_msg("%s", ot_fail_message());
  ot_safetensors_destroy(&set);
  return path;
}

static void takes_experts_in_stacks_and_apart(void **state) {
  fixture *const f = *state;
  build_model(f, "olmoe");
  ot_weight_notes notes;
  if (import_file(f, write_stacks(f, false), OT_F32, &notes) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  assert_int_equal(export_model(f, OT_F32, OT_F32), OT_OK);
  assert_files_equal(scratch_path(f->directory, "out/model.safetensors"), model_path("olmoe"));
}

// Files have gate_up_proj [E, C, 2F] with gate and up interleaved, down_proj [E, F, C], and
// matching biases.
static void takes_experts_of_gpt_oss_out_of_one_tensor(void **state) {
  fixture *const f = *state;
  enum { GPT_OSS_E = 8, F = 10, C = 20 };
  build_model(f, "gpt-oss");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, model_path("gpt-oss"), OT_F32, &notes), OT_OK);
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(model_path("gpt-oss"), "", &set), OT_OK);
  const float *const gate_up = file_values(set, "model.layers.1.mlp.experts.gate_up_proj");
  const float *const biases = file_values(set, "model.layers.1.mlp.experts.gate_up_proj_bias");
  const float *const down = file_values(set, "model.layers.1.mlp.experts.down_proj");
  const float *const down_biases = file_values(set, "model.layers.1.mlp.experts.down_proj_bias");
  for (int i = 0; i < GPT_OSS_E * 2 * F; i++) {
    const int e = i / (2 * F), half = i / F % 2, column = 2 * (i % F) + half;
    assert_true(value_at(f, "layers.1.experts.gate_up.bias", i, 0) == biases[e * 2 * F + column]);
    for (int c = 0; c < C; c++) {
      assert_true(value_at(f, "layers.1.experts.gate_up.weight", i, c) ==
                  gate_up[(e * C + c) * 2 * F + column]);
    }
  }
  for (int i = 0; i < GPT_OSS_E * C; i++) {
    assert_true(value_at(f, "layers.1.experts.down.bias", i, 0) == down_biases[i]);
    for (int k = 0; k < F; k++) {
      assert_true(value_at(f, "layers.1.experts.down.weight", i, k) ==
                  down[(i / C * F + k) * C + i % C]);
    }
  }
  assert_true(value_at(f, "layers.1.attention.sinks", 5, 0) ==
              file_values(set, "model.layers.1.self_attn.sinks")[5]);
  ot_safetensors_destroy(&set);
}

// A file with one tensor [rows, 20] called `name`, imported as weights of gpt-oss.
static void import_one(fixture *f, const char *name, int64_t rows) {
  build_model(f, "gpt-oss");
  static const float zeros[8 * 20];
  const ot_tensor_source one = {
      .name = name, .dtype = OT_F32, .rank = 2, .dim = {rows, 20}, .data = zeros};
  const ot_checkpoint_content content = {.num_model = 1, .model = &one};
  const char *const path = scratch_path(f->directory, "one");
  assert_int_equal(ot_checkpoint_write(path, &content), OT_OK);
  ot_weight_notes notes;
  assert_int_equal(import_file(f, path, OT_F32, &notes), OT_ENVIRONMENT);
}

static void refuses_mxfp4_and_stacks_of_another_size(void **state) {
  import_one(*state, "model.layers.0.mlp.experts.gate_up_proj_blocks", 8);
  assert_message_has("mlp.experts.gate_up_proj_blocks is quantised with mxfp4");
  import_one(*state, "model.layers.0.mlp.experts.down_proj_bias", 7);
  assert_message_has("does not have the shape [8, 20]");
}

static void refuses_stacks_of_transposed_matrices(void **state) {
  fixture *const f = *state;
  build_model(f, "olmoe");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, write_stacks(f, true), OT_F32, &notes), OT_ENVIRONMENT);
  assert_message_has("does not have the shape [experts, 18, 10]");
}

static void ignores_old_buffers_and_says_so(void **state) {
  fixture *const f = *state;
  const variation mask = {.add = "transformer.ln_f.bias", .as = "h.0.attn.bias"};
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, write_variation(f, "gpt2", &mask), OT_F32, &notes), OT_OK);
  assert_int_equal(notes.num_ignored, 1);
  assert_string_equal(notes.ignored, "h.0.attn.bias");
}

static void accepts_a_repeated_tied_head_only_if_equal(void **state) {
  fixture *const f = *state;
  const variation equal = {.add = "transformer.wte.weight", .as = "lm_head.weight"};
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, write_variation(f, "gpt2", &equal), OT_F32, &notes), OT_OK);
  assert_true(notes.tied_head);
  const variation different = {
      .add = "transformer.wte.weight", .as = "lm_head.weight", .change = true};
  expect_refusal(f, "gpt2", &different, "lm_head.weight differs from transformer.wte.weight");
}

static void names_tensors_that_do_not_fit(void **state) {
  fixture *const f = *state;
  const variation missing = {.drop = "model.layers.0.mlp.up_proj.weight"};
  expect_refusal(f, "llama", &missing,
                 "1 tensor of the model missing: model.layers.0.mlp.up_proj.weight");
  const variation headless = {.drop = "lm_head.weight"};
  expect_refusal(f, "llama", &headless, "1 tensor of the model missing: lm_head.weight");
  assert_non_null(strstr(ot_fail_hint_text(), "tie_word_embeddings: true"));
  const variation extra = {.add = "model.norm.weight", .as = "model.layers.0.extra.weight"};
  expect_refusal(f, "llama", &extra, "1 tensor unknown to this model: model.layers.0.extra.weight");
  const variation swapped = {.swap = "model.layers.0.mlp.up_proj.weight"};
  expect_refusal(f, "llama", &swapped, "tensor model.layers.0.mlp.up_proj.weight has shape [");
}

static void fills_several_copies_from_one_file(void **state) {
  fixture *const f = *state;
  build_model(f, "llama");
  fixture master = *f;
  master.values = ot_arena_array(&f->arena, f->graph.num_parameters, sizeof *master.values);
  for (int i = 0; i < f->graph.num_parameters; i++)
    master.values[i] =
        ot_arena_array(&f->arena, ot_parameter_elements(&f->graph.parameters[i]), sizeof(double));
  memory narrow = {f, OT_BF16}, wide = {&master, OT_F32};
  const ot_weight_access both[] = {access_to(&narrow), access_to(&wide)};
  const ot_weight_import into = {&f->map, both, 2};
  ot_checkpoint *checkpoint = NULL;
  ot_weight_notes notes;
  assert_int_equal(ot_checkpoint_create(model_path("llama"), &checkpoint), OT_OK);
  assert_int_equal(ot_weights_import(&f->arena, &into, checkpoint, &notes), OT_OK);
  ot_checkpoint_destroy(&checkpoint);
  for (int i = 0; i < f->graph.num_parameters; i++) {
    if (f->graph.parameters[i].num_parts == 0) continue;
    const uint16_t *const bits = (const uint16_t *)f->values[i];
    const float *const values = (const float *)master.values[i];
    for (int64_t j = 0; j < ot_parameter_elements(&f->graph.parameters[i]); j++)
      assert_int_equal(bits[j], ot_bf16_from_float(values[j]));
  }
}

static void restores_the_optimizers_state(void **state) {
  fixture *const f = *state;
  build_model(f, "gpt2");
  ot_weight_notes notes;
  assert_int_equal(import_file(f, model_path("gpt2"), OT_F32, &notes), OT_OK);
  memory m = {f, OT_F32};
  const ot_weight_access access = access_to(&m);
  bool *const selected = ot_arena_array(&f->arena, f->map.num_tensors, sizeof *selected);
  for (int i = 0; i < f->map.num_tensors; i++) selected[i] = f->map.tensors[i].rank == 2;
  ot_weight_export what = {&f->map, &access, "m.", OT_F32, selected};
  ot_tensor_source *const sources = ot_arena_array(&f->arena, f->map.num_tensors, sizeof *sources);
  int count;
  ot_weight_sources_build(&f->arena, &what, sources, &count, NULL);
  assert_true(count > 0 && count < f->map.num_tensors);
  const float unit = 1.0f;
  const ot_tensor_source model = {.name = "w", .dtype = OT_F32, .data = &unit};
  const ot_manifest manifest = {.config = "{}", .mesh = {1, 1, 1, 1, 1, 1, 1, 1}};
  const ot_checkpoint_content content = {.num_model = 1,
                                         .model = &model,
                                         .num_optimizer = count,
                                         .optimizer = sources,
                                         .manifest = &manifest};
  const char *const path = scratch_path(f->directory, "state");
  assert_int_equal(ot_checkpoint_write(path, &content), OT_OK);
  const int embedding =
      f->map.tensors[ot_weight_map_find(&f->map, "wte.weight")].pieces[0].parameter;
  const int64_t elements = ot_parameter_elements(&f->graph.parameters[embedding]);
  float *const before = ot_arena_array(&f->arena, elements, sizeof *before);
  memcpy(before, f->values[embedding], (size_t)elements * sizeof *before);
  memset(f->values[embedding], 0, (size_t)elements * sizeof *before);
  ot_checkpoint *checkpoint = NULL;
  assert_int_equal(ot_checkpoint_create(path, &checkpoint), OT_OK);
  assert_int_equal(ot_weights_restore(&f->arena, &what, checkpoint), OT_OK);
  assert_memory_equal(f->values[embedding], before, (size_t)elements * sizeof *before);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER), OT_OK);
  what.prefix = "v.";
  assert_int_equal(ot_weights_restore(&f->arena, &what, checkpoint), OT_ENVIRONMENT);
  assert_message_has("tensors of the optimizer missing: v.transformer.wte.weight, v.");
  ot_checkpoint_destroy(&checkpoint);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_file_round_trips_byte_for_byte, set_up, tear_down),
      cmocka_unit_test_setup_teardown(stacks_llama_projections, set_up, tear_down),
      cmocka_unit_test_setup_teardown(transposes_gpt2_matrices, set_up, tear_down),
      cmocka_unit_test_setup_teardown(assembles_any_range, set_up, tear_down),
      cmocka_unit_test_setup_teardown(exports_bf16_rounded_once, set_up, tear_down),
      cmocka_unit_test_setup_teardown(takes_names_with_and_without_prefix, set_up, tear_down),
      cmocka_unit_test_setup_teardown(ignores_old_buffers_and_says_so, set_up, tear_down),
      cmocka_unit_test_setup_teardown(takes_experts_in_stacks_and_apart, set_up, tear_down),
      cmocka_unit_test_setup_teardown(refuses_stacks_of_transposed_matrices, set_up, tear_down),
      cmocka_unit_test_setup_teardown(takes_experts_of_gpt_oss_out_of_one_tensor, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(refuses_mxfp4_and_stacks_of_another_size, set_up, tear_down),
      cmocka_unit_test_setup_teardown(accepts_a_repeated_tied_head_only_if_equal, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(names_tensors_that_do_not_fit, set_up, tear_down),
      cmocka_unit_test_setup_teardown(fills_several_copies_from_one_file, set_up, tear_down),
      cmocka_unit_test_setup_teardown(restores_the_optimizers_state, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
