// SPDX-License-Identifier: Apache-2.0
// run: any machine. What each policy saves and recomputes: by name for a llama layer, by rule for
// every program of the tiny models. test_bits checks that recompute changes no bit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "graph/recompute.h"
#include "ops/catalog.h"
#include "support/split_model.h"
#include "support/tiny_plan.h"

enum {
  NUM_MODELS = 4,
  POLICIES = 3,
  ALL = POLICIES + OT_RECOMPUTE_MODULES + 1,  // and each module alone, and all modules
};

static ot_model model_of(int index) {
  if (index == 0) return tiny_gpt2();
  if (index == 1) return tiny_llama();
  if (index == 2) return tiny_gemma();
  ot_model model = tiny_gpt2();
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0.1;
  return model;
}

// A program and the set of each policy.
typedef struct subject {
  const ot_program *program;
  bool is_layer;
  ot_recompute_set sets[ALL];
} subject;

static ot_recompute_policy policy_of(int index) {
  if (index < POLICIES) return (ot_recompute_policy){.mode = (ot_recompute)index};
  const int module = index - POLICIES;
  return (ot_recompute_policy){.mode = OT_RECOMPUTE_SELECTIVE,
                               .modules = module < OT_RECOMPUTE_MODULES
                                              ? OT_MODULE_SET(module)
                                              : OT_MODULE_SET(OT_RECOMPUTE_MODULES) - 1};
}

typedef void (*subject_visitor)(const subject *s);

static void visit_graph(const ot_graph *graph, ot_arena *arena, subject_visitor visit) {
  for (int i = 0; i < graph->num_blocks; i++) {
    subject s = {.program = &graph->programs[graph->blocks[i].program],
                 .is_layer = graph->blocks[i].layer >= 0};
    for (int policy = 0; policy < ALL; policy++) {
      ot_recompute_build(s.program, policy_of(policy), arena, &s.sets[policy]);
    }
    visit(&s);
  }
}

static void for_each_program(subject_visitor visit) {
  for (int m = 0; m < NUM_MODELS; m++) {
    const ot_model model = model_of(m);
    tiny_plan plan;
    tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
    visit_graph(&plan.graphs[OT_MODE_TRAIN], &plan.arena, visit);
    tiny_plan_destroy(&plan);
  }
}

static void for_each_split_program(subject_visitor visit) {
  const ot_model models[] = {split_gpt2(4), split_llama(4, 4), split_gemma(4, 4)};
  const ot_split splits[] = {{.tp = 2},
                             {.cp = 4, .context = OT_CONTEXT_RING},
                             {.cp = 2, .context = OT_CONTEXT_ULYSSES},
                             {.tp = 2, .cp = 2, .context = OT_CONTEXT_RING}};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int m = 0; m < OT_COUNT(models); m++) {
    for (int i = 0; i < OT_COUNT(splits); i++) {
      const ot_graph graph = split_graph(&models[m], OT_MODE_TRAIN, splits[i], &arena);
      visit_graph(&graph, &arena, visit);
    }
  }
  ot_heap_release(&heap);
}

static int64_t kept_bytes(const ot_program *program, const ot_recompute_set *set) {
  int64_t bytes = 0;
  for (int i = 0; i < program->num_values; i++) {
    if (set->kept[i]) bytes += ot_type_bytes(&program->values[i].type);
  }
  return bytes;
}

// ---- by name ----

// True when `name` is one of the words of `list`.
static bool is_listed(const char *list, const char *name) {
  const int64_t length = ot_text_length(name);
  for (const char *at = list; (at = ot_text_find(at, name)) != NULL; at++) {
    const bool starts = at == list || at[-1] == ' ';
    if (starts && (at[length] == ' ' || at[length] == 0)) return true;
  }
  return false;
}

static int count_words(const char *list) {
  int words = *list ? 1 : 0;
  for (; *list; list++) words += *list == ' ';
  return words;
}

