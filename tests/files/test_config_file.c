// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Run files with model files, presets and --set: precedence, origins, relative paths, derived
// values, and settings that a resumed run must keep.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/run_keys.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "host/heap.h"
#include "support/scratch.h"
#include "train/trainer.h"

static ot_heap heap;
static ot_arena arena;
static char directory[SCRATCH_BYTES];
static const char *const preset_directories[] = {OT_SOURCE_DIR "/presets"};
static const ot_presets presets = {preset_directories, 1};

static int begin(void **state) {
  (void)state;
  arena = ot_heap_arena_create(&heap);
  scratch_create(directory);
  char *const real = realpath(directory, NULL);
  ot_text_format(directory, sizeof directory, "%s", real);
  free(real);
  return 0;
}

static int finish(void **state) {
  (void)state;
  ot_heap_release(&heap);
  scratch_destroy(directory);
  return 0;
}

static const char *write_file(const char *name, const char *text) {
  const char *const path = ot_disk_join(&arena, directory, name);
  assert_int_equal(ot_disk_write(path, text, ot_text_length(text)), OT_OK);
  return path;
}

static ot_status load(const char *text, const char *const *sets, int num_sets, ot_config *config) {
  const ot_config_request request = {
      .path = write_file("run.yaml", text), .sets = sets, .num_sets = num_sets, .presets = presets};
  return ot_config_load(&request, &arena, config);
}

static ot_config accept(const char *text, const char *const *sets, int num_sets) {
  ot_config config;
  if (load(text, sets, num_sets, &config) != OT_OK) fail_msg("%s", ot_fail_message());
  return config;
}

static void refuse(const char *text, const char *set, const char *part) {
  ot_config config;
  assert_int_equal(load(text, &set, set ? 1 : 0, &config), OT_USAGE);
  assert_message_has(part);
}

static void expect_place(const ot_config *config, const char *path, const char *place) {
  const ot_node *const node = ot_node_find(config->settings, path);
  assert_non_null(node);
  const char *text = ot_node_place(&arena, node);
  if (ot_text_starts_with(text, directory)) text += ot_text_length(directory) + 1;
  if (!ot_text_equal(text, place)) fail_msg("%s comes from %s, not %s", path, text, place);
}

static void later_sources_win_and_origins_say_so(void **state) {
  (void)state;
  write_file("config.json",
             "{\"model_type\": \"llama\",\n \"hidden_size\": 64, \"num_attention_heads\": 4,\n"
             " \"num_hidden_layers\": 2}");
  const char *const sets[] = {"model.num_hidden_layers=3",
                              "optimizer.lr=1e-3",
                              "data.train=[a, {path: /b, weight: 2}]",
                              "data.train.0.weight=5",
                              "batch.micro_batch_size=2",
                              "batch.micro_batch_size=4"};
  const ot_config config = accept(
      "model: config.json\nsteps: 10\noptimizer:\n  lr: 2e-3\n"
      "  betas: [0.8, 0.99]\n",
      sets, OT_COUNT(sets));
  const ot_run *const run = &config.run;
  assert_int_equal(run->model.hidden_size, 64);
  assert_int_equal(run->model.num_layers, 3);
  assert_true(run->optimizer.lr == 1e-3 && run->optimizer.betas[0] == 0.8);
  assert_int_equal(run->data.num_train, 2);
  assert_true(run->data.train[0].weight == 5 && run->data.train[1].weight == 2);
  assert_int_equal(run->batch.micro_batch_size, 4);
  expect_place(&config, "model.hidden_size", "config.json:2:17");
  expect_place(&config, "model.num_hidden_layers", "--set model.num_hidden_layers");
  expect_place(&config, "model.head_dim", "default of llama");
  expect_place(&config, "optimizer.lr", "--set optimizer.lr");
  expect_place(&config, "optimizer.betas", "run.yaml:5:10");
  expect_place(&config, "optimizer.eps", "default");
  expect_place(&config, "learning_rate.min", "follows optimizer.lr");
  assert_true(run->learning_rate.min == 1e-4);
}

