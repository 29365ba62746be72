// SPDX-License-Identifier: Apache-2.0
// run: alone. HF directories to checkpoints and back, on models written by transformers
// (fixtures/parity): the exported tensor file has the bytes of the original.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/convert.h"
#include "files/disk.h"
#include "host/heap.h"
#include "support/scratch.h"
#include "support/tensor_data.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
} fixture;

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

static const char *case_path(const char *name) {
  char path[SCRATCH_BYTES];
  snprintf(path, sizeof path, "parity/%s", name);
  return fixture_path(path);
}

static ot_convert_report convert(fixture *f, const char *from, const char *to,
                                 const ot_dtype *dtype) {
  const ot_convert_request request = {.from = from, .to = to, .dtype = dtype};
  ot_convert_report report;
  if (ot_convert(&f->arena, &request, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  return report;
}

static void round_trips_byte_for_byte(void **state) {
  fixture *const f = *state;
  static const char *const names[] = {"gpt2",  "llama", "llama-tied-bias", "gemma2", "gemma3",
                                      "olmo2", "phi3",  "gpt-oss"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    const char *const checkpoint = scratch_path(f->directory, "checkpoint");
    const char *const back = scratch_path(f->directory, "back");
    const ot_convert_report there = convert(f, case_path(names[i]), checkpoint, NULL);
    assert_false(there.to_hf);
    assert_true(ot_disk_is_file(scratch_path(checkpoint, "manifest.json")));
    const ot_convert_report again = convert(f, checkpoint, back, NULL);
    assert_true(again.to_hf);
    assert_int_equal(again.bytes, there.bytes);
    assert_false(ot_disk_is_file(scratch_path(back, "manifest.json")));
    assert_files_equal(scratch_path(back, "model.safetensors"),
                       scratch_path(case_path(names[i]), "model.safetensors"));
    assert_files_equal(scratch_path(back, "config.json"), scratch_path(checkpoint, "config.json"));
    assert_int_equal(ot_disk_remove(checkpoint), OT_OK);
    assert_int_equal(ot_disk_remove(back), OT_OK);
  }
}

static void changes_the_dtype_and_the_config(void **state) {
  fixture *const f = *state;
  const ot_dtype dtype = OT_BF16;
  const char *const narrow = scratch_path(f->directory, "narrow");
  convert(f, case_path("llama"), narrow, &dtype);
  ot_safetensors *wide_set = NULL, *narrow_set = NULL;
  assert_int_equal(ot_safetensors_create(case_path("llama"), "model", &wide_set), OT_OK);
  assert_int_equal(ot_safetensors_create(narrow, "model", &narrow_set), OT_OK);
  assert_int_equal(ot_safetensors_count(narrow_set), ot_safetensors_count(wide_set));
  for (int i = 0; i < ot_safetensors_count(wide_set); i++) {
    const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(wide_set, i);
    assert_int_equal(ot_safetensors_tensor_at(narrow_set, i)->type, OT_SAFETENSORS_BF16);
    const float *const values = tensor_data(wide_set, i);
    const uint16_t *const bits = tensor_data(narrow_set, i);
    for (int64_t j = 0; j < tensor->elements; j++)
      assert_int_equal(bits[j], ot_bf16_from_float(values[j]));
  }
  ot_safetensors_destroy(&wide_set);
  ot_safetensors_destroy(&narrow_set);
  int64_t bytes;
  char *const config = scratch_read(scratch_path(narrow, "config.json"), &bytes);
  config[bytes - 1] = '\0';
  assert_non_null(strstr(config, "\"torch_dtype\": \"bfloat16\""));
  free(config);
}

// A checkpoint of the llama case with bf16 weights, m.* and, on request, master.*.
static void make_training_checkpoint(fixture *f, const char *path, bool masters) {
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(case_path("llama"), "model", &set), OT_OK);
  const int n = ot_safetensors_count(set);
  ot_tensor_source *const model = ot_arena_array(&f->arena, n, sizeof *model);
  ot_tensor_source *const optimizer = ot_arena_array(&f->arena, 2 * n, sizeof *optimizer);
  for (int i = 0; i < n; i++) {
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, i);
    uint16_t *const bits = ot_arena_array(&f->arena, t->elements, sizeof *bits);
    const float *const values = tensor_data(set, i);
    for (int64_t j = 0; j < t->elements; j++) bits[j] = ot_bf16_from_float(values[j]);
    model[i] = (ot_tensor_source){.name = t->name,
                                  .dtype = OT_BF16,
                                  .rank = t->rank,
                                  .dim = {t->dim[0], t->dim[1]},
                                  .data = bits};
    optimizer[i] = model[i];
    optimizer[i].name = ot_arena_format(&f->arena, "m.%s", t->name);
    optimizer[n + i] = model[i];
    optimizer[n + i].name = ot_arena_format(&f->arena, "master.%s", t->name);
    optimizer[n + i].dtype = OT_F32;
    optimizer[n + i].data = values;
  }
  int64_t bytes;
  char *const config = scratch_read(scratch_path(case_path("llama"), "config.json"), &bytes);
  const ot_checkpoint_text text = {"config.json", config, bytes};
  const ot_manifest manifest = {.step = 3, .config = "{}", .mesh = {1, 1, 1, 1, 1, 1, 1, 1}};
  const ot_checkpoint_content content = {.num_model = n,
                                         .model = model,
                                         .num_optimizer = masters ? 2 * n : n,
                                         .optimizer = optimizer,
                                         .num_texts = 1,
                                         .texts = &text,
                                         .manifest = &manifest};
  if (ot_checkpoint_write(path, &content) != OT_OK) fail_msg("%s", ot_fail_message());
  free(config);
  ot_safetensors_destroy(&set);
}