static void expect_kept(const ot_program *program, const ot_recompute_set *set, const char *list) {
  int kept = 0;
  for (int i = 0; i < program->num_values; i++) {
    const char *const name = program->values[i].name;
    const bool listed = program->values[i].kind == OT_VALUE_ACTIVATION && is_listed(list, name);
    if (set->kept[i] != listed) fail_msg("%s: kept %d, listed %d", name, set->kept[i], listed);
    kept += set->kept[i];
  }
  assert_int_equal(kept, count_words(list));
}

static void expect_emitted(const ot_program *program, const ot_recompute_set *set,
                           const char *list) {
  for (int i = 0; i < program->num_ops; i++) {
    if (program->ops[i].part != OT_PART_FORWARD) continue;
    const char *const name = program->values[program->ops[i].out[0]].name;
    const bool listed = is_listed(list, name);
    if (set->emitted[i] != listed) {
      fail_msg("%s: emitted %d, listed %d", name, set->emitted[i], listed);
    }
  }
  assert_int_equal(set->num_emitted, count_words(list));
}

// `list`: the outputs of forward ops that gradient ops write, in the order of these.
static void expect_written_again(const ot_recompute_set *set, const char *list) {
  const ot_program *const program = set->program;
  char found[256] = "";
  for (int i = 0; i < program->num_ops; i++) {
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      const int value = program->ops[i].out[k];
      if (program->ops[i].part == OT_PART_FORWARD || value < 0) continue;
      if (program->values[value].kind != OT_VALUE_ACTIVATION) continue;
      const int64_t length = ot_text_length(found);
      ot_text_format(found + length, (int64_t)sizeof found - length, "%s%s", length ? " " : "",
                     program->values[value].name);
    }
  }
  assert_string_equal(found, list);
}

// GEMMs need their input, norms theirs and 1/rms, attention q|k|v after rotation, its output and
// log-sum-exp, the gated activation both halves.
static void a_llama_layer_keeps_what_its_gradients_read(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  const ot_graph *const graph = &plan.graphs[OT_MODE_TRAIN];
  const ot_program *const layer = &graph->programs[graph->blocks[1].program];
  ot_recompute_set set;
  ot_recompute_build(layer, (ot_recompute_policy){.mode = OT_RECOMPUTE_NONE}, &plan.arena, &set);
  expect_kept(layer, &set,
              "attention_norm.out attention_norm.out.1 attention.rotated attention.heads "
              "attention.heads.1 attention.output.out mlp_norm.out mlp_norm.out.1 mlp.gate_up.out "
              "mlp.active");
  expect_emitted(layer, &set, "");

  // Gradient ops write again what weight gradients read; they need the statistics of the norms.
  ot_recompute_build(layer, (ot_recompute_policy){.mode = OT_RECOMPUTE_SELECTIVE}, &plan.arena,
                     &set);
  expect_kept(layer, &set,
              "attention_norm.out.1 attention.rotated attention.heads attention.heads.1 "
              "attention.output.out mlp_norm.out.1 mlp.gate_up.out");
  expect_emitted(layer, &set, "");
  expect_written_again(&set, "mlp.active mlp_norm.out attention_norm.out");

  // All of the forward but its last GEMM, which no gradient reads, and the input of that.
  ot_recompute_build(layer, (ot_recompute_policy){.mode = OT_RECOMPUTE_FULL}, &plan.arena, &set);
  expect_kept(layer, &set, "");
  expect_emitted(layer, &set,
                 "attention_norm.out attention.qkv.out attention.rotated attention.heads "
                 "attention.output.out mlp_norm.out mlp.gate_up.out");
  expect_written_again(&set, "mlp.active");
  tiny_plan_destroy(&plan);
}

