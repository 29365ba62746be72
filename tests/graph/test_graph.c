// SPDX-License-Identifier: Apache-2.0
// run: any machine. Graphs of models. Parameters are the same in every mode, cover the tensors of
// HF files exactly once (files written by transformers, tests/fixtures/parity), and match published
// counts. Equal layers share a program. Expert buffers are sized by the balanced load.
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "graph/graph.h"
#include "support/arena_fixture.h"
#include "support/parity_case.h"
#include "support/preset_sizes.h"
#include "support/split_model.h"
#include "support/tiny_model.h"

static ot_graph build(const ot_model *model, ot_mode mode) {
  const ot_graph_request request = {.model = model,
                                    .mode = mode,
                                    .micro_batch_size = ot_mode_is_cached(mode) ? 1 : 2,
                                    .sequence_length = ot_mode_is_decode(mode) ? 2 : 5,
                                    .cache = {.sequences = 2, .positions = 16, .pages = 3},
                                    .compute = OT_F32,
                                    .storage = OT_F32,
                                    .threads = 1};
  ot_graph graph;
  if (ot_graph_build(&request, &arena, &graph) != OT_OK) fail_msg("%s", ot_fail_message());
  return graph;
}

// The model of a config.json under the source tree.
static const ot_model *load(const char *path) {
  ot_node *tree;
  ot_model *const model = ot_arena_take(&arena, sizeof *model);
  const char *const whole = ot_arena_format(&arena, "%s/%s", OT_SOURCE_DIR, path);
  if (ot_tree_load(whole, &arena, &tree) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_model_read(tree, &arena, model) != OT_OK) fail_msg("%s", ot_fail_message());
  return model;
}

static const ot_model *load_case(const char *name) {
  return load(ot_arena_format(&arena, "tests/fixtures/parity/%s/config.json", name));
}

// ---- parameters ----

static void expect_same_parts(const ot_parameter *a, const ot_parameter *b) {
  assert_int_equal(a->num_parts, b->num_parts);
  for (int i = 0; i < a->num_parts; i++) {
    const ot_parameter_part *const p = &a->parts[i];
    const ot_parameter_part *const q = &b->parts[i];
    assert_string_equal(p->hf_name, q->hf_name);
    assert_true(p->first_row == q->first_row && p->rows == q->rows && p->hf_first == q->hf_first &&
                p->hf_rows == q->hf_rows && p->transposed == q->transposed);
  }
}

static void expect_same_parameter(const ot_parameter *a, const ot_parameter *b) {
  assert_string_equal(a->name, b->name);
  assert_true(a->block == b->block && a->offset == b->offset && a->rank == b->rank);
  assert_true(a->rows == b->rows && a->cols == b->cols && a->kind == b->kind);
  assert_true(a->initial == b->initial && a->initial_std == b->initial_std);
  assert_int_equal(a->tied_to, b->tied_to);
  expect_same_parts(a, b);
}

static void parameters_of_all_modes_agree(void **state) {
  (void)state;
  const ot_model models[] = {tiny_gpt2(), tiny_llama(), tiny_gemma()};
  for (int m = 0; m < 3; m++) {
    const ot_graph train = build(&models[m], OT_MODE_TRAIN);
    for (int mode = 0; mode < OT_MODES; mode++) {
      const ot_graph other = build(&models[m], (ot_mode)mode);
      assert_int_equal(other.num_blocks, train.num_blocks);
      assert_int_equal(other.num_parameters, train.num_parameters);
      for (int i = 0; i < other.num_parameters; i++) {
        expect_same_parameter(&train.parameters[i], &other.parameters[i]);
      }
      for (int i = 0; i < other.num_blocks; i++) {
        assert_int_equal(other.blocks[i].weight_elements, train.blocks[i].weight_elements);
      }
    }
  }
}

