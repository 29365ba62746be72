// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Configurations of other frameworks: what is read from our own small files of each format, what is
// rejected and how, and shell scripts alone. Expected values follow the documentation of the
// framework, worked out by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/import_file.h"
#include "files/tree_file.h"
#include "software/shell.h"
#include "software/tree_toml.h"
#include "support/arena_fixture.h"
#include "support/import_fixture.h"

static ot_imported read_fixture(const char *name) {
  const char *const path =
      ot_arena_format(&arena, "%s/tests/fixtures/import/%s", OT_SOURCE_DIR, name);
  ot_imported imported;
  if (ot_import_read(path, &presets, &arena, &imported) != OT_OK) {
    fail_msg("%s: %s", ot_fail_message(), ot_fail_hint_text());
  }
  return imported;
}

static bool has_ignored(const ot_imported *imported, const char *key) {
  for (int i = 0; i < imported->num_ignored; i++) {
    if (ot_text_equal(imported->ignored[i], key)) return true;
  }
  return false;
}

// ---- Megatron-LM ----

static void reads_a_megatron_script_with_variables_arrays_and_switches(void **state) {
  (void)state;
  ot_imported imported = read_fixture("megatron_script.sh");
  assert_string_equal(imported.format, "Megatron-LM flags");
  assert_string_equal(imported.engine, "megatron-core");
  assert_string_equal(imported.precision, "fp8-fp32-gradients");
  assert_false(imported.no_sequence_parallel);
  assert_int_equal(imported.tp, 4);
  assert_int_equal(imported.pp, 2);
  assert_int_equal(imported.vpp, 4);  // 32 layers / 2 stages / 4 layers
  assert_int_equal(imported.pipeline, OT_PIPELINE_INTERLEAVED);
  assert_int_equal(imported.zero, 1);
  assert_int_equal(imported.recompute, OT_RECOMPUTE_SELECTIVE);
  assert_int_equal(imported.micro_batch_size, 1);
  assert_int_equal(imported.global_batch_size, 128 * 4 / 8);
  assert_int_equal(imported.sequence_length, 8192);
  assert_int_equal(imported.devices, 128);
  assert_int_equal(imported.model.num_layers, 32);
  // Llama 3 8B: 128256 is a multiple of 128, but not of 128 x tp 4 = 512: 128512 rows, twice.
  assert_int_equal(imported.model.vocab_size, 128512);
  assert_int_equal(ot_model_parameters(&imported.model), 8030261248 + 2LL * 256 * 4096);
  assert_non_null(imported.model_keys);
  assert_string_equal(ot_node_child(imported.model_keys, "model_type")->text, "llama");
  assert_true(has_ignored(&imported, "lr"));
  assert_true(has_ignored(&imported, "data-path"));
  assert_string_equal(note_with(&imported, "LAYERS"),
                      "line 50: whether LAYERS is set here only a shell knows; it is not");
  assert_int_equal(ot_imported_fit(&imported, 0), OT_OK);
  assert_int_equal(imported.dp, 16);
}

static void reads_a_file_of_megatron_flags(void **state) {
  (void)state;
  ot_imported imported = read_fixture("megatron_flags.txt");
  assert_string_equal(imported.engine, "megatron-2021");
  assert_string_equal(imported.precision, "fp16");
  assert_int_equal(imported.tp, 2);
  assert_int_equal(imported.zero, 0);
  assert_int_equal(imported.recompute, OT_RECOMPUTE_FULL);
  assert_string_equal(note_with(&imported, "are recomputed"),
                      "6 of 24 layers of a stage are recomputed: the cost assumes all of them");
  const ot_model *const model = &imported.model;
  assert_string_equal(model->model_type, "gpt2");
  assert_int_equal(model->vocab_size, 50432);  // 50257 to a multiple of 256
  assert_int_equal(model->intermediate_size, 4 * 2048);
  assert_true(model->tie_word_embeddings);
  assert_true(model->learned_positions);
  // Narayanan et al. 2021, eq. 2, without the padding and the biases that it neglects.
  const int64_t layer = 12LL * 2048 * 2048 + 13LL * 2048;
  assert_int_equal(ot_model_parameters(model), 24 * layer + (50432 + 2048) * 2048LL + 2 * 2048);
}