// Values on the stack are available in the backward: neither they nor the layer's contribution are
// saved or recomputed, and their mixes are cheap.
static void the_stack_is_available_under_every_policy(void **state) {
  (void)state;
  tiny_plan plan;
  ot_model model = tiny_llama();
  model.residuals = (ot_attention_residuals){1, 6, {0, 2, 4}};
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  const ot_graph *const graph = &plan.graphs[OT_MODE_TRAIN];
  const ot_program *const layer = &graph->programs[graph->blocks[2].program];
  assert_int_equal(layer->num_pushed, 2);
  assert_int_equal(ot_program_stack_size(layer), 3);
  assert_true(layer->input < 0 && layer->output < 0);
  ot_recompute_set set;
  ot_recompute_build(layer, (ot_recompute_policy){.mode = OT_RECOMPUTE_NONE}, &plan.arena, &set);
  expect_kept(layer, &set,
              "attention_residual.mix attention_residual.mix.1 attention_residual.mix.2 "
              "attention_norm.out attention_norm.out.1 attention.rotated attention.heads "
              "attention.heads.1 mlp_residual.mix mlp_residual.mix.1 mlp_residual.mix.2 "
              "mlp_norm.out mlp_norm.out.1 mlp.gate_up.out mlp.active");
  ot_recompute_build(layer, (ot_recompute_policy){.mode = OT_RECOMPUTE_SELECTIVE}, &plan.arena,
                     &set);
  expect_kept(layer, &set,
              "attention_norm.out.1 attention.rotated attention.heads attention.heads.1 "
              "mlp_norm.out.1 mlp.gate_up.out");
  expect_emitted(layer, &set, "attention_residual.mix mlp_residual.mix");
  expect_written_again(&set, "mlp.active mlp_norm.out attention_norm.out");
  ot_recompute_build(layer, (ot_recompute_policy){.mode = OT_RECOMPUTE_FULL}, &plan.arena, &set);
  expect_kept(layer, &set, "");
  expect_emitted(layer, &set,
                 "attention_residual.mix attention_norm.out attention.qkv.out attention.rotated "
                 "attention.heads mlp_residual.mix mlp_norm.out mlp.gate_up.out");
  tiny_plan_destroy(&plan);
}

// The layer of rank 0 of a sharded llama, and its set.
static const ot_program *split_layer(ot_split split, ot_recompute policy, ot_arena *arena,
                                     ot_recompute_set *set) {
  ot_model *const model = ot_arena_take(arena, sizeof *model);
  *model = split_llama(4, 2);
  const ot_graph graph = split_graph(model, OT_MODE_TRAIN, split, arena);
  const ot_program *const layer = &graph.programs[graph.blocks[1].program];
  ot_recompute_build(layer, (ot_recompute_policy){.mode = policy}, arena, set);
  return layer;
}

// Of gathered tp values only the local tokens are saved; weight gradients gather again. So that
// this starts early, norms run again before the gradients.
static void gathered_tokens_are_not_saved(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_recompute_set set;
  const ot_split split = {.tp = 2};
  const ot_program *layer = split_layer(split, OT_RECOMPUTE_NONE, &arena, &set);
  expect_kept(layer, &set,
              "attention_norm.out attention_norm.out.1 attention.rotated attention.heads "
              "attention.heads.1 attention.output.out mlp_norm.out mlp_norm.out.1 mlp.gate_up.out "
              "mlp.active");
  expect_emitted(layer, &set, "");
  layer = split_layer(split, OT_RECOMPUTE_SELECTIVE, &arena, &set);
  expect_emitted(layer, &set, "attention_norm.out mlp_norm.out");
  expect_written_again(&set, "mlp.active");
  layer = split_layer(split, OT_RECOMPUTE_FULL, &arena, &set);
  expect_kept(layer, &set, "");
  expect_emitted(layer, &set,
                 "attention_norm.out attention.qkv.in attention.qkv.out attention.rotated "
                 "attention.heads attention.output.part attention.output.rows attention.output.out "
                 "mlp_norm.out mlp.gate_up.in mlp.gate_up.out");
  ot_heap_release(&heap);
}

// The gradient always sends keys around the ring again; the forward only under full recompute.
static void a_ring_is_recomputed_under_full_recompute_only(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_recompute_set set;
  const ot_split split = {.cp = 2, .context = OT_CONTEXT_RING};
  const ot_program *layer = split_layer(split, OT_RECOMPUTE_NONE, &arena, &set);
  expect_kept(layer, &set,
              "attention_norm.out attention_norm.out.1 attention.rotated attention.heads "
              "attention.heads.1 attention.output.out mlp_norm.out mlp_norm.out.1 mlp.gate_up.out "
              "mlp.active");
  layer = split_layer(split, OT_RECOMPUTE_SELECTIVE, &arena, &set);
  expect_emitted(layer, &set, "");
  expect_written_again(&set, "mlp.active mlp_norm.out attention_norm.out");
  layer = split_layer(split, OT_RECOMPUTE_FULL, &arena, &set);
  expect_kept(layer, &set, "");
  expect_emitted(layer, &set,
                 "attention_norm.out attention.qkv.out attention.rotated attention.heads.keys.0 "
                 "attention.heads.keys.1 attention.heads.block.0 attention.heads "
                 "attention.output.out mlp_norm.out mlp.gate_up.out");
  ot_heap_release(&heap);
}