// Offsets in a bucket: ascending, disjoint, aligned to vectors; a tied use has its owner's offset.
static void buckets_hold_their_parameters_apart(void **state) {
  (void)state;
  const ot_model models[] = {tiny_gpt2(), tiny_llama(), tiny_gemma()};
  for (int m = 0; m < 3; m++) {
    const ot_graph graph = build(&models[m], OT_MODE_TRAIN);
    for (int b = 0; b < graph.num_blocks; b++) {
      const ot_block *const block = &graph.blocks[b];
      int64_t reached = 0;
      for (int i = 0; i < block->num_parameters; i++) {
        const ot_parameter *const p = &graph.parameters[block->first_parameter + i];
        assert_int_equal(p->block, b);
        assert_true(ot_graph_parameter(&graph, p->name) == p);
        if (p->tied_to >= 0) assert_int_equal(p->offset, graph.parameters[p->tied_to].offset);
        if (p->tied_to >= 0) continue;
        assert_true(p->offset >= reached && p->offset < reached + 32 && p->offset % 32 == 0);
        reached = p->offset + ot_parameter_elements(p);
      }
      assert_true(reached <= block->weight_elements && block->weight_elements < reached + 32);
    }
    assert_null(ot_graph_parameter(&graph, "layers.0.attention"));
  }
}

static int64_t count_elements(const ot_graph *graph) {
  int64_t elements = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to >= 0) continue;
    if (graph->parameters[i].kind == OT_PARAMETER_BUFFER) continue;
    elements += ot_parameter_elements(&graph->parameters[i]);
  }
  return elements;
}

static void graphs_have_as_many_parameters_as_their_models(void **state) {
  (void)state;
  for (int i = 0; parity_cases[i]; i++) {
    const ot_model *const model = load_case(parity_cases[i]);
    const ot_graph graph = build(model, OT_MODE_TRAIN);
    if (count_elements(&graph) != ot_model_parameters(model)) {
      fail_msg("%s: %lld in the graph, %lld in the model", parity_cases[i],
               (long long)count_elements(&graph), (long long)ot_model_parameters(model));
    }
  }
}

static int count_presets(void) {
  DIR *const directory = opendir(OT_SOURCE_DIR "/presets/models");
  assert_non_null(directory);
  int count = 0;
  for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
    count += ot_text_ends_with(entry->d_name, ".json");
  }
  closedir(directory);
  return count;
}

static void presets_have_as_many_parameters_as_published(void **state) {
  (void)state;
  assert_int_equal(count_presets(), preset_count);
  for (int i = 0; i < preset_count; i++) {
    const char *const name = preset_sizes[i].name;
    const ot_model *const model = load(ot_arena_format(&arena, "presets/models/%s.json", name));
    const ot_graph graph = build(model, OT_MODE_EVALUATE);
    if (count_elements(&graph) != preset_sizes[i].parameters) {
      fail_msg("%s: %lld", name, (long long)count_elements(&graph));
    }
  }
}

// ---- HF tensors ----

// The file tensor that holds `part`, and the index of its matrix ("NAME[2]": 2), or -1.
static int find_tensor(const ot_safetensors *set, const ot_parameter_part *part, int *matrix) {
  const char *const bracket = strchr(part->hf_name, '[');
  *matrix = bracket ? atoi(bracket + 1) : -1;
  if (!bracket) return ot_safetensors_find(set, part->hf_name);
  return ot_safetensors_find(
      set, ot_arena_format(&arena, "%.*s", (int)(bracket - part->hf_name), part->hf_name));
}

static void expect_shape(const ot_safetensors_tensor *tensor, const ot_parameter *p,
                         const ot_parameter_part *part, int matrix) {
  const int several = matrix >= 0;
  assert_int_equal(tensor->rank, p->rank + several);
  if (several) assert_true(matrix < tensor->dim[0]);
  const int outputs = several + (part->transposed ? 1 : 0);
  assert_int_equal(tensor->dim[outputs], part->hf_rows);
  if (p->rank == 2) assert_int_equal(tensor->dim[2 * several + 1 - outputs], p->cols);
  assert_true(part->hf_first >= 0 && part->hf_first + part->rows <= part->hf_rows);
}

// Marks the rows of `part` in `covered` [hf_rows of its matrix].
static void cover(const char *name, const ot_parameter_part *part, bool *covered) {
  for (int64_t row = 0; row < part->rows; row++) {
    if (covered[part->hf_first + row]) fail_msg("%s: %s twice", name, part->hf_name);
    covered[part->hf_first + row] = true;
  }
}