static void reads_megatron_flags_in_yaml(void **state) {
  (void)state;
  ot_imported imported = read_fixture("megatron_flags.yaml");
  assert_int_equal(imported.model.hidden_size, 768);
  assert_string_equal(imported.precision, "bf16-fp32-gradients");
  assert_int_equal(imported.global_batch_size, 0);
  assert_int_equal(imported.local_batch_size, 2);
  assert_int_equal(ot_imported_fit(&imported, 4), OT_OK);
  assert_int_equal(imported.global_batch_size, 8);
  assert_true(has_ignored(&imported, "log-interval"));
}

// A model that Megatron can build from its options and that no HF family covers.
static void plans_megatron_models_without_an_hf_family(void **state) {
  (void)state;
  const ot_imported imported = import_text(
      "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128\n"
      "--micro-batch-size 1 --vocab-size 1000 --position-embedding-type rope --squared-relu\n"
      "--untie-embeddings-and-output-weights --disable-bias-linear --kv-channels 32 --bf16\n");
  assert_null(imported.model_keys);
  assert_false(imported.model.gated_mlp);
  assert_int_equal(imported.model.norm, OT_NORM_LAYERNORM);
  assert_int_equal(imported.model.head_dim, 32);
  const int64_t layer = 4 * 256 * 128 + 2 * 256 * 1024 + 4 * 256;
  assert_int_equal(ot_model_parameters(&imported.model), 4 * layer + 2 * 1024 * 256 + 2 * 256);
  assert_string_equal(note_with(&imported, "relu"), "squared-relu is priced as relu");
}

// The flags of Mixtral 8x7B; the model is the preset except for vocabulary padding (none).
static void reads_mixtures_of_experts(void **state) {
  (void)state;
  const ot_imported imported = import_text(
      "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32\n"
      "--group-query-attention --num-query-groups 8 --seq-length 4096 --micro-batch-size 1\n"
      "--position-embedding-type rope --rotary-base 1000000 --normalization RMSNorm --swiglu\n"
      "--untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 32000 --bf16\n"
      "--attention-dropout 0 --hidden-dropout 0 --max-position-embeddings 32768\n"
      "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-aux-loss-coeff 1e-2\n"
      "--expert-model-parallel-size 8 --make-vocab-size-divisible-by 128\n");
  assert_int_equal(ot_model_parameters(&imported.model), 46702792704);  // Hugging Face's count
  assert_int_equal(imported.ep, 8);
  assert_non_null(imported.model_keys);
  assert_true(has_ignored(&imported, "moe-grouped-gemm"));
}

static void takes_the_last_of_repeated_flags(void **state) {
  (void)state;
  const ot_imported imported = import_text(
      "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads=4 \\\n"
      "  --seq-length 128 --micro-batch-size 1 --num-layers 8 --vocab-size 256 $EXTRA\n");
  assert_int_equal(imported.model.num_layers, 8);
  assert_string_equal(imported.precision, "fp32");
  assert_string_equal(note_with(&imported, "EXTRA"), "line 2: flags in $EXTRA are unknown");
}

static const char flags[] =
    "--hidden-size 64 --num-attention-heads 4\n--seq-length 128 --micro-batch-size 1\n";

static void misfits_name_file_line_and_flag(void **state) {
  (void)state;
  char text[512];
  snprintf(text, sizeof text, "%s--num-layers 0 --vocab-size 9\n", flags);
  expect_refusal(text, "num-layers: 0 is out of range; allowed: 1 to 512 (%s:3)", NULL);
  snprintf(text, sizeof text, "%s--num-layers 2 --tensor-model-paralel-size 2\n", flags);
  expect_refusal(text, "unknown key \"tensor-model-paralel-size\" (%s:3)",
                 "did you mean \"tensor-model-parallel-size\"?");
  snprintf(text, sizeof text, "%s--num-layers 2 --frobnicate 2\n", flags);
  expect_refusal(text, "unknown key \"frobnicate\" (%s:3)",
                 "remove --frobnicate, if it affects neither time nor memory of a step");
  snprintf(text, sizeof text, "%s--num-layers $LAYERS\n", flags);
  expect_refusal(text, "num-layers: \"$LAYERS\" is not a whole number; allowed: 1 to 512 (%s:3)",
                 NULL);
  snprintf(text, sizeof text, "%s--num-layers 2\n", flags);
  expect_refusal(text, "vocab-size: the flags do not give the vocabulary size (%s)",
                 "add --vocab-size N, the size of the tokenizer");
  snprintf(text, sizeof text, "%s--vocab-size 9 --bf16\n", flags);
  expect_refusal(text, "num-layers is needed (%s)", NULL);
}