// ---- by module ----

typedef struct module_case {
  ot_module_set modules;
  const char *kept, *emitted;  // without gradient ops that write outputs again
} module_case;

static void expect_modules(const ot_program *layer, const module_case *cases, int count,
                           ot_arena *arena) {
  for (int i = 0; i < count; i++) {
    ot_recompute_set set;
    const ot_recompute_policy policy = {OT_RECOMPUTE_SELECTIVE, cases[i].modules, true};
    ot_recompute_build(layer, policy, arena, &set);
    expect_kept(layer, &set, cases[i].kept);
    expect_emitted(layer, &set, cases[i].emitted);
  }
}

#define ONLY(module) OT_MODULE_SET(OT_MODULE_##module)

static void a_module_runs_again_from_its_inputs(void **state) {
  (void)state;
  static const module_case cases[] = {
      {ONLY(LAYERNORM),
       "attention.rotated attention.heads attention.heads.1 attention.output.out mlp.gate_up.out "
       "mlp.active",
       "attention_norm.out mlp_norm.out"},
      {ONLY(MLP),
       "attention_norm.out attention_norm.out.1 attention.rotated attention.heads "
       "attention.heads.1 attention.output.out mlp_norm.out mlp_norm.out.1",
       "mlp.gate_up.out mlp.active"},
      {ONLY(CORE_ATTN),
       "attention_norm.out attention_norm.out.1 attention.rotated attention.output.out "
       "mlp_norm.out mlp_norm.out.1 mlp.gate_up.out mlp.active",
       "attention.heads"},
      {ONLY(CORE_ATTN) | ONLY(LAYERNORM) | ONLY(MLP), "attention.rotated attention.output.out",
       "attention_norm.out attention.heads mlp_norm.out mlp.gate_up.out mlp.active"},
  };
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  const ot_graph *const graph = &plan.graphs[OT_MODE_TRAIN];
  const ot_program *const layer = &graph->programs[graph->blocks[1].program];
  expect_modules(layer, cases, OT_COUNT(cases), &plan.arena);
  tiny_plan_destroy(&plan);
}

// Routing is kept under every policy. Experts read sorted rows, which `moe` alone makes again.
static void modules_of_experts_run_again(void **state) {
  (void)state;
  static const char *const active = "experts.active", *const rows = "experts.rows";
  const ot_model dense = tiny_llama(), model = tiny_experts(&dense, false);
  tiny_plan plan;
  tiny_plan_create(&model, &(tiny_request){.micro_batches = 1}, &plan);
  const ot_graph *const graph = &plan.graphs[OT_MODE_TRAIN];
  const ot_program *const layer = &graph->programs[graph->blocks[1].program];
  static const struct {
    ot_recompute_module module;
    const char *emitted, *kept, *dropped;
  } cases[] = {
      {OT_MODULE_MOE_ACT, active, "experts.wide", active},
      {OT_MODULE_SHARED_EXPERTS, "shared.gate_up.out shared.active", "experts.active",
       "shared.active"},
      {OT_MODULE_MLP, "", active, ""},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_recompute_set set;
    const ot_recompute_policy policy = {OT_RECOMPUTE_SELECTIVE, OT_MODULE_SET(cases[i].module),
                                        true};
    ot_recompute_build(layer, policy, &plan.arena, &set);
    expect_emitted(layer, &set, cases[i].emitted);
    for (int v = 0; v < layer->num_values; v++) {
      if (is_listed(cases[i].kept, layer->values[v].name)) assert_true(set.kept[v]);
      if (is_listed(cases[i].dropped, layer->values[v].name)) assert_false(set.kept[v]);
    }
  }
  ot_recompute_set set;
  ot_recompute_build(layer, policy_of(POLICIES + OT_MODULE_MOE), &plan.arena, &set);
  for (int v = 0; v < layer->num_values; v++) {
    const char *const name = layer->values[v].name;
    if (is_listed(rows, name)) assert_false(set.kept[v]);
    if (is_listed("router.gates router.place mlp_norm.out", name)) assert_true(set.kept[v]);
  }
  tiny_plan_destroy(&plan);
}

