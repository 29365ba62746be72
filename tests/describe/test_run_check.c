// SPDX-License-Identifier: Apache-2.0
// run: alone. Invalid degrees of parallelism: each is rejected by name with valid alternatives, and
// those are indeed valid.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/run.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

// 8 heads, 4 kv heads, 12 layers, sequences of 96 tokens, 48 sequences per step, micro-batches of
// 2.
static ot_run base_run(void) {
  ot_model model = tiny_llama();
  model.num_heads = 8;
  model.num_kv_heads = 4;
  model.intermediate_size = 48;
  model.num_layers = 12;
  ot_run run = tiny_run(&model);
  run.parallel = (ot_run_parallel){.tp = 1,
                                   .pp = 1,
                                   .vpp = 1,
                                   .cp = 1,
                                   .ep = 1,
                                   .etp = 1,
                                   .dp_replicate = 1,
                                   .zero = 1,
                                   .pipeline = OT_PIPELINE_1F1B,
                                   .recompute = run.parallel.recompute,
                                   .num_recompute = 1,
                                   .reshard = run.parallel.reshard,
                                   .num_reshard = 1};
  run.batch = (ot_run_batch){.global_batch_size = 48, .micro_batch_size = 2};
  run.data.sequence_length = 96;
  run.learning_rate.decay = OT_DECAY_CONSTANT;
  run.precision = (ot_run_precision){.compute = OT_F32,
                                     .params = OT_F32,
                                     .gradients = OT_F32,
                                     .master = OT_F32,
                                     .moments = OT_F32,
                                     .reduce = OT_F32};
  return run;
}

static void accept(const ot_run *run) {
  if (ot_run_check(run) != OT_OK) fail_msg("refused: %s", ot_fail_message());
}

static void accept_ranks(const ot_run *run, int ranks) {
  if (ot_run_check_ranks(run, ranks) != OT_OK) fail_msg("refused: %s", ot_fail_message());
}

static void refuse(const ot_run *run, const char *part, const char *other) {
  assert_int_equal(ot_run_check(run), OT_USAGE);
  assert_message_has(part);
  assert_message_has(other);
}

static void the_run_of_these_tests_is_accepted(void **state) {
  (void)state;
  const ot_run run = base_run();
  accept(&run);
  accept_ranks(&run, 1);
  accept_ranks(&run, 24);
}

// ---- tp ----

static void tp_must_divide_heads_and_the_mlp(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.tp = 3;
  refuse(&run, "tp=3 does not divide num_attention_heads=8", "(try tp=2 or tp=4)");
  run.parallel.tp = 1 << 20;
  refuse(&run, "tp=1048576", "(try tp=8)");
  run.model.intermediate_size = 36;
  run.parallel.tp = 8;
  refuse(&run, "tp=8 does not divide intermediate_size=36", "(try tp=4)");
  run.parallel.tp = 4;
  accept(&run);
}

static void tp_beyond_the_kv_heads_must_be_a_multiple_of_them(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.tp = 8;
  accept(&run);
  run.model.num_heads = 12;
  run.model.num_kv_heads = 3;
  run.parallel.tp = 4;
  refuse(&run, "tp=4 neither divides num_key_value_heads=3", "(try tp=3 or tp=6)");
  run.parallel.tp = 2;
  refuse(&run, "tp=2 neither divides num_key_value_heads=3", "(try tp=1 or tp=3)");
  run.parallel.tp = 6;
  accept(&run);
}

static void tp_must_divide_the_rows_of_a_micro_batch(void **state) {
  (void)state;
  ot_run run = base_run();
  run.batch.micro_batch_size = 1;
  run.data.sequence_length = 100;
  run.parallel.tp = 8;
  refuse(&run, "tp=8 does not divide the tokens",
         "micro_batch_size=1 x sequence_length=100 / cp=1");
  assert_message_has("(try tp=4)");
  run.batch.micro_batch_size = 2;
  accept(&run);
  run.parallel.cp = 2;
  refuse(&run, "/ cp=2", "(try tp=4)");
}

// ---- cp ----

static void ring_needs_two_pieces_a_rank(void **state) {
  (void)state;
  ot_run run = base_run();
  run.data.sequence_length = 100;
  run.parallel.cp = 4;
  refuse(&run, "cp=4 with context=ring needs data.sequence_length to be a multiple of 8; it is 100",
         "(try cp=2 or cp=5)");
  run.parallel.cp = 512;
  refuse(&run, "cp=512 with context=ring; allowed: up to 256", "(try cp=256)");
  run.parallel.cp = 5;
  accept(&run);
  run.parallel.cp = 4;
  run.parallel.context = OT_CONTEXT_ULYSSES;
  accept(&run);
}