static void relative_paths_start_from_their_file(void **state) {
  (void)state;
  assert_int_equal(ot_disk_make_directory(ot_disk_join(&arena, directory, "sub")), OT_OK);
  const char *const path = write_file("sub/my.run.yaml",
                                      "model: gpt2\ndata: {train: d/x, tokenizer: ./t.json, "
                                      "validation: {v: /abs}}\ncluster: c.yaml\n");
  const char *const set = "init=w";
  const ot_config_request request = {.path = path, .sets = &set, .num_sets = 1, .presets = presets};
  ot_config config;
  assert_int_equal(ot_config_load(&request, &arena, &config), OT_OK);
  const ot_run *const run = &config.run;
  assert_string_equal(run->data.train[0].path, ot_disk_join(&arena, directory, "sub/d/x"));
  assert_string_equal(run->data.tokenizer, ot_disk_join(&arena, directory, "sub/t.json"));
  assert_string_equal(run->data.validation[0].path, "/abs");
  assert_string_equal(run->cluster, ot_disk_join(&arena, directory, "sub/c.yaml"));
  assert_string_equal(run->output, ot_disk_join(&arena, directory, "sub/runs/my.run"));
  char *const here = getcwd(NULL, 0);
  assert_string_equal(run->init, ot_disk_join(&arena, here, "w"));
  free(here);
}

static void words_are_not_paths(void **state) {
  (void)state;
  const ot_config config = accept("model: gpt2\ninit: random\ndata: {tokenizer: bytes}\n", NULL, 0);
  assert_string_equal(config.run.init, "random");
  assert_string_equal(config.run.data.tokenizer, "bytes");
  assert_string_equal(config.run.cluster, "this-machine");
}

static void null_takes_a_setting_back(void **state) {
  (void)state;
  const char *const text =
      "model: {model_type: llama, hidden_size: 64, num_attention_heads: 4, head_dim: 32}";
  const char *const set = "model.head_dim=null";
  assert_int_equal(accept(text, NULL, 0).run.model.head_dim, 32);
  assert_int_equal(accept(text, &set, 1).run.model.head_dim, 16);
}

static void a_model_may_be_a_preset_a_file_a_directory_or_keys(void **state) {
  (void)state;
  assert_string_equal(accept("model: llama3-8b", NULL, 0).run.model_source, "llama3-8b");
  assert_int_equal(ot_disk_make_directory(ot_disk_join(&arena, directory, "m")), OT_OK);
  write_file("m/config.json", "{\"model_type\": \"qwen3\", \"hidden_size\": 32}");
  assert_int_equal(accept("model: m", NULL, 0).run.model.hidden_size, 32);
  assert_int_equal(accept("model: m/config.json", NULL, 0).run.model.family, OT_FAMILY_QWEN3);
  assert_int_equal(accept("model: {model_type: gpt2, n_layer: 3}", NULL, 0).run.model.num_layers,
                   3);
  const char *const set = "model=gpt2-xl";
  assert_int_equal(accept("model: gpt2", &set, 1).run.model.num_layers, 48);
  const char *const map = "model={model_type: gpt2, n_layer: 5}";
  assert_int_equal(accept("model: gpt2", &map, 1).run.model.num_layers, 5);
}

static void an_unknown_model_is_rejected_with_the_nearest_name(void **state) {
  (void)state;
  refuse("model: llama3-8", NULL, "no preset and no file is called \"llama3-8\"");
  assert_string_equal(ot_fail_hint_text(), "did you mean the preset llama3-8b?");
  ot_config config;
  assert_int_equal(load("model: ./nothing.json", NULL, 0, &config), OT_ENVIRONMENT);
  assert_message_has("run.yaml:1:8");
  refuse("steps: 5", NULL, "model is required");
  refuse("model: [a]", NULL, "model: not a map of HF keys");
}

static void unknown_model_keys_need_explicit_ignore(void **state) {
  (void)state;
  static const char text[] =
      "model: {model_type: llama, logits_scaling: 8, rope_scaling: {factor: 2,"
      " rope_type: linear, short_factor: 3}}";
  refuse(text, NULL, "model: unknown key \"logits_scaling\"");
  assert_non_null(strstr(ot_fail_hint_text(), "--set model.logits_scaling=ignore"));
  refuse(text, "model.logits_scaling=ignore", "model.rope_scaling: unknown key \"short_factor\"");
  const char *const sets[] = {"model.logits_scaling=ignore",
                              "model.rope_scaling.short_factor=ignore"};
  const ot_config config = accept(text, sets, 2);
  assert_true(config.run.model.rope.factor == 2);
}

