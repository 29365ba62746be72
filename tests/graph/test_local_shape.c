// SPDX-License-Identifier: Apache-2.0
// run: any machine. The tensors of each rank: all ranks together hold every tensor once; reductions
// exist where there are copies; collectives match the literature; errors name degrees.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "support/arena_fixture.h"
#include "support/split_model.h"

static ot_model split_qwen3(int64_t heads, int64_t kv_heads) {
  ot_model model = split_llama(heads, kv_heads);
  model.family = OT_FAMILY_QWEN3;
  model.qk_norm = OT_QK_NORM_HEAD;
  return model;
}

// ---- parts ----

// A rectangle of an HF tensor that one rank holds.
typedef struct rectangle {
  const char *name;
  int64_t row, rows, col, cols, hf_rows, hf_cols;
} rectangle;

enum { MAX_RECTANGLES = 20000 };

typedef struct cover {
  rectangle *rectangles;
  int count;
} cover;

static bool overlap(const rectangle *a, const rectangle *b) {
  return a->row < b->row + b->rows && b->row < a->row + a->rows && a->col < b->col + b->cols &&
         b->col < a->col + a->cols;
}

static void add_part(cover *c, const ot_parameter *p, const ot_parameter_part *part) {
  const rectangle made = {part->hf_name, part->hf_first, part->rows,   part->hf_first_col,
                          p->cols,       part->hf_rows,  part->hf_cols};
  assert_true(made.row >= 0 && made.row + made.rows <= made.hf_rows);
  assert_true(made.col >= 0 && made.col + made.cols <= made.hf_cols);
  for (int i = 0; i < c->count; i++) {
    const rectangle *const other = &c->rectangles[i];
    if (!ot_text_equal(other->name, made.name)) continue;
    assert_true(other->hf_rows == made.hf_rows && other->hf_cols == made.hf_cols);
    if (overlap(other, &made)) fail_msg("%s is counted twice", made.name);
  }
  assert_true(c->count < MAX_RECTANGLES);
  c->rectangles[c->count++] = made;
}

static void add_rank(cover *c, const ot_graph *graph) {
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    int64_t row = 0;
    for (int k = 0; k < p->num_parts; k++) {
      assert_int_equal(p->parts[k].first_row, row);
      row += p->parts[k].rows;
      if (p->parts[k].counted) add_part(c, p, &p->parts[k]);
    }
    assert_true(row == (p->tied_to >= 0 ? 0 : p->rows));
  }
}

// No two overlap, so they cover everything if their areas add up.
static void conclude(const cover *c, const ot_model *model) {
  int64_t elements = 0;
  for (int i = 0; i < c->count; i++) {
    const rectangle *const r = &c->rectangles[i];
    if (!ot_text_find(r->name, "e_score_correction_bias")) elements += r->rows * r->cols;
  }
  if (elements != ot_model_parameters(model)) {
    fail_msg("%lld elements are counted, the model has %lld", (long long)elements,
             (long long)ot_model_parameters(model));
  }
}

static void expect_cover(const ot_model *model, int tp) {
  cover c = {.rectangles = ot_arena_array(&arena, MAX_RECTANGLES, sizeof(rectangle))};
  for (int i = 0; i < tp; i++) {
    const ot_graph graph =
        split_graph(model, OT_MODE_EVALUATE, (ot_split){.tp = tp, .tp_index = i}, &arena);
    add_rank(&c, &graph);
  }
  conclude(&c, model);
}