static void ulysses_must_divide_the_heads_of_a_rank(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.context = OT_CONTEXT_ULYSSES;
  run.parallel.cp = 8;
  refuse(&run,
         "cp=8 with context=ulysses must divide the heads of a rank, 8 of num_attention_heads "
         "and 4 of num_key_value_heads with tp=1",
         "(try cp=4)");
  run.parallel.cp = 4;
  accept(&run);
  run.parallel.tp = 2;
  refuse(&run, "4 of num_attention_heads and 2 of num_key_value_heads with tp=2", "(try cp=2)");
  run.parallel.tp = 8;
  run.parallel.cp = 2;
  refuse(&run, "1 of num_key_value_heads with tp=8", "(try cp=1)");
  run.parallel.cp = 5;
  run.parallel.tp = 1;
  refuse(&run, "cp=5 with context=ulysses needs data.sequence_length to be a multiple of 5",
         "(try cp=4)");
}

// ---- pp ----

static void stages_cannot_outnumber_layers(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.pp = 13;
  refuse(&run, "pp=13 x vpp=1 is more than num_hidden_layers=12", "(try pp=12)");
  run.parallel.pipeline = OT_PIPELINE_INTERLEAVED;
  run.parallel.pp = 4;
  run.parallel.vpp = 4;
  refuse(&run, "pp=4 x vpp=4 is more than num_hidden_layers=12", "(try pp=3 or vpp=3)");
  run.parallel.vpp = 3;
  accept(&run);
}

static void schedules_run_their_number_of_chunks(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.pp = 2;
  run.parallel.vpp = 2;
  refuse(&run, "pipeline=1f1b with vpp=2", "vpp=1, or pipeline=interleaved");
  run.parallel.pipeline = OT_PIPELINE_INTERLEAVED;
  accept(&run);
  run.parallel.vpp = 1;
  refuse(&run, "pipeline=interleaved with vpp=1", "(try vpp=2");
  run.parallel.pipeline = OT_PIPELINE_ZB_V;
  accept(&run);
  run.parallel.vpp = 2;
  accept(&run);
  run.parallel.vpp = 3;
  refuse(&run, "pipeline=zb-v with vpp=3", "(try vpp=2)");
  run.parallel.vpp = 1;
  run.parallel.pp = 7;
  refuse(&run, "pp=7 x vpp=2 is more than num_hidden_layers=12", "(try pp=6)");
  run.parallel.pp = 1;
  for (int kind = OT_PIPELINE_GPIPE; kind < OT_PIPELINES; kind++) {
    run.parallel.pipeline = (ot_pipeline)kind;
    run.parallel.vpp = 3;
    accept(&run);
  }
}

static void schedules_are_short_enough_to_be_built(void **state) {
  (void)state;
  ot_run run = base_run();
  run.batch.micro_batch_size = 1;
  run.parallel.pp = 2;
  run.batch.global_batch_size = 1 << 19;
  accept_ranks(&run, 2);
  run.batch.global_batch_size = (1 << 19) + 1;
  assert_int_equal(ot_run_check_ranks(&run, 2), OT_USAGE);
  assert_message_has(
      "pp=2 x vpp=1 x 524289 micro-batches is a pipeline schedule of 1048578 passes");
  accept_ranks(&run, 6);
  run.parallel.pp = 1;
  accept_ranks(&run, 1);
}

static void a_file_of_actions_may_run_any_chunks(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.pp = 2;
  run.parallel.vpp = 3;
  run.parallel.order_csv = "order.csv";
  accept(&run);
  accept_ranks(&run, 2);
}

// ---- dp, experts, muon ----

static void dp_must_hold_whole_replicas(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.dp = 8;
  run.parallel.dp_replicate = 3;
  refuse(&run, "dp_replicate=3 does not divide dp=8", "(try dp_replicate=2 or dp_replicate=4)");
}

static void a_step_is_whole_micro_batches_of_every_rank(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.dp = 5;
  refuse(&run, "batch: global_batch_size=48 is not a multiple of micro_batch_size=2 x dp=5",
         "(try 40 or 50)");
  run.parallel.dp = 0;
  accept(&run);
  assert_int_equal(ot_run_check_ranks(&run, 5), OT_USAGE);
  assert_message_has("x dp=5 (try 40 or 50)");
  assert_int_equal(ot_run_check_ranks(&run, 32), OT_USAGE);
  assert_message_has("x dp=32 (try 64)");
  run.parallel.tp = 2;
  run.parallel.cp = 2;
  accept_ranks(&run, 16);
  ot_batch_ramp ramp[] = {{.from_step = 5, .from_tokens = -1, .global_batch_size = 56},
                          {.from_step = 9, .from_tokens = -1, .global_batch_size = 60}};
  run.batch.ramp = ramp;
  run.batch.num_ramp = 2;
  accept(&run);
  assert_int_equal(ot_run_check_ranks(&run, 16), OT_USAGE);
  assert_message_has(
      "batch.ramp.1: global_batch_size=60 is not a multiple of micro_batch_size=2 x "
      "dp=4 (try 56 or 64)");
  ramp[1].global_batch_size = 64;
  accept_ranks(&run, 16);
}