static void keys_that_the_family_never_reads_are_taken_out_of_a_file_with_a_note(void **state) {
  (void)state;
  write_file(
      "moe.json",
      "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"max_window_layers\": 48,\n"
      " \"auto_map\": {\"AutoConfig\": \"x.y\"}, \"use_qk_norm\": true, \"use_cache\": true,\n"
      " \"num_nextn_predict_layers\": 1}");
  const ot_config config = accept("model: moe.json", NULL, 0);
  assert_int_equal(config.notes.count, 1);
  assert_non_null(strstr(config.notes.text[0], "/moe.json: "));
  assert_non_null(strstr(config.notes.text[0], ": max_window_layers, auto_map, use_qk_norm"));
  assert_null(strstr(config.notes.text[0], "use_cache"));
  assert_null(strstr(config.notes.text[0], "num_nextn_predict_layers"));
  // A setting written for this run is intentional.
  refuse("model: {model_type: qwen3_moe, max_window_layers: 48}", NULL, "another kind of model");
  refuse("model: moe.json", "model.max_window_layers=48", "another kind of model");
  assert_string_equal(ot_fail_hint_text(),
                      "leave the key out: it is one of qwen2, qwen3, qwen2_moe");
  // Numbers as Python writes them.
  write_file("infinite.json", "{\"model_type\": \"llama\", \"limits\": [0.0, Infinity]}");
  const char *const set = "model.limits=ignore";
  accept("model: infinite.json", &set, 1);
  refuse("model: infinite.json", "model.head_dim=4", "unknown key \"limits\"");
  // Keys of this program are valid in every file.
  static const char *const ours[] = {"moe_routing", "moe_aux_loss_scale", "router_z_loss_coef"};
  for (int i = 0; i < OT_COUNT(ours); i++) {
    write_file("ours.json",
               ot_arena_format(&arena, "{\"model_type\": \"llama\", \"%s\": 1}", ours[i]));
    refuse("model: ours.json", NULL, "another kind of model");
  }
  assert_string_equal(ot_fail_hint_text(), "this model has no experts: leave the key out");
}

static void keys_that_change_the_mathematics_cannot_be_ignored(void **state) {
  (void)state;
  static const char *const sets[] = {"model.n_embd=ignore", "model.resid_pdrop=ignore",
                                     "model.reorder_and_upcast_attn=ignore",
                                     "model.quantization_config=ignore"};
  for (int i = 0; i < OT_COUNT(sets); i++) {
    refuse("model: gpt2", sets[i],
           "changes the mathematics, so it cannot be ignored (--set model.");
  }
  refuse("model: llama3-8b", "model.rope_scaling.factor=ignore", "cannot be ignored");
  refuse("model: gpt2", "model.moe_balance=ignore", "another kind of model");
  static const char *const harmless[] = {"model.use_cache=ignore", "model.num_experts=ignore",
                                         "model.num_mtp_layers=ignore", "model.a.b=ignore"};
  assert_int_equal(accept("model: gpt2", harmless, OT_COUNT(harmless)).run.num_sets, 4);
}