// The expert view of the same ranks: only the first counts tensors outside experts.
static void expect_expert_cover(const ot_model *model, int ep, int etp) {
  cover c = {.rectangles = ot_arena_array(&arena, MAX_RECTANGLES, sizeof(rectangle))};
  for (int i = 0; i < ep * etp; i++) {
    const ot_split split = {.ep = ep, .ep_index = i / etp, .etp = etp, .etp_index = i % etp};
    const ot_graph graph = split_graph(model, OT_MODE_EVALUATE, split, &arena);
    if (i == 0) {
      add_rank(&c, &graph);
      continue;
    }
    for (int k = 0; k < graph.num_parameters; k++) {
      const ot_parameter *const p = &graph.parameters[k];
      if (!graph.blocks[p->block].experts) continue;
      for (int j = 0; j < p->num_parts; j++) {
        if (p->parts[j].counted) add_part(&c, p, &p->parts[j]);
      }
    }
  }
  conclude(&c, model);
}

static void ranks_of_tp_count_every_element_once(void **state) {
  (void)state;
  const ot_model models[] = {split_gpt2(4),     split_llama(8, 8), split_llama(8, 2),
                             split_llama(4, 1), split_qwen3(8, 4), split_gemma(4, 2),
                             split_olmo2(4, 2)};
  for (int m = 0; m < OT_COUNT(models); m++) {
    for (int tp = 1; tp <= models[m].num_heads; tp *= 2) expect_cover(&models[m], tp);
  }
}

static ot_model preset(const char *name) {
  ot_node *tree;
  ot_model model;
  const char *const path =
      ot_arena_format(&arena, "%s/presets/models/%s.json", OT_SOURCE_DIR, name);
  if (ot_tree_load(path, &arena, &tree) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_model_read(tree, &arena, &model) != OT_OK) fail_msg("%s", ot_fail_message());
  return model;
}

static void preset_parameters_are_counted_once(void **state) {
  (void)state;
  const char *const names[] = {"gpt2-medium", "llama3-8b", "qwen3-8b", "phi3-mini-4k", "olmo2-7b"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    const ot_model model = preset(names[i]);
    expect_cover(&model, 8);
  }
}

static void latents_and_experts_are_counted_once(void **state) {
  (void)state;
  ot_model deepseek = preset("deepseek-v3"), mixtral = preset("mixtral-8x7b");
  deepseek.num_layers = 3;
  mixtral.num_layers = 2;
  expect_cover(&deepseek, 8);
  deepseek.mla.q_rank = 0;
  expect_cover(&deepseek, 4);
  expect_expert_cover(&mixtral, 8, 1);
  expect_expert_cover(&mixtral, 1, 8);
  expect_expert_cover(&mixtral, 4, 2);
}

// Copies are reduced over their holders, and only copies are.
static void expect_sums(const ot_model *model, int tp, int index) {
  const ot_graph graph =
      split_graph(model, OT_MODE_EVALUATE, (ot_split){.tp = tp, .tp_index = index}, &arena);
  const int copies = tp > model->num_kv_heads ? tp / (int)model->num_kv_heads : 1;
  for (int i = 0; i < graph.num_parameters; i++) {
    const ot_parameter *const p = &graph.parameters[i];
    for (int k = 0; k < p->num_parts; k++) {
      const ot_parameter_part *const part = &p->parts[k];
      const bool whole = part->rows == part->hf_rows && p->cols == part->hf_cols;
      const bool kv =
          ot_text_find(part->hf_name, "k_proj") || ot_text_find(part->hf_name, "v_proj");
      const bool copied = kv ? copies > 1 : whole;
      if ((part->sum_group >= 0) != copied) fail_msg("tp=%d: %s", tp, part->hf_name);
      if (!copied) assert_true(part->counted);
      if (kv && copied) {
        assert_int_equal(part->sum_group, OT_GROUP_KV_SUM);
        assert_int_equal(part->counted, index % copies == 0);
      } else if (copied) {
        assert_int_equal(part->sum_group, OT_GROUP_TENSOR_SUM);
        assert_int_equal(part->counted, index == 0);
      }
    }
  }
}

static void copies_are_reduced_over_their_holders(void **state) {
  (void)state;
  const ot_model models[] = {split_llama(8, 2), split_llama(4, 1), split_qwen3(8, 4)};
  for (int m = 0; m < OT_COUNT(models); m++) {
    for (int index = 0; index < 4; index++) expect_sums(&models[m], 4, index);
  }
}