static void a_step_has_the_micro_batches_of_its_schedule(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.pp = 4;
  run.parallel.vpp = 2;
  run.parallel.pipeline = OT_PIPELINE_INTERLEAVED;
  accept_ranks(&run, 4);
  run.batch.global_batch_size = 26;
  accept(&run);
  assert_int_equal(ot_run_check_ranks(&run, 4), OT_USAGE);
  assert_message_has("pipeline=interleaved on pp=4 stages does not support 13 micro-batches");
  assert_non_null(strstr(ot_fail_hint_text(), "12 and 15 micro-batches"));
  run.parallel.dp = 1;
  assert_int_equal(ot_run_check(&run), OT_USAGE);
  run.parallel.pipeline = OT_PIPELINE_ZB_V;
  accept_ranks(&run, 4);
}

static void ranks_are_the_product_of_the_degrees(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.tp = 2;
  run.parallel.pp = 3;
  assert_int_equal(ot_run_check_ranks(&run, 16), OT_RANKS);
  assert_message_has("16 ranks are not a multiple of pp=3 x cp=1 x tp=2");
  assert_string_equal(ot_fail_hint_text(), "--ranks 12 or 18, or mpirun -n with as many");
  run.parallel.dp = 4;
  assert_int_equal(ot_run_check_ranks(&run, 12), OT_RANKS);
  assert_message_has("is 24 ranks, but there are 12");
  accept_ranks(&run, 24);
}

static void dense_models_have_no_experts_to_split(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.ep = 2;
  refuse(&run, "ep=2, but a llama model has no experts", "(try ep=1)");
  run.parallel.ep = 1;
  run.parallel.etp = 2;
  refuse(&run, "etp=2, but a llama model has no experts", "(try etp=1)");
}

static void experts_are_split_by_what_divides_them(void **state) {
  (void)state;
  ot_run run = base_run();
  run.model.family = OT_FAMILY_MIXTRAL;
  run.model.model_type = "mixtral";
  run.model.moe = (ot_moe){.num_experts = 6,
                           .experts_per_token = 2,
                           .expert_size = 20,
                           .scale = 1,
                           .num_groups = 1,
                           .groups_per_token = 1,
                           .capacity_factor = 1};
  run.parallel.ep = 4;
  refuse(&run, "ep=4 does not divide the 6 experts", "(try ep=3 or ep=6)");
  run.parallel.ep = 3;
  run.parallel.etp = 3;
  refuse(&run, "etp=3 does not divide the width of an expert, 20", "(try etp=2 or etp=4)");
  run.parallel.etp = 2;
  accept_ranks(&run, 6);
  run.optimizer.name = OT_OPTIMIZER_MUON;
  assert_int_equal(ot_run_check(&run), OT_ENVIRONMENT);
  assert_message_has("name=muon with etp=2");
}

static void muon_needs_whole_matrices(void **state) {
  (void)state;
  ot_run run = base_run();
  run.optimizer.name = OT_OPTIMIZER_MUON;
  accept_ranks(&run, 1);
  run.parallel.tp = 2;
  assert_int_equal(ot_run_check(&run), OT_ENVIRONMENT);
  assert_message_has("name=muon with tp=2");
  assert_message_has("try tp=1");
  run.parallel.tp = 1;
  assert_int_equal(ot_run_check_ranks(&run, 4), OT_ENVIRONMENT);
  assert_message_has("name=muon with zero=1 over dp_shard=4");
  assert_message_has("try zero=0");
  run.parallel.dp = 4;
  assert_int_equal(ot_run_check(&run), OT_ENVIRONMENT);
  run.parallel.zero = 0;
  accept(&run);
  accept_ranks(&run, 4);
}

static void recompute_is_one_word_or_one_per_layer(void **state) {
  (void)state;
  ot_run run = base_run();
  run.parallel.num_recompute = 5;
  refuse(&run, "recompute has 5 entries", "12 layers");
}

static void reshard_is_one_word_or_one_per_block(void **state) {
  (void)state;
  bool blocks[14] = {[3] = true, [13] = true};
  ot_run run = base_run();
  run.parallel.reshard = blocks;
  run.parallel.num_reshard = 14;
  accept(&run);
  for (int i = 0; i < 14; i++) assert_int_equal(ot_run_reshard(&run, i), i == 3 || i == 13);
  run.parallel.num_reshard = 12;
  refuse(&run, "reshard has 12 entries", "14 blocks (embedding, 12 layers, head)");
  run.parallel.num_reshard = 0;
  refuse(&run, "reshard has 0 entries", "one, or one for each");
}