// ---- by rule ----

static bool is_activation(const ot_program *program, int value) {
  return value >= 0 && program->values[value].kind == OT_VALUE_ACTIVATION;
}

static void expect_inputs(const ot_program *program, const ot_op *op, const bool *there) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (!is_activation(program, op->in[i]) || there[op->in[i]]) continue;
    fail_msg("%s reads %s, which is neither saved nor recomputed", ot_op_info_of(op->kind)->name,
             program->values[op->in[i]].name);
  }
}

enum { MAX_VALUES = 256 };

// Runs the recomputed ops and then the backward on the set of available values.
static void expect_enough(const subject *s) {
  assert_true(s->program->num_values <= MAX_VALUES);
  for (int policy = 0; policy < ALL; policy++) {
    const ot_program *const program = s->sets[policy].program;
    bool there[MAX_VALUES] = {false};
    for (int i = 0; i < program->num_values; i++) there[i] = s->sets[policy].kept[i];
    for (int i = 0; i < program->num_ops; i++) {
      const ot_op *const op = &program->ops[i];
      const bool forward = op->part == OT_PART_FORWARD;
      if (forward && !s->sets[policy].emitted[i]) continue;
      expect_inputs(program, op, there);
      for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
        if (op->out[k] >= 0) there[op->out[k]] = true;
      }
    }
  }
}

static void the_backward_finds_every_value_it_reads(void **state) {
  (void)state;
  for_each_program(expect_enough);
  for_each_split_program(expect_enough);
}

// True if an op after the forward reads `value`.
static bool is_read(const ot_recompute_set *set, int value) {
  const ot_program *const program = set->program;
  for (int i = 0; i < program->num_ops; i++) {
    if (program->ops[i].part == OT_PART_FORWARD && !set->emitted[i]) continue;
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (program->ops[i].in[k] == value) return true;
    }
  }
  return false;
}

static void expect_no_waste(const subject *s) {
  const ot_program *const program = s->program;
  for (int policy = 0; policy < ALL; policy++) {
    const ot_recompute_set *const set = &s->sets[policy];
    for (int i = 0; i < program->num_values; i++) {
      if (set->kept[i] && !is_read(set, i)) {
        fail_msg("policy %d saves %s without a reader", policy, program->values[i].name);
      }
    }
    for (int i = 0; i < program->num_ops; i++) {
      bool wanted = !set->emitted[i];
      for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
        const int value = program->ops[i].out[k];
        wanted = wanted || (value >= 0 && !set->kept[value] && is_read(set, value));
      }
      if (!wanted) fail_msg("policy %d recomputes op %d without a reader", policy, i);
    }
  }
}

static void nothing_is_saved_or_recomputed_without_a_reader(void **state) {
  (void)state;
  for_each_program(expect_no_waste);
  for_each_split_program(expect_no_waste);
}

static void expect_rules(const subject *s) {
  const ot_program *const program = s->program;
  const ot_recompute_set *const none = &s->sets[OT_RECOMPUTE_NONE];
  const ot_recompute_set *const selective = &s->sets[OT_RECOMPUTE_SELECTIVE];
  assert_int_equal(none->num_emitted, 0);
  for (int policy = 0; policy < POLICIES; policy++) {
    int emitted = 0;
    for (int i = 0; i < program->num_ops; i++) {
      if (!s->sets[policy].emitted[i]) continue;
      const ot_op_info *const info = ot_op_info_of(program->ops[i].kind);
      assert_int_equal(program->ops[i].part, OT_PART_FORWARD);
      assert_int_equal(info->purity, OT_PURITY_PURE);
      if (policy == OT_RECOMPUTE_SELECTIVE) {
        assert_true(info->cheap && is_read(&s->sets[policy], program->ops[i].out[0]));
      }
      emitted++;
    }
    assert_int_equal(s->sets[policy].num_emitted, emitted);
  }
  for (int i = 0; i < program->num_values; i++) {
    if (selective->kept[i]) assert_true(none->kept[i]);
  }
}