static bool is_summed(const ot_parameter *p) {
  return p->num_parts > 0 && p->parts[0].sum_group == OT_GROUP_TENSOR_SUM;
}

static void parameters_summed_over_tp_come_first_in_a_bucket(void **state) {
  (void)state;
  const ot_model models[] = {split_gpt2(4), split_llama(4, 1), split_gemma(4, 2)};
  for (int m = 0; m < OT_COUNT(models); m++) {
    const ot_graph graph =
        split_graph(&models[m], OT_MODE_TRAIN, (ot_split){.tp = 2, .tp_index = 1}, &arena);
    for (int i = 0; i < graph.num_parameters; i++) {
      const ot_parameter *const p = &graph.parameters[i];
      if (p->tied_to >= 0) continue;
      const int64_t end = p->offset + ot_parameter_elements(p);
      const int64_t summed = graph.blocks[p->block].summed_elements;
      assert_true(is_summed(p) ? end <= summed : p->offset >= summed);
      for (int k = 0; k < i; k++) {
        const ot_parameter *const q = &graph.parameters[k];
        if (q->block != p->block || q->tied_to >= 0) continue;
        assert_true(end <= q->offset || q->offset + ot_parameter_elements(q) <= p->offset);
      }
    }
    const ot_graph whole = split_graph(&models[m], OT_MODE_TRAIN, (ot_split){0}, &arena);
    for (int b = 0; b < whole.num_blocks; b++) {
      assert_true(whole.blocks[b].summed_elements == 0);
      assert_true(graph.blocks[b].layer < 0 || graph.blocks[b].summed_elements > 0);
    }
  }
}

// ---- collectives ----

static int count_ops(const ot_program *program, ot_op_kind kind, ot_part part) {
  int count = 0;
  for (int i = 0; i < program->num_ops; i++) {
    count += program->ops[i].kind == kind && program->ops[i].part == part;
  }
  return count;
}

static const ot_program *layer_of(const ot_graph *graph) {
  return &graph->programs[graph->blocks[1].program];
}

// Two gathers and two scatters forward; backward their transposes and two gathers for the weight
// gradients (Korthikanti et al. 2022).
static void a_layer_has_four_collectives_forward_and_six_backward(void **state) {
  (void)state;
  const ot_model models[] = {split_gpt2(4), split_llama(4, 2), split_gemma(4, 2)};
  for (int m = 0; m < OT_COUNT(models); m++) {
    const ot_graph graph = split_graph(&models[m], OT_MODE_TRAIN, (ot_split){.tp = 2}, &arena);
    const ot_program *const layer = layer_of(&graph);
    assert_int_equal(count_ops(layer, OT_OP_ALL_GATHER, OT_PART_FORWARD), 2);
    assert_int_equal(count_ops(layer, OT_OP_REDUCE_SCATTER, OT_PART_FORWARD), 2);
    assert_int_equal(count_ops(layer, OT_OP_ALL_GATHER, OT_PART_INPUT), 2);
    assert_int_equal(count_ops(layer, OT_OP_REDUCE_SCATTER, OT_PART_INPUT), 2);
    assert_int_equal(count_ops(layer, OT_OP_ALL_GATHER, OT_PART_WEIGHT), 2);
    assert_int_equal(count_ops(layer, OT_OP_REDUCE_SCATTER, OT_PART_WEIGHT), 0);
  }
}