static void mistakes_name_their_place(void **state) {
  (void)state;
  refuse("model: gpt2\nsteps: -1", NULL, "steps: -1 is out of range; allowed: at least 0 steps (");
  assert_message_has("run.yaml:2:8)");
  refuse("model: gpt2", "steps=-1", "(--set steps)");
  refuse("model: gpt2", "step=1", "unknown key \"step\" (--set step)");
  refuse("model: gpt2", "optimizer.betas=[1", "--set optimizer.betas");
  refuse("model: gpt2", "steps", "not KEY=VALUE");
  refuse("model: gpt2\nsteps: 5\ntokens: 5", NULL, "steps=5 and tokens=5 are both given");
  refuse("model: gpt2\nbatch: {global_batch_size: 6, micro_batch_size: 4}", NULL,
         "micro_batch_size=4 does not divide global_batch_size=6");
  refuse("model: gpt2\ndata: {sequence_length: 2048}", NULL, "position table of 1024");
  refuse("model: gpt2\nparallel: {tp: 5}", NULL,
         "tp=5 does not divide num_attention_heads=12 (try tp=4)");
  assert_message_has("run.yaml:2:16)");
  refuse("model: {model_type: gpt2,\n  n_head: 16}\nsteps: 9", "parallel.tp=5",
         "(--set parallel.tp)");
  refuse("model: {model_type: llama, num_attention_heads: 8,\n  num_key_value_heads: 3}", NULL,
         "run.yaml:2:24)");
  refuse("model: gpt2\nsteps: 5\nlearning_rate: {min: 1}", NULL, "run.yaml:3:22)");
  refuse("model: gpt2\nparallel: {vpp: 2, pp: 2}", NULL,
         "needs one chunk per stage (try vpp=1, or pipeline=interleaved)");
  refuse("model: gpt2\nparallel: {pp: 4,\n  pipeline: dualpipe}", NULL,
         "parallel.pipeline: dualpipe is not a schedule of runs (");
  assert_message_has("run.yaml:3:13)");
  assert_string_equal(ot_fail_hint_text(),
                      "dualpipe on P stages equals dualpipe-v on P/2 stages with twice the dp: "
                      "halve pp and set pipeline: dualpipe-v");
  refuse("model: gpt2\nparallel: {recompute: [full, none]}", NULL, "2 entries");
  refuse("model: gpt2\nprecision: {compute: fp64, master: fp32}", NULL, "master=fp32");
  refuse("model: gpt2\nprecision: {gradients: bf16}", NULL,
         "gradients=bf16 is not compatible with params=fp32");
  refuse("model: gpt2\nlearning_rate: {min: 1}", NULL, "above the peak");
  refuse("model: gpt2\nbatch: {ramp: [{global_batch_size: 1}]}", NULL, "from_step and from_tokens");
  refuse("model: gpt2\noptimizer: {groups: [{pattern: a, lr: 1, lr_factor: 2}]}", NULL, "not both");
}

static void data_types_follow_compute(void **state) {
  (void)state;
  const ot_run_precision bf16 =
      accept("model: gpt2\nprecision: {compute: bfloat16}", NULL, 0).run.precision;
  assert_int_equal(bf16.params, OT_BF16);
  assert_int_equal(bf16.master, OT_F32);
  assert_int_equal(bf16.reduce, OT_F32);
  const ot_run_precision fp64 =
      accept("model: gpt2\nprecision: {compute: fp64}", NULL, 0).run.precision;
  assert_true(fp64.params == OT_F64 && fp64.gradients == OT_F64 && fp64.moments == OT_F64);
  // Gradients and moments may be as narrow as weights; master weights may not.
  const ot_run narrow =
      accept("model: gpt2\nprecision: {compute: bf16, gradients: bf16}", NULL, 0).run;
  assert_int_equal(narrow.precision.gradients, OT_BF16);
  assert_int_equal(narrow.precision.moments, OT_F32);
  assert_int_equal(ot_trainer_check(&narrow), OT_OK);
  const ot_run moments =
      accept("model: gpt2\nprecision: {compute: bf16, moments: bf16}", NULL, 0).run;
  assert_int_equal(moments.precision.moments, OT_BF16);
  assert_int_equal(ot_trainer_check(&moments), OT_OK);
  const ot_run half = accept("model: gpt2\nprecision: {compute: bf16, moments: fp16}", NULL, 0).run;
  assert_int_equal(ot_trainer_check(&half), OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "moments=fp16 is not supported by this back end"));
  // Valid in plans, not in training here.
  const ot_run fp8 = accept("model: gpt2\nprecision: {compute: fp8}", NULL, 0).run;
  assert_true(fp8.precision.compute == OT_F8 && fp8.precision.params == OT_BF16);
  assert_int_equal(ot_trainer_check(&fp8), OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "compute=fp8 is not supported by this back end"));
}