static void takes_full_precision_copies_for_fp32(void **state) {
  fixture *const f = *state;
  const char *const checkpoint = scratch_path(f->directory, "c");
  const char *const back = scratch_path(f->directory, "back");
  const ot_dtype dtype = OT_F32;
  make_training_checkpoint(f, checkpoint, true);
  ot_convert_report report = convert(f, checkpoint, back, &dtype);
  assert_true(report.from_master);
  assert_int_equal(report.num_left_out, report.num_tensors);
  assert_files_equal(scratch_path(back, "model.safetensors"),
                     scratch_path(case_path("llama"), "model.safetensors"));
  assert_int_equal(ot_disk_remove(back), OT_OK);
  report = convert(f, checkpoint, back, NULL);
  assert_false(report.from_master);
  assert_int_equal(report.num_left_out, 2 * report.num_tensors);
  assert_files_equal(scratch_path(back, "model.safetensors"),
                     scratch_path(checkpoint, "model.safetensors"));
  assert_int_equal(ot_disk_remove(back), OT_OK);
  make_training_checkpoint(f, checkpoint, false);
  report = convert(f, checkpoint, back, &dtype);
  assert_false(report.from_master);
}

static void refuses_what_it_cannot_account_for(void **state) {
  fixture *const f = *state;
  ot_convert_report report;
  ot_convert_request request = {.from = case_path("llama"), .to = f->directory};
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_USAGE);
  assert_message_has("the output directory already exists");
  // The weights of one model with the config.json of another.
  const char *const mixed = scratch_path(f->directory, "mixed");
  assert_int_equal(ot_disk_make_directory(mixed), OT_OK);
  int64_t bytes;
  char *data = scratch_read(scratch_path(case_path("llama"), "config.json"), &bytes);
  scratch_write(scratch_path(mixed, "config.json"), data, bytes);
  free(data);
  data = scratch_read(scratch_path(case_path("qwen3"), "model.safetensors"), &bytes);
  scratch_write(scratch_path(mixed, "model.safetensors"), data, bytes);
  free(data);
  request = (ot_convert_request){.from = mixed, .to = scratch_path(f->directory, "out")};
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_ENVIRONMENT);
  assert_false(ot_disk_is_directory(request.to));
  request.from = scratch_path(f->directory, "absent");
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_ENVIRONMENT);
  assert_message_has("there is no checkpoint, run or HF directory of this name");
}

static void exports_no_hf_directory_for_unsupported_models(void **state) {
  fixture *const f = *state;
  ot_convert_report report;
  const char *const checkpoint = scratch_path(f->directory, "checkpoint");
  report = convert(f, case_path("llama-residuals"), checkpoint, NULL);
  assert_false(report.to_hf);
  const ot_convert_request request = {.from = checkpoint, .to = scratch_path(f->directory, "out")};
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_USAGE);
  assert_message_has("no HF model has attention_residuals");
  assert_false(ot_disk_is_directory(request.to));
}