static void expect_cover(const char *name) {
  const ot_graph graph = build(load_case(name), OT_MODE_TRAIN);
  ot_safetensors *set = NULL;
  const char *const path =
      ot_arena_format(&arena, "%s/tests/fixtures/parity/%s/model.safetensors", OT_SOURCE_DIR, name);
  if (ot_safetensors_create(path, "", &set) != OT_OK) fail_msg("%s", ot_fail_message());
  const int count = ot_safetensors_count(set);
  bool **const covered = ot_arena_array(&arena, count, sizeof *covered);
  int64_t *const rows = ot_arena_array(&arena, count, sizeof *rows);
  for (int i = 0; i < graph.num_parameters; i++) {
    const ot_parameter *const p = &graph.parameters[i];
    int64_t row = 0;
    for (int k = 0; k < p->num_parts; k++) {
      const ot_parameter_part *const part = &p->parts[k];
      int matrix;
      const int tensor = find_tensor(set, part, &matrix);
      if (tensor < 0) fail_msg("%s: there is no %s", name, part->hf_name);
      const ot_safetensors_tensor *const found = ot_safetensors_tensor_at(set, tensor);
      expect_shape(found, p, part, matrix);
      rows[tensor] = matrix >= 0 ? found->dim[0] * part->hf_rows : part->hf_rows;
      if (!covered[tensor]) covered[tensor] = ot_arena_array(&arena, rows[tensor], sizeof(bool));
      cover(name, part, covered[tensor] + (matrix > 0 ? matrix * part->hf_rows : 0));
      assert_int_equal(part->first_row, row);
      row += part->rows;
    }
    assert_int_equal(row, p->tied_to >= 0 ? 0 : p->rows);
  }
  for (int i = 0; i < count; i++) {
    bool whole = covered[i] != NULL;
    for (int64_t row = 0; whole && row < rows[i]; row++) whole = covered[i][row];
    if (!whole) fail_msg("%s: not all of %s", name, ot_safetensors_tensor_at(set, i)->name);
  }
  ot_safetensors_destroy(&set);
}

static void parts_cover_every_tensor_of_hf_files_once(void **state) {
  (void)state;
  for (int i = 0; parity_cases[i]; i++) expect_cover(parity_cases[i]);
}

// ---- programs ----

static void expect_programs(const ot_model *model, ot_mode mode, int num_programs) {
  const ot_graph graph = build(model, mode);
  assert_int_equal(graph.num_programs, num_programs);
  for (int i = 0; i < model->num_layers; i++) {
    for (int k = 0; k < i; k++) {
      const bool shared = graph.blocks[1 + i].program == graph.blocks[1 + k].program;
      if (shared != ot_model_same_layer(model, i, k)) fail_msg("layers %d and %d", k, i);
    }
  }
}

static void equal_layers_share_a_program_and_windowed_ones_have_their_own(void **state) {
  (void)state;
  const ot_model gpt2 = tiny_gpt2(), llama = tiny_llama(), gemma = tiny_gemma();
  for (int mode = 0; mode < OT_MODES; mode++) {
    expect_programs(&gpt2, (ot_mode)mode, 3);
    expect_programs(&llama, (ot_mode)mode, 3);
    expect_programs(&gemma, (ot_mode)mode, 4);
  }
  ot_model mixed = gemma;
  mixed.window[1] = 3;
  expect_programs(&mixed, OT_MODE_TRAIN, 5);
}

// Index of the rope table that a layer reads; -1: none.
static int rope_table_of(const ot_graph *graph, int layer) {
  const ot_program *const program = &graph->programs[graph->blocks[1 + layer].program];
  for (int i = 0; i < program->num_values; i++) {
    if (program->values[i].kind == OT_VALUE_CONSTANT) return program->values[i].index;
  }
  return -1;
}

static void windowed_layers_read_the_rope_table_of_their_own(void **state) {
  (void)state;
  const ot_model gpt2 = tiny_gpt2(), llama = tiny_llama(), gemma = tiny_gemma();
  const ot_graph two = build(&gemma, OT_MODE_TRAIN);
  assert_int_equal(two.num_constants, 2);
  assert_true(two.constants[0].attributes.rope_theta == gemma.rope.theta);
  assert_true(two.constants[1].attributes.rope_theta == gemma.rope_local.theta);
  for (int i = 0; i < gemma.num_layers; i++) {
    assert_int_equal(rope_table_of(&two, i), gemma.window[i] > 0 ? 1 : 0);
  }
  ot_model alike = gemma;
  alike.rope_local = alike.rope;
  const ot_graph one = build(&alike, OT_MODE_TRAIN);
  assert_int_equal(one.num_constants, 1);
  assert_int_equal(rope_table_of(&one, 0), 0);
  assert_int_equal(build(&llama, OT_MODE_TRAIN).num_constants, 1);
  const ot_graph learned = build(&gpt2, OT_MODE_TRAIN);
  assert_int_equal(learned.num_constants, 0);
  assert_int_equal(rope_table_of(&learned, 0), -1);
}