// ---- torchtitan ----

static void reads_torchtitan_and_leaves_open_what_it_leaves_to_the_launcher(void **state) {
  (void)state;
  ot_imported imported = read_fixture("torchtitan.toml");
  assert_string_equal(imported.format, "torchtitan TOML");
  assert_string_equal(imported.engine, "torchtitan");
  assert_string_equal(imported.precision, "fp8");
  assert_string_equal(imported.model_name, "llama3.1-70b");
  assert_int_equal(ot_model_parameters(&imported.model), 70553706496);
  assert_int_equal(imported.tp, 8);
  assert_int_equal(imported.pp, 4);
  assert_int_equal(imported.vpp, 2);
  assert_int_equal(imported.pipeline, OT_PIPELINE_INTERLEAVED);
  assert_int_equal(imported.zero, 2);  // weights stay gathered in pipelines
  assert_int_equal(imported.recompute, OT_RECOMPUTE_FULL);
  assert_int_equal(imported.micro_batch_size, 1);  // pipeline_parallel_microbatch_size
  assert_int_equal(imported.sequence_length, 8192);
  assert_true(has_ignored(&imported, "job"));
  assert_true(has_ignored(&imported, "training.dataset"));
  assert_int_equal(ot_imported_fit(&imported, 0), OT_USAGE);
  assert_string_equal(ot_fail_hint_text(), "give --gpus N");
  assert_int_equal(ot_imported_fit(&imported, 256), OT_OK);
  assert_int_equal(imported.dp, 8);
  assert_int_equal(imported.global_batch_size, 64);
}

static void reads_torchtitan_of_2024(void **state) {
  (void)state;
  ot_imported imported = read_fixture("torchtitan_2024.toml");
  assert_string_equal(imported.model_name, "llama3.1-8b");
  assert_null(imported.precision);
  assert_int_equal(imported.cp, 2);
  assert_int_equal(imported.dp, 128);
  assert_int_equal(imported.zero, 3);
  assert_int_equal(imported.recompute, OT_RECOMPUTE_SELECTIVE);
  assert_int_equal(ot_imported_fit(&imported, 0), OT_OK);
  assert_int_equal(imported.devices, 256);
  assert_int_equal(imported.global_batch_size, 128);
  assert_int_equal(ot_imported_fit(&imported, 512), OT_USAGE);
}

#define DUALPIPE_V                                                             \
  "[model]\nflavor = \"8B\"\n[training]\n[parallelism]\n"                      \
  "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"DualPipeV\"\n" \
  "pipeline_parallel_expert_parallel_overlap = "

static void refuses_what_torchtitan_does_not_have(void **state) {
  (void)state;
  expect_refusal("[model]\nflavor = \"9B\"\n[training]\n",
                 "model.flavor: llama3 9B is unknown (%s)", NULL);
  expect_refusal("[model]\nflavor = \"8B\"\n[training]\nseqlen = 4\n",
                 "training: unknown key \"seqlen\" (%s:4:10)", "did you mean \"seq_len\"?");
  expect_refusal(
      "[model]\nflavor = \"8B\"\n[training]\n[parallelism]\n"
      "tensor_parallel_degree = 0\n",
      "parallelism.tensor_parallel_degree: 0 is out of range; allowed: 1 to 1048576 "
      "(%s:5:26)",
      NULL);
  expect_refusal(
      DUALPIPE_V "false\n",
      "parallelism.pipeline_parallel_expert_parallel_overlap: false is not supported: DualPipeV "
      "whose pairs hide no tokens is not priced; allowed: true (%s:7:45)",
      NULL);
}