static void copies_the_files_of_the_tokenizer(void **state) {
  fixture *const f = *state;
  const char *const from = scratch_path(f->directory, "from");
  const char *const to = scratch_path(f->directory, "to");
  assert_int_equal(ot_disk_make_directory(from), OT_OK);
  static const char *const names[] = {"config.json", "model.safetensors"};
  for (int i = 0; i < 2; i++) {
    int64_t bytes;
    char *const data = scratch_read(scratch_path(case_path("llama"), names[i]), &bytes);
    scratch_write(scratch_path(from, names[i]), data, bytes);
    free(data);
  }
  // A tokenizer that this program cannot run is copied unchanged.
  static const char tokenizer[] = "{\"model\":{\"type\":\"Unigram\"}}";
  scratch_write(scratch_path(from, "tokenizer.json"), tokenizer, sizeof tokenizer - 1);
  convert(f, from, to, NULL);
  assert_files_equal(scratch_path(to, "tokenizer.json"), scratch_path(from, "tokenizer.json"));
  assert_true(ot_disk_is_file(scratch_path(to, "generation_config.json")));
}

// ---- fp8 weights (fixtures/fp8: torch's tensors and their dequantized values) ----

static void assert_same_values(const char *path, const char *stem, ot_safetensors *expected,
                               ot_dtype dtype) {
  ot_safetensors *made = NULL;
  assert_int_equal(ot_safetensors_create(path, stem, &made), OT_OK);
  assert_int_equal(ot_safetensors_count(made), ot_safetensors_count(expected));
  for (int i = 0; i < ot_safetensors_count(made); i++) {
    const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(made, i);
    ot_dtype stored;
    assert_true(ot_safetensors_type_dtype(tensor->type, &stored) && stored == dtype);
    for (int64_t j = 0; j < tensor->elements; j++) {
      float values[2];
      const ot_safetensors_range element = {i, j, 1};
      assert_int_equal(ot_safetensors_read(made, element, OT_F32, &values[0]), OT_OK);
      assert_int_equal(ot_safetensors_read(expected, element, OT_F32, &values[1]), OT_OK);
      if (dtype == OT_BF16) values[1] = ot_bf16_to_float(ot_bf16_from_float(values[1]));
      if (memcmp(&values[0], &values[1], sizeof(float)) != 0) {
        fail_msg("%s[%d]: %.9g, not %.9g", tensor->name, (int)j, values[0], values[1]);
      }
    }
  }
  ot_safetensors_destroy(&made);
}

static void dequantises_fp8_block_by_block_as_torch_does(void **state) {
  fixture *const f = *state;
  const ot_dtype wide = OT_F32;
  ot_safetensors *expected = NULL;
  assert_int_equal(ot_safetensors_create(fixture_path("fp8"), "expected", &expected), OT_OK);
  const char *const one = scratch_path(f->directory, "wide");
  const char *const other = scratch_path(f->directory, "narrow");
  const ot_convert_report report = convert(f, fixture_path("fp8"), one, &wide);
  assert_int_equal(report.notes.num_scaled, 14);
  assert_non_null(strstr(report.config_notes.text[0], "fp8 with a scale per block of 16 x 8"));
  assert_same_values(one, "model", expected, OT_F32);
  // Without --dtype they get the type that config.json gives for the others.
  convert(f, fixture_path("fp8"), other, NULL);
  assert_same_values(other, "model", expected, OT_BF16);
  int64_t bytes;
  char *const config = scratch_read(scratch_path(other, "config.json"), &bytes);
  config[bytes - 1] = '\0';
  assert_null(strstr(config, "quantization_config"));
  free(config);
  ot_safetensors_destroy(&expected);
}