// Keys make c - 1 hops forward and again backward; their gradients make c.
static void a_ring_has_one_hop_less_than_ranks_and_gradients_one_more(void **state) {
  (void)state;
  const ot_model model = split_llama(4, 2);
  for (int cp = 2; cp <= 8; cp *= 2) {
    const ot_graph graph = split_graph(&model, OT_MODE_TRAIN, (ot_split){.cp = cp}, &arena);
    const ot_program *const layer = layer_of(&graph);
    assert_int_equal(count_ops(layer, OT_OP_SHIFT, OT_PART_FORWARD), cp - 1);
    assert_int_equal(count_ops(layer, OT_OP_SHIFT, OT_PART_INPUT), 2 * cp - 1);
    assert_int_equal(count_ops(layer, OT_OP_ATTENTION_BLOCK, OT_PART_FORWARD), cp);
    assert_int_equal(count_ops(layer, OT_OP_ATTENTION_BLOCK_GRAD, OT_PART_INPUT), cp);
    assert_int_equal(count_ops(layer, OT_OP_ATTENTION, OT_PART_FORWARD), 0);
    assert_int_equal(count_ops(layer, OT_OP_ATTENTION_GRAD, OT_PART_INPUT), 0);
  }
}

// A hop starts before the block that overlaps it.
static void hops_do_not_wait_for_the_block_before(void **state) {
  (void)state;
  const ot_model model = split_llama(4, 2);
  const ot_graph graph = split_graph(&model, OT_MODE_TRAIN, (ot_split){.cp = 4}, &arena);
  const ot_program *const layer = layer_of(&graph);
  int hops = 0, blocks = 0;
  for (int i = 0; i < layer->num_ops; i++) {
    if (layer->ops[i].part != OT_PART_FORWARD) continue;
    hops += layer->ops[i].kind == OT_OP_SHIFT;
    if (layer->ops[i].kind != OT_OP_ATTENTION_BLOCK) continue;
    assert_int_equal(hops, blocks < 3 ? blocks + 1 : 3);
    blocks++;
  }
  assert_int_equal(blocks, 4);
}

// With bf16 activations the sum over blocks stays in the compute type until it is complete.
static void a_ring_narrows_its_result_once(void **state) {
  (void)state;
  const ot_model model = split_llama(4, 2);
  ot_graph_request request = split_request(&model, OT_MODE_TRAIN, (ot_split){.cp = 4});
  request.storage = OT_BF16;
  ot_graph graph;
  if (ot_graph_build(&request, &arena, &graph) != OT_OK) fail_msg("%s", ot_fail_message());
  const ot_program *const layer = layer_of(&graph);
  assert_int_equal(count_ops(layer, OT_OP_CAST, OT_PART_FORWARD), 1);
  for (int i = 0; i < layer->num_ops; i++) {
    const ot_op *const op = &layer->ops[i];
    const int out = op->out[0];
    if (op->kind == OT_OP_CAST || op->kind == OT_OP_QKV_JOIN) {
      assert_int_equal(layer->values[out].type.dtype, OT_BF16);
    }
    if (op->kind == OT_OP_ATTENTION_BLOCK || op->kind == OT_OP_ATTENTION_BLOCK_GRAD) {
      assert_int_equal(layer->values[out].type.dtype, OT_F32);
    }
  }
}

// ---- batch fields ----

static void positions_are_looked_up_for_local_rows(void **state) {
  (void)state;
  const ot_model model = split_gpt2(4);
  for (int index = 0; index < 4; index++) {
    const ot_graph graph =
        split_graph(&model, OT_MODE_TRAIN, (ot_split){.tp = 4, .tp_index = index}, &arena);
    const ot_program *const embedding = &graph.programs[graph.blocks[0].program];
    int slices = 0;
    for (int i = 0; i < embedding->num_values; i++) {
      const ot_value *const value = &embedding->values[i];
      if (value->kind != OT_VALUE_BATCH || value->index != OT_BATCH_POSITIONS) continue;
      assert_true(value->first == index * 8 && value->type.dim[0] == 8);
      slices++;
    }
    assert_int_equal(slices, 1);
  }
}