static void takes_dualpipe_v_whose_pairs_hide_tokens(void **state) {
  (void)state;
  const ot_imported imported = import_text(DUALPIPE_V "true\n");
  assert_int_equal(imported.pipeline, OT_PIPELINE_DUALPIPE_V);
  assert_int_equal(imported.pp, 4);
}

static ot_status parse_toml(const char *text, ot_node **tree) {
  const ot_tree_origin origin = {.name = "t"};
  return ot_tree_parse_toml(&origin, text, ot_text_length(text), &arena, tree);
}

static void reads_toml(void **state) {
  (void)state;
  ot_node *tree;
  assert_int_equal(parse_toml("a = 1_000 # c\n\"b c\" = 'x\\y'\n[t.u]\nd = [1, # one\n 'two',\n]\n"
                              "e = \"q\\\"\\n\"\n[t]\nf = -2.5e3\n",
                              &tree),
                   OT_OK);
  ot_json_writer w = ot_json_begin(&arena, 0);
  ot_node_write_json(tree, NULL, &w);
  assert_string_equal(w.text,
                      "{\"a\":1000,\"b c\":\"x\\\\y\",\"t\":{\"u\":{\"d\":[1,\"two\"],"
                      "\"e\":\"q\\\"\\n\"},\"f\":-2.5e3}}");
}

static void refuses_toml_that_is_wrong_or_not_read(void **state) {
  (void)state;
  static const char *const texts[] = {
      "a = 1\na = 2\n", "[t]\n[t]\n",    "[[t]]\n",      "a.b = 1\n",   "a = {b = 1}\n",
      "a = \"x\n",      "a = [1\n",      "a = 1 2\n",    "a = maybe\n", "= 1\n",
      "[t\na = 1\n",    "a = '''x'''\n", "a = 1\n[a]\n", "a\n",         "a = \"\\q\"\n"};
  ot_node *tree;
  for (int i = 0; i < OT_COUNT(texts); i++) {
    if (parse_toml(texts[i], &tree) != OT_USAGE) fail_msg("taken: %s", texts[i]);
  }
}

// ---- nanotron ----

static void reads_nanotron(void **state) {
  (void)state;
  ot_imported imported = read_fixture("nanotron.yaml");
  assert_string_equal(imported.format, "nanotron YAML");
  assert_string_equal(imported.engine, "nanotron");
  assert_string_equal(imported.precision, "bf16-fp32-gradients");
  assert_int_equal(imported.tp, 4);
  assert_int_equal(imported.pp, 2);
  assert_int_equal(imported.dp, 8);
  assert_int_equal(imported.devices, 64);
  assert_int_equal(imported.zero, 1);
  assert_int_equal(imported.global_batch_size, 8 * 2 * 16);
  assert_int_equal(imported.micro_batch_size, 2);
  assert_int_equal(imported.pipeline, OT_PIPELINE_1F1B);
  assert_int_equal(imported.model.vocab_size, 49152);  // a multiple of 64 x 4 already
  assert_int_equal(imported.model.num_kv_heads, 8);
  assert_true(has_ignored(&imported, "general"));
  assert_int_equal(ot_imported_fit(&imported, 0), OT_OK);
}

static const char nanotron[] =
    "parallelism: {dp: 1, pp: 1, tp: 2}\n"
    "tokens: {sequence_length: 8, micro_batch_size: 1, batch_accumulation_per_replica: 1}\n"
    "model:\n  model_config:\n    vocab_size: 100\n    hidden_size: 64\n"
    "    num_attention_heads: 4\n";

static void takes_nanotrons_own_defaults(void **state) {
  (void)state;
  const ot_imported imported = import_text(nanotron);
  assert_int_equal(imported.model.intermediate_size, 11008);
  assert_int_equal(imported.zero, 0);
  assert_true(imported.no_sequence_parallel);  // tp_mode ALL_REDUCE
}