// ---- copies in memory ----

static void copies_in_memory_need_an_absolute_path(void **state) {
  (void)state;
  ot_run run = base_run();
  run.checkpoint = (ot_run_checkpoint){.memory = 10, .memory_path = "/dev/shm"};
  accept(&run);
  run.checkpoint.memory_path = "tmp/copies";
  refuse(&run, "checkpoint.memory_path=tmp/copies is not an absolute path", "(try /dev/shm)");
  run.checkpoint.memory_path = "";
  refuse(&run, "checkpoint.memory_path= is not an absolute path", "(try /dev/shm)");
  run.checkpoint.memory = 0;
  accept(&run);
}

// ---- the order of checks ----

static void degrees_that_do_not_fit_hide_no_wrong_value(void **state) {
  (void)state;
  ot_optimizer_group group = {.pattern = "", .lr_factor = 1};
  ot_batch_ramp entry = {.from_step = -1, .from_tokens = -1, .global_batch_size = 7};
  ot_run run = base_run(), wrong;
  run.parallel.tp = 5;
  run.batch.global_batch_size = 47;
  wrong = run;
  wrong.optimizer.groups = &group;
  wrong.optimizer.num_groups = 1;
  refuse(&wrong, "optimizer.groups.0: pattern is empty", "");
  wrong = run;
  wrong.checkpoint = (ot_run_checkpoint){.memory = 10, .memory_path = "copies"};
  refuse(&wrong, "checkpoint.memory_path=copies", "");
  wrong = run;
  wrong.batch.ramp = &entry;
  wrong.batch.num_ramp = 1;
  refuse(&wrong, "batch.ramp.0: give exactly one of", "");
  wrong = run;
  wrong.precision.moments = OT_F64;
  refuse(&wrong, "precision: moments=fp64", "");
  refuse(&run, "micro_batch_size=2 does not divide global_batch_size=47", "");
}

static void mup_names_the_base_that_does_not_fit(void **state) {
  (void)state;
  ot_run run = base_run();
  ot_parametrization *const p = &run.parametrization;
  *p = (ot_parametrization){.name = OT_PARAMETRIZATION_MUP, .depth_alpha = 1};
  refuse(&run, "name=mup requires base_hidden_size", "mup");
  p->base_hidden_size = 16;
  accept(&run);
  p->base_kv_lora_rank = 4;
  refuse(&run, "base_kv_lora_rank=4", "(try null)");
  p->base_kv_lora_rank = 0;
  p->base_layers = 6;
  p->base_head_dim = 2;
  accept(&run);
  run.model.family = OT_FAMILY_GEMMA2;
  refuse(&run, "base_head_dim=2", "query_pre_attn_scalar");
  run.model.family = OT_FAMILY_LLAMA;
  run.model.residuals = (ot_attention_residuals){.block_size = 2, .sublayers = 24};
  for (int i = 0; i < 12; i++) run.model.residuals.place[i] = 2 * i;
  refuse(&run, "base_layers=6", "attention_residuals");
  p->name = OT_PARAMETRIZATION_STANDARD;
  accept(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_run_of_these_tests_is_accepted),
      cmocka_unit_test(tp_must_divide_heads_and_the_mlp),
      cmocka_unit_test(tp_beyond_the_kv_heads_must_be_a_multiple_of_them),
      cmocka_unit_test(tp_must_divide_the_rows_of_a_micro_batch),
      cmocka_unit_test(ring_needs_two_pieces_a_rank),
      cmocka_unit_test(ulysses_must_divide_the_heads_of_a_rank),
      cmocka_unit_test(stages_cannot_outnumber_layers),
      cmocka_unit_test(schedules_run_their_number_of_chunks),
      cmocka_unit_test(schedules_are_short_enough_to_be_built),
      cmocka_unit_test(a_file_of_actions_may_run_any_chunks),
      cmocka_unit_test(dp_must_hold_whole_replicas),
      cmocka_unit_test(a_step_is_whole_micro_batches_of_every_rank),
      cmocka_unit_test(a_step_has_the_micro_batches_of_its_schedule),
      cmocka_unit_test(ranks_are_the_product_of_the_degrees),
      cmocka_unit_test(dense_models_have_no_experts_to_split),
      cmocka_unit_test(experts_are_split_by_what_divides_them),
      cmocka_unit_test(muon_needs_whole_matrices),
      cmocka_unit_test(recompute_is_one_word_or_one_per_layer),
      cmocka_unit_test(reshard_is_one_word_or_one_per_block),
      cmocka_unit_test(copies_in_memory_need_an_absolute_path),
      cmocka_unit_test(degrees_that_do_not_fit_hide_no_wrong_value),
      cmocka_unit_test(mup_names_the_base_that_does_not_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