static void batch_fields_hold_the_rows_of_the_rank(void **state) {
  (void)state;
  const ot_model model = split_gpt2(4);
  const ot_split ring = {.tp = 2, .cp = 2, .context = OT_CONTEXT_RING};
  const ot_split ulysses = {.tp = 2, .cp = 2, .context = OT_CONTEXT_ULYSSES};
  const ot_graph a = split_graph(&model, OT_MODE_TRAIN, ring, &arena);
  const ot_graph b = split_graph(&model, OT_MODE_TRAIN, ulysses, &arena);
  assert_true(ot_graph_batch_type(&a, OT_BATCH_TOKENS).dim[0] == 16);
  assert_true(ot_graph_batch_type(&a, OT_BATCH_DOC_STARTS).dim[0] == 16);
  assert_true(ot_graph_batch_type(&b, OT_BATCH_TOKENS).dim[0] == 16);
  assert_true(ot_graph_batch_type(&b, OT_BATCH_DOC_STARTS).dim[0] == 32);
  assert_true(ot_graph_batch_type(&b, OT_BATCH_SAMPLE_IDS).dim[0] == 2);
}

// ---- refusals ----

static void expect_refusal(const ot_graph_request *request, ot_status status, const char *message,
                           const char *hint) {
  ot_graph graph;
  assert_int_equal(ot_graph_build(request, &arena, &graph), status);
  assert_string_equal(ot_fail_message(), message);
  assert_string_equal(ot_fail_hint_text(), hint);
}

static void degrees_of_tp_that_do_not_fit_are_refused(void **state) {
  (void)state;
  const ot_model gpt2 = split_gpt2(6), llama = split_llama(12, 4);
  ot_graph_request request = split_request(&gpt2, OT_MODE_TRAIN, (ot_split){.tp = 4});
  expect_refusal(&request, OT_USAGE, "graph: tp=4 does not divide num_attention_heads=6",
                 "tp degrees that work: 1, 2");
  request = split_request(&llama, OT_MODE_TRAIN, (ot_split){.tp = 6});
  expect_refusal(&request, OT_USAGE,
                 "graph: tp=6 and num_key_value_heads=4: neither divides the other",
                 "tp degrees that work: 1, 2, 4");
  request = split_request(&gpt2, OT_MODE_TRAIN, (ot_split){.tp = 3});
  expect_refusal(&request, OT_USAGE, "graph: tp=3 does not divide intermediate_size=40",
                 "tp degrees that work: 1, 2");
  request = split_request(&gpt2, OT_MODE_TRAIN, (ot_split){.tp = 2, .cp = 1});
  request.sequence_length = 5;
  request.micro_batch_size = 3;
  expect_refusal(&request, OT_USAGE,
                 "graph: tp=2 does not divide the 15 tokens of a micro-batch (micro_batch_size=3 x "
                 "sequence_length=5 / cp=1)",
                 "tp degrees that work: 1");
}

// Both norms of a row share one reduction over the ranks, forward and backward.
static void norms_of_rows_that_are_cut_are_summed_over_the_ranks(void **state) {
  (void)state;
  const ot_model olmo2 = split_olmo2(4, 2);
  for (int tp = 1; tp <= 4; tp *= 2) {
    const ot_graph graph = split_graph(&olmo2, OT_MODE_TRAIN, (ot_split){.tp = tp}, &arena);
    const ot_program *const layer = layer_of(&graph);
    const int sums = tp > 1;
    assert_int_equal(count_ops(layer, OT_OP_ALL_REDUCE, OT_PART_FORWARD), sums);
    assert_int_equal(count_ops(layer, OT_OP_ALL_REDUCE, OT_PART_INPUT), sums);
    assert_int_equal(count_ops(layer, OT_OP_HEAD_NORM, OT_PART_FORWARD), 1);
    const ot_parameter *const q = ot_graph_parameter(&graph, "layers.0.attention.q_norm.weight");
    const ot_parameter *const k = ot_graph_parameter(&graph, "layers.0.attention.k_norm.weight");
    assert_int_equal(q->rows, 4 / tp * olmo2.head_dim);
    assert_int_equal(k->rows, (tp > 2 ? 1 : 2 / tp) * olmo2.head_dim);
    assert_int_equal(k->parts[0].sum_group, tp > 2 ? (int)OT_GROUP_KV_SUM : -1);
  }
  const ot_graph pieces = split_graph(&olmo2, OT_MODE_TRAIN, (ot_split){.cp = 2}, &arena);
  assert_int_equal(count_ops(layer_of(&pieces), OT_OP_ALL_REDUCE, OT_PART_FORWARD), 0);
}