static void refuses_what_nanotron_does_not_have(void **state) {
  (void)state;
  char text[1024];
  snprintf(text, sizeof text, "%s    moe_config: {num_experts: 4}\n", nanotron);
  expect_refusal(text,
                 "model.model_config.moe_config is not supported in nanotron's files; allowed: "
                 "null (%s:8:17)",
                 NULL);
  snprintf(text, sizeof text, "%soptimizer: {zero_stage: 2}\n", nanotron);
  expect_refusal(text, "optimizer.zero_stage: 2 is out of range; allowed: 0 to 1 (%s:8:25)", NULL);
}

// Each file of the fixtures is of the format that it is named after.
static void detects_the_format_by_the_content(void **state) {
  (void)state;
  static const char *const files[][2] = {
      {"deepspeed.json", "DeepSpeed JSON"},
      {"maxtext.yaml", "MaxText YAML"},
      {"nemo.yaml", "NeMo YAML"},
      {"nanotron.yaml", "nanotron YAML"},
      {"torchtitan.toml", "torchtitan TOML"},
      {"torchtitan_script.sh", "torchtitan TOML"},
      {"deepspeed_script.sh", "Megatron-LM flags"},
      {"megatron_deepseek.sh", "Megatron-LM flags"},
      {"megatron_flags.yaml", "Megatron-LM flags"},
  };
  for (int i = 0; i < OT_COUNT(files); i++) {
    assert_string_equal(read_fixture(files[i][0]).format, files[i][1]);
  }
  assert_string_equal(read_fixture("deepspeed_script.sh").engine, "deepspeed");
  assert_int_equal(
      ot_model_parameters(&(ot_imported[]) { read_fixture("megatron_deepseek.sh") } -> model),
      671026404352);
}

static void names_the_formats_when_a_file_is_of_none(void **state) {
  (void)state;
  expect_refusal("batch: {global_batch_size: 4}\n", "%s has no known format", NULL);
  assert_non_null(ot_text_find(ot_fail_hint_text(), "torchtitan"));
  static const char *const programs[] = {
      "from torchtitan.trainer import Trainer\n\n\ndef llama3_8b() -> Trainer.Config:\n"
      "    return Trainer.Config(training=TrainingConfig(steps=10))\n",
      "#!/bin/bash\ntorchrun -m torchtitan.train --module llama3 --config llama3_8b\n"};
  for (int i = 0; i < OT_COUNT(programs); i++) {
    expect_refusal(programs[i],
                   "%s: torchtitan configurations in Python (config_registry.py, after version "
                   "0.2.2) are programs, which are not run",
                   NULL);
    assert_non_null(ot_text_find(ot_fail_hint_text(), "[parallelism]"));
  }
  ot_imported imported;
  assert_int_equal(ot_import_read("/nonexistent/x", &presets, &arena, &imported), OT_ENVIRONMENT);
}

// ---- scripts ----

// The commands of a script, one per line.
static const char *commands_of(const char *text) {
  ot_shell shell;
  ot_text_builder out = {.arena = &arena};
  assert_int_equal(ot_shell_read("s", text, ot_text_length(text), &arena, &shell), OT_OK);
  for (int64_t i = 0; i < shell.num_commands; i++) {
    for (int64_t k = 0; k < shell.commands[i].num_words; k++)
      ot_text_appendf(&out, "%s%s", k > 0 ? "|" : "", shell.commands[i].words[k].text);
    ot_text_put(&out, "\n");
  }
  return ot_text_builder_text(&out);
}

static void expands_as_a_shell_does(void **state) {
  (void)state;
  assert_string_equal(commands_of("A=1; B='x y' C=\"$A-${A}\"\nrun $A \"$B\" ${C} '$A' \\$A\n"),
                      "run|1|x y|1-1|$A|$A\n");
  assert_string_equal(commands_of("L=(a 'b c')\nL+=(d)\nrun \"${L[@]}\" z${L[*]}z\n"),
                      "run|a|b c|d|za|b c|dz\n");
  assert_string_equal(commands_of("run ${N:-8} ${N:-$M} $((2 * (3 + 4) % 5)) $((1/0))\n"),
                      "run|8|$M|4|$((1/0))\n");
  assert_string_equal(commands_of("export A=2 && run $A # no\nrun $UNSET $(date) >log 2>&1\n"),
                      "run|2\nrun|$UNSET|$(date)\n");
  assert_string_equal(commands_of("T=a\nT+=b\nrun $T \\\n  next\n"), "run|ab|next\n");
}