enum { MAX_STREAMS = 64 };

// RNG streams of the dropout ops of all blocks; of the forward only, or of the gradients only.
static int dropout_streams(const ot_graph *graph, bool forward, uint64_t *streams) {
  int count = 0;
  for (int b = 0; b < graph->num_blocks; b++) {
    const ot_program *const program = &graph->programs[graph->blocks[b].program];
    for (int i = 0; i < program->num_ops; i++) {
      const ot_op *const op = &program->ops[i];
      if (op->attributes.dropout == 0 || (op->part == OT_PART_FORWARD) != forward) continue;
      assert_true(count < MAX_STREAMS);
      streams[count++] = op->attributes.rng_stream;
    }
  }
  return count;
}

// Layers with dropout differ in the RNG stream of their masks, so they cannot share a program. A
// gradient uses the mask of its forward. There is no dropout outside training.
static void every_dropout_has_a_stream_of_its_own(void **state) {
  (void)state;
  ot_model model = tiny_gpt2();
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0.1;
  const ot_graph train = build(&model, OT_MODE_TRAIN);
  assert_int_equal(train.num_programs, model.num_layers + 2);
  uint64_t streams[MAX_STREAMS], back[MAX_STREAMS];
  const int count = dropout_streams(&train, true, streams);
  assert_int_equal(count, 1 + 3 * model.num_layers);
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < i; k++) assert_true(streams[i] != streams[k]);
  }
  assert_int_equal(dropout_streams(&train, false, back), count);
  for (int i = 0; i < count; i++) {
    bool found = false;
    for (int k = 0; k < count; k++) found = found || back[i] == streams[k];
    assert_true(found);
  }
  const ot_graph evaluate = build(&model, OT_MODE_EVALUATE);
  assert_int_equal(dropout_streams(&evaluate, true, streams), 0);
}

// Capacity of this rank's receive buffer, in tokens.
static int64_t exchange_rows(const ot_model *model, ot_split split) {
  ot_graph_request request = split_request(model, OT_MODE_TRAIN, split);
  ot_graph graph;
  request.expert_buffer = 0.5;
  if (ot_graph_build(&request, &arena, &graph) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int i = 0; i < graph.num_programs; i++) {
    for (int k = 0; k < graph.programs[i].num_ops; k++) {
      const ot_op *const op = &graph.programs[i].ops[k];
      if (op->kind == OT_OP_ALL_TO_ALL_V) return op->attributes.exchange_rows;
    }
  }
  fail_msg("no all-to-all-v");
  return 0;
}

// With half of each sequence a rank may receive all tokens of its experts; its buffer holds half.
static void expert_choice_buffers_hold_balanced_loads(void **state) {
  (void)state;
  const ot_model model = split_experts(split_llama(4, 2), 8, OT_MOE_EXPERT_CHOICE);
  const int64_t taken = SPLIT_SEQUENCES * SPLIT_LENGTH * 2;
  const ot_split whole = {.tp = 1, .cp = 1, .ep = 2, .etp = 1, .separate_expert_block = true};
  ot_split split = whole;
  assert_int_equal(exchange_rows(&model, whole), taken / 2);
  split.cp = 2;
  assert_int_equal(exchange_rows(&model, split), taken / 4);
  split.context = OT_CONTEXT_ULYSSES;
  assert_int_equal(exchange_rows(&model, split), taken / 4);
  split.tp = 2;
  split.context = OT_CONTEXT_RING;
  assert_int_equal(exchange_rows(&model, split), taken / 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_of_all_modes_agree),
      cmocka_unit_test(buckets_hold_their_parameters_apart),
      cmocka_unit_test(graphs_have_as_many_parameters_as_their_models),
      cmocka_unit_test(presets_have_as_many_parameters_as_published),
      cmocka_unit_test(parts_cover_every_tensor_of_hf_files_once),
      cmocka_unit_test(equal_layers_share_a_program_and_windowed_ones_have_their_own),
      cmocka_unit_test(windowed_layers_read_the_rope_table_of_their_own),
      cmocka_unit_test(every_dropout_has_a_stream_of_its_own),
      cmocka_unit_test(expert_choice_buffers_hold_balanced_loads),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