static void other_values_follow_too(void **state) {
  (void)state;
  const ot_run a = accept("model: gpt2\nsteps: 50\nparallel: {zero: 2}", NULL, 0).run;
  assert_int_equal(a.data.sequence_length, 1024);
  assert_int_equal(a.parallel.accumulate, OT_ACCUMULATE_SHARDED);
  assert_int_equal(a.learning_rate.warmup_steps, 5);
  assert_true(a.learning_rate.min == 3e-5);
  const ot_run b =
      accept("model: llama3-8b\ntokens: 15T\nparallel: {accumulate: whole, zero: 3}", NULL, 0).run;
  assert_int_equal(b.data.sequence_length, 4096);
  assert_int_equal(b.parallel.accumulate, OT_ACCUMULATE_WHOLE);
  assert_int_equal(b.learning_rate.warmup_steps, 100);
  assert_int_equal(b.tokens, 15000000000000);
  assert_int_equal(ot_run_recompute(&b.parallel, 7), OT_RECOMPUTE_NONE);
}

static void batch_ramps_along_the_run(void **state) {
  (void)state;
  const ot_run run = accept(
                         "model: gpt2\nbatch: {global_batch_size: 8, ramp: [{from_step: 10,"
                         " global_batch_size: 16}, {from_step: 20, global_batch_size: 32}]}",
                         NULL, 0)
                         .run;
  assert_int_equal(ot_run_global_batch(&run, 9, 0), 8);
  assert_int_equal(ot_run_global_batch(&run, 10, 0), 16);
  assert_int_equal(ot_run_global_batch(&run, 1000, 0), 32);
}

static void training_needs_data_and_a_length(void **state) {
  (void)state;
  ot_run run = accept("model: gpt2\nsteps: 5", NULL, 0).run;
  assert_int_equal(ot_run_check_training(&run), OT_USAGE);
  assert_message_has("data.train is required");
  run = accept("model: gpt2\ndata: {train: a}", NULL, 0).run;
  assert_int_equal(ot_run_check_training(&run), OT_USAGE);
  assert_message_has("steps or tokens");
}

static const char *yaml_of(const ot_node *tree) {
  ot_text_builder text = {.arena = &arena};
  ot_node_print_yaml(tree, 0, &text);
  return ot_text_builder_text(&text);
}

static void resolved_settings_read_back_the_same(void **state) {
  (void)state;
  const ot_config config = accept(
      "model: gemma3-1b\ndata: {train: [a, b], validation: {x: y}, mixtures: [{from_step: 5, train:"
      " c}]}\nparallel: {recompute: full}\naudit: {checks: [drift]}\noptimizer: {groups: [{pattern:"
      " '*bias', weight_decay: 0}]}\ntokens: 1M\n",
      NULL, 0);
  const char *const text = yaml_of(config.settings);
  const ot_config again = accept(text, NULL, 0);
  assert_string_equal(yaml_of(again.settings), text);
  assert_true(ot_run_hash(&config.run, &arena) == ot_run_hash(&again.run, &arena));
  assert_true(ot_model_hash(&config.run.model) == ot_model_hash(&again.run.model));
}

static void the_example_means_the_defaults(void **state) {
  (void)state;
  static const char *const samples[] = {"model", "gpt2", "steps", "1000", NULL};
  ot_text_builder example = {.arena = &arena};
  ot_schema_example(&ot_run_schema, samples, &example);
  const ot_config from_example = accept(example.text, NULL, 0);
  const ot_config defaults = accept("model: gpt2\nsteps: 1000", NULL, 0);
  assert_string_equal(yaml_of(from_example.settings), yaml_of(defaults.settings));
}

static int differences(const char *old, const char *new, const char *const *sets, int num_sets,
                       const char **listed) {
  const ot_config before = accept(old, NULL, 0);
  const ot_config after = accept(new, sets, num_sets);
  ot_text_builder out = {.arena = &arena};
  const int count = ot_run_compare(before.settings, after.settings, &out);
  *listed = ot_text_builder_text(&out);
  return count;
}