static void degrees_of_cp_that_do_not_fit_are_refused(void **state) {
  (void)state;
  const ot_model model = split_llama(8, 2);
  ot_graph_request request = split_request(&model, OT_MODE_TRAIN, (ot_split){.cp = 16});
  expect_refusal(&request, OT_USAGE,
                 "graph: cp=16 does not shard sequence_length=16 into 32 equal blocks",
                 "cp degrees that work: 1, 2, 4, 8");
  request.split = (ot_split){.cp = 4, .context = OT_CONTEXT_ULYSSES};
  expect_refusal(
      &request, OT_USAGE,
      "graph: ulysses over cp=4 needs num_attention_heads=8 and num_key_value_heads=2 to "
      "be multiples of tp=1 x cp",
      "cp degrees that work: 1, 2");
  request.split = (ot_split){.tp = 2, .cp = 2, .context = OT_CONTEXT_ULYSSES};
  expect_refusal(
      &request, OT_USAGE,
      "graph: ulysses over cp=2 needs num_attention_heads=8 and num_key_value_heads=2 to "
      "be multiples of tp=2 x cp",
      "cp degrees that work: 1");
}

static void modes_of_one_rank_are_refused_on_several(void **state) {
  (void)state;
  const ot_model model = split_llama(4, 2);
  const ot_mode modes[] = {OT_MODE_SCORE, OT_MODE_LOGITS};
  const char *const names[] = {"score", "logits"};
  for (int i = 0; i < OT_COUNT(modes); i++) {
    ot_graph_request request = split_request(&model, modes[i], (ot_split){.tp = 2});
    request.draw_ids = request.draws = 8;  // scores without draws have shards
    expect_refusal(
        &request, OT_ENVIRONMENT,
        ot_arena_format(&arena, "graph: mode %s runs on one rank, not on tp=2 x cp=1", names[i]),
        "try tp=1 and cp=1");
  }
  ot_graph_request request = split_request(&model, OT_MODE_PREFILL, (ot_split){.cp = 2});
  expect_refusal(&request, OT_ENVIRONMENT,
                 "graph: mode prefill has no cp, and cp=2 (try cp=1, and tp)", "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_of_tp_count_every_element_once),
      cmocka_unit_test(preset_parameters_are_counted_once),
      cmocka_unit_test(latents_and_experts_are_counted_once),
      cmocka_unit_test(copies_are_reduced_over_their_holders),
      cmocka_unit_test(parameters_summed_over_tp_come_first_in_a_bucket),
      cmocka_unit_test(a_layer_has_four_collectives_forward_and_six_backward),
      cmocka_unit_test(a_ring_has_one_hop_less_than_ranks_and_gradients_one_more),
      cmocka_unit_test(hops_do_not_wait_for_the_block_before),
      cmocka_unit_test(a_ring_narrows_its_result_once),
      cmocka_unit_test(positions_are_looked_up_for_local_rows),
      cmocka_unit_test(batch_fields_hold_the_rows_of_the_rank),
      cmocka_unit_test(degrees_of_tp_that_do_not_fit_are_refused),
      cmocka_unit_test(norms_of_rows_that_are_cut_are_summed_over_the_ranks),
      cmocka_unit_test(degrees_of_cp_that_do_not_fit_are_refused),
      cmocka_unit_test(modes_of_one_rank_are_refused_on_several),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