// The weights and the config.json of a fixture, without the tensor `left_out` and with an extra
// vector called `added`; both may be null.
static void write_changed(fixture *f, const char *from, const char *left_out, const char *added,
                          const char *path) {
  static const float vector[2] = {1, 2};
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(from, "model", &set), OT_OK);
  ot_tensor_source *const model =
      ot_arena_array(&f->arena, ot_safetensors_count(set) + 1, sizeof *model);
  int count = 0;
  for (int i = 0; i < ot_safetensors_count(set); i++) {
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, i);
    if (left_out && strcmp(t->name, left_out) == 0) continue;
    ot_tensor_source *const source = &model[count++];
    *source = (ot_tensor_source){.name = t->name,
                                 .rank = t->rank,
                                 .dim = {t->dim[0], t->dim[1]},
                                 .data = tensor_data(set, i)};
    assert_true(ot_safetensors_type_dtype(t->type, &source->dtype));
  }
  if (added) {
    model[count++] =
        (ot_tensor_source){.name = added, .dtype = OT_F32, .rank = 1, .dim = {2}, .data = vector};
  }
  int64_t bytes;
  char *const config = scratch_read(scratch_path(from, "config.json"), &bytes);
  const ot_checkpoint_text text = {"config.json", config, bytes};
  const ot_checkpoint_content content = {
      .num_model = count, .model = model, .num_texts = 1, .texts = &text};
  if (ot_checkpoint_write(path, &content) != OT_OK) fail_msg("%s", ot_fail_message());
  free(config);
  ot_safetensors_destroy(&set);
}

static void refuses_fp8_whose_scales_are_not_whole(void **state) {
  fixture *const f = *state;
  ot_convert_report report;
  const char *set = "model.quantization_config=null";
  ot_convert_request request = {.from = fixture_path("fp8"),
                                .to = scratch_path(f->directory, "out"),
                                .sets = &set,
                                .num_sets = 1};
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_ENVIRONMENT);
  assert_message_has("is F8_E4M3, but config.json has no quantization_config");
  set = "model.quantization_config.weight_block_size=[16, 16]";
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_ENVIRONMENT);
  assert_message_has("in blocks of 16 x 16 needs [");
  request.num_sets = 0;
  request.from = scratch_path(f->directory, "from");
  write_changed(f, fixture_path("fp8"), "model.layers.1.self_attn.q_proj.weight_scale_inv", NULL,
                request.from);
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_ENVIRONMENT);
  assert_message_has("model.layers.1.self_attn.q_proj.weight_scale_inv is missing");
  // A scale without its weight is rejected.
  write_changed(f, fixture_path("fp8"), "model.layers.1.self_attn.q_proj.weight", NULL,
                request.from);
  assert_int_equal(ot_convert(&f->arena, &request, &report), OT_ENVIRONMENT);
  assert_message_has("1 tensor of the model missing: model.layers.1.self_attn.q_proj.weight");
  assert_false(ot_disk_is_directory(request.to));
}

static void leaves_out_layers_that_predict_further_tokens(void **state) {
  fixture *const f = *state;
  const char *const from = scratch_path(f->directory, "from");
  const char *const added = "model.layers.2.eh_proj.weight";
  write_changed(f, case_path("deepseek-v3"), NULL, added, from);
  const ot_convert_report report = convert(f, from, scratch_path(f->directory, "to"), NULL);
  assert_int_equal(report.notes.num_further, 1);
  // As many as the configuration says, and none of another model.
  const char *const set = "model.num_nextn_predict_layers=0";
  const ot_convert_request request = {
      .from = from, .to = scratch_path(f->directory, "out"), .sets = &set, .num_sets = 1};
  ot_convert_report none;
  assert_int_equal(ot_convert(&f->arena, &request, &none), OT_ENVIRONMENT);
  assert_message_has("1 tensor unknown to this model: model.layers.2.eh_proj.weight");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(round_trips_byte_for_byte, set_up, tear_down),
      cmocka_unit_test_setup_teardown(changes_the_dtype_and_the_config, set_up, tear_down),
      cmocka_unit_test_setup_teardown(takes_full_precision_copies_for_fp32, set_up, tear_down),
      cmocka_unit_test_setup_teardown(refuses_what_it_cannot_account_for, set_up, tear_down),
      cmocka_unit_test_setup_teardown(exports_no_hf_directory_for_unsupported_models, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(dequantises_fp8_block_by_block_as_torch_does, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(refuses_fp8_whose_scales_are_not_whole, set_up, tear_down),
      cmocka_unit_test_setup_teardown(leaves_out_layers_that_predict_further_tokens, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(copies_the_files_of_the_tokenizer, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