static void a_run_without_a_file_has_the_defaults_of_one(void **state) {
  (void)state;
  ot_run file = accept("model: gpt2\nprecision: {compute: bf16}\n", NULL, 0).run, run;
  assert_int_equal(ot_run_defaults(&file.model, OT_BF16, &arena, &run), OT_OK);
  assert_int_equal(run.parallel.pipeline, OT_PIPELINE_1F1B);
  assert_int_equal(run.parallel.num_reshard, 1);
  assert_int_equal(run.precision.master, OT_F32);
  file.output = run.output;  // named after the file
  assert_true(ot_run_hash(&file, &arena) == ot_run_hash(&run, &arena));
}

static void a_resumed_run_may_change_only_some_keys(void **state) {
  (void)state;
  const char *text;
  assert_int_equal(differences("model: gpt2\nsteps: 50",
                               "model: gpt2\nsteps: 90\nparallel: {pp: 2}\n"
                               "output: x\ncheckpoint: {every: 1}\nbatch: {micro_batch_size: 2}\n"
                               "threads: 2\nlog: {every: 5}",
                               NULL, 0, &text),
                   0);
  assert_int_equal(differences("model: gpt2\nseed: 1", "model: gpt2\nseed: 2\noptimizer: {lr: 0.5}",
                               NULL, 0, &text),
                   2);
  assert_true(ot_text_starts_with(text, "optimizer.lr: 0.0003 -> 0.5 (/"));
  assert_non_null(strstr(text, "/run.yaml:3:17)\nseed: 1 -> 2 (/"));
  assert_true(ot_text_ends_with(text, "/run.yaml:2:7)\n"));
  const char *const sets[] = {"seed=2"};
  assert_int_equal(differences("model: gpt2\nseed: 1", "model: gpt2", sets, 1, &text), 0);
  assert_int_equal(differences("model: gpt2", "model: gpt2-xl", NULL, 0, &text), 4);
  // The setting changed by --set is shown with the values derived from it.
  const char *const wider[] = {"model.hidden_size=96", "steps=7"};
  const char *const llama =
      "model: {model_type: llama, vocab_size: 300, hidden_size: 48, num_attention_heads: 4}";
  assert_int_equal(differences(llama, llama, wider, 2, &text), 1);
  assert_string_equal(
      text,
      "model.head_dim: 12 -> 24 (default of llama)\nin addition to the changes by --set:\n"
      "model.hidden_size: 48 -> 96 (--set model.hidden_size)\n");
}

static void presets_are_found_and_listed(void **state) {
  (void)state;
  const ot_preset_names names = ot_presets_list(&presets, OT_PRESET_MODEL, &arena);
  assert_in_range(names.count, 20, 200);
  for (int64_t i = 0; i < names.count; i++) {
    assert_non_null(ot_presets_find(&presets, OT_PRESET_MODEL, names.name[i], &arena));
  }
  assert_null(ot_presets_find(&presets, OT_PRESET_MODEL, "../models/gpt2", &arena));
  assert_null(ot_presets_find(&presets, OT_PRESET_MODEL, "", &arena));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(later_sources_win_and_origins_say_so),
      cmocka_unit_test(relative_paths_start_from_their_file),
      cmocka_unit_test(words_are_not_paths),
      cmocka_unit_test(null_takes_a_setting_back),
      cmocka_unit_test(a_model_may_be_a_preset_a_file_a_directory_or_keys),
      cmocka_unit_test(an_unknown_model_is_rejected_with_the_nearest_name),
      cmocka_unit_test(unknown_model_keys_need_explicit_ignore),
      cmocka_unit_test(keys_that_the_family_never_reads_are_taken_out_of_a_file_with_a_note),
      cmocka_unit_test(keys_that_change_the_mathematics_cannot_be_ignored),
      cmocka_unit_test(mistakes_name_their_place),
      cmocka_unit_test(data_types_follow_compute),
      cmocka_unit_test(other_values_follow_too),
      cmocka_unit_test(batch_ramps_along_the_run),
      cmocka_unit_test(training_needs_data_and_a_length),
      cmocka_unit_test(resolved_settings_read_back_the_same),
      cmocka_unit_test(the_example_means_the_defaults),
      cmocka_unit_test(a_run_without_a_file_has_the_defaults_of_one),
      cmocka_unit_test(a_resumed_run_may_change_only_some_keys),
      cmocka_unit_test(presets_are_found_and_listed),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