static void policies_emit_only_what_they_may(void **state) {
  (void)state;
  for_each_program(expect_rules);
}

static const ot_op *producer_of(const ot_program *program, int value) {
  for (int i = 0; i < program->num_ops; i++) {
    for (int k = 0; k < OT_MAX_OUTPUTS; k++) {
      if (program->ops[i].out[k] == value) return &program->ops[i];
    }
  }
  return NULL;
}

static void expect_only_saved_outputs(const subject *s) {
  const ot_recompute_set *const full = &s->sets[OT_RECOMPUTE_FULL];
  int kept = 0;
  for (int i = 0; i < s->program->num_values; i++) {
    if (!full->kept[i]) continue;
    assert_int_equal(ot_op_info_of(producer_of(s->program, i)->kind)->purity, OT_PURITY_SAVED);
    kept++;
  }
  const bool head = s->program->output < 0;
  assert_int_equal(kept, head ? 1 : 0);  // the gradient computed by the head's forward
}

static void full_recompute_keeps_outputs_of_saved_ops_only(void **state) {
  (void)state;
  for_each_program(expect_only_saved_outputs);
}

static void expect_less_memory(const subject *s) {
  if (!s->is_layer) return;
  const int64_t none = kept_bytes(s->program, &s->sets[OT_RECOMPUTE_NONE]);
  const int64_t selective = kept_bytes(s->program, &s->sets[OT_RECOMPUTE_SELECTIVE]);
  const int64_t full = kept_bytes(s->program, &s->sets[OT_RECOMPUTE_FULL]);
  assert_true(none > selective);
  assert_true(selective > full);
  assert_int_equal(full, 0);
}

static void layers_keep_less_from_policy_to_policy(void **state) {
  (void)state;
  for_each_program(expect_less_memory);
}

// These decisions determine the memory of the arena.
static void saved_memory_shrinks_from_policy_to_policy(void **state) {
  (void)state;
  for (int m = 0; m < NUM_MODELS; m++) {
    const ot_model model = model_of(m);
    int64_t slots[POLICIES];
    for (int policy = 0; policy < POLICIES; policy++) {
      tiny_plan plan;
      tiny_plan_create(
          &model, &(tiny_request){.recompute = (ot_recompute)policy, .micro_batches = 2}, &plan);
      slots[policy] = ot_schedule_region(&plan.schedule, "slot.layers.0")->bytes;
      tiny_plan_destroy(&plan);
    }
    assert_true(slots[OT_RECOMPUTE_NONE] > slots[OT_RECOMPUTE_SELECTIVE]);
    assert_true(slots[OT_RECOMPUTE_SELECTIVE] > slots[OT_RECOMPUTE_FULL]);
    assert_int_equal(slots[OT_RECOMPUTE_FULL], 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_llama_layer_keeps_what_its_gradients_read),
      cmocka_unit_test(a_module_runs_again_from_its_inputs),
      cmocka_unit_test(modules_of_experts_run_again),
      cmocka_unit_test(the_stack_is_available_under_every_policy),
      cmocka_unit_test(gathered_tokens_are_not_saved),
      cmocka_unit_test(a_ring_is_recomputed_under_full_recompute_only),
      cmocka_unit_test(the_backward_finds_every_value_it_reads),
      cmocka_unit_test(nothing_is_saved_or_recomputed_without_a_reader),
      cmocka_unit_test(policies_emit_only_what_they_may),
      cmocka_unit_test(full_recompute_keeps_outputs_of_saved_ops_only),
      cmocka_unit_test(layers_keep_less_from_policy_to_policy),
      cmocka_unit_test(saved_memory_shrinks_from_policy_to_policy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