static void evaluates_decidable_shell_conditions(void **state) {
  (void)state;
  assert_string_equal(commands_of("A=x\nif [ $A = x ]; then run 1; else run 2; fi\n"), "run|1\n");
  assert_string_equal(commands_of("A=3\nif [[ $A -gt 4 ]] || [[ -z \"$A\" ]]; then run 1\n"
                                  "elif [[ $A == 3 && ! $A -lt 2 ]]; then run 2; else run 3; fi\n"),
                      "run|2\n");
  // Unknown condition: its commands are read; an existing value stays.
  assert_string_equal(commands_of("A=1\nif [ -f x ]; then A=2; B=3; run a; fi\nrun $A $B\n"),
                      "run|a\nrun|1|3\n");
  assert_string_equal(commands_of("for i in 1 2; do A=$i; done\ncase $X in\n a) B=1;;\nesac\n"
                                  "run ok\n"),
                      "run|ok\n");
}

static void scripts_that_explode_are_refused(void **state) {
  (void)state;
  ot_text_builder deep = {.arena = &arena}, wide = {.arena = &arena}, quotes = {.arena = &arena};
  for (int i = 0; i < 1000; i++) ot_text_put(&deep, "if [ a ]; then\n");
  ot_text_put(&wide, "A=aaaaaaaaaaaaaaaa\n");
  for (int i = 0; i < 60; i++) ot_text_put(&wide, "A=$A$A\n");
  for (int i = 0; i < 10000; i++) ot_text_put(&quotes, "\"$(");
  ot_shell shell;
  assert_int_equal(ot_shell_read("s", deep.text, deep.length, &arena, &shell), OT_USAGE);
  assert_int_equal(ot_shell_read("s", wide.text, wide.length, &arena, &shell), OT_USAGE);
  ot_shell_read("s", quotes.text, quotes.length, &arena, &shell);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(reads_a_megatron_script_with_variables_arrays_and_switches,
                                      begin, finish),
      cmocka_unit_test_setup_teardown(reads_a_file_of_megatron_flags, begin, finish),
      cmocka_unit_test_setup_teardown(reads_megatron_flags_in_yaml, begin, finish),
      cmocka_unit_test_setup_teardown(plans_megatron_models_without_an_hf_family, begin, finish),
      cmocka_unit_test_setup_teardown(reads_mixtures_of_experts, begin, finish),
      cmocka_unit_test_setup_teardown(takes_the_last_of_repeated_flags, begin, finish),
      cmocka_unit_test_setup_teardown(misfits_name_file_line_and_flag, begin, finish),
      cmocka_unit_test_setup_teardown(
          reads_torchtitan_and_leaves_open_what_it_leaves_to_the_launcher, begin, finish),
      cmocka_unit_test_setup_teardown(reads_torchtitan_of_2024, begin, finish),
      cmocka_unit_test_setup_teardown(refuses_what_torchtitan_does_not_have, begin, finish),
      cmocka_unit_test_setup_teardown(takes_dualpipe_v_whose_pairs_hide_tokens, begin, finish),
      cmocka_unit_test_setup_teardown(reads_toml, begin, finish),
      cmocka_unit_test_setup_teardown(refuses_toml_that_is_wrong_or_not_read, begin, finish),
      cmocka_unit_test_setup_teardown(reads_nanotron, begin, finish),
      cmocka_unit_test_setup_teardown(takes_nanotrons_own_defaults, begin, finish),
      cmocka_unit_test_setup_teardown(refuses_what_nanotron_does_not_have, begin, finish),
      cmocka_unit_test_setup_teardown(detects_the_format_by_the_content, begin, finish),
      cmocka_unit_test_setup_teardown(names_the_formats_when_a_file_is_of_none, begin, finish),
      cmocka_unit_test_setup_teardown(expands_as_a_shell_does, begin, finish),
      cmocka_unit_test_setup_teardown(evaluates_decidable_shell_conditions, begin, finish),
      cmocka_unit_test_setup_teardown(scripts_that_explode_are_refused, begin, finish),
  };
  return cmocka_run_group_tests(tests, make_file, remove_file);
}
