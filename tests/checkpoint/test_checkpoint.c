// SPDX-License-Identifier: Apache-2.0
// run: alone. Checkpoints: saved data is read back bit for bit, every tensor is accounted for,
// every kind of damage is found and named.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_list.h"
#include "files/disk.h"
#include "host/heap.h"
#include "support/checkpoint_tensor.h"
#include "support/scratch.h"

enum { ROWS = 700, COLS = 900, ELEMENTS = ROWS * COLS };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  float weight[ELEMENTS];
  float norm[COLS];
  float moment[ELEMENTS];
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  for (int i = 0; i < ELEMENTS; i++) f->weight[i] = (float)(i % 1013) - 506.0f;
  for (int i = 0; i < COLS; i++) f->norm[i] = 1.0f / (float)(i + 1);
  for (int i = 0; i < ELEMENTS; i++) f->moment[i] = (float)i * 1e-9f;
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

// A source that converts a float array to bf16.
static ot_status fill_bf16(void *context, int64_t first, int64_t count, void *out) {
  const float *const values = context;
  for (int64_t i = 0; i < count; i++) ((uint16_t *)out)[i] = ot_bf16_from_float(values[first + i]);
  return OT_OK;
}

static const char config_json[] = "{\"model_type\": \"llama\"}\n";

static ot_manifest sample_manifest(int64_t step) {
  return (ot_manifest){.step = step,
                       .config = "{\"seed\":1,\"optimizer\":{\"lr\":0.0003,\"name\":\"adamw\"}}",
                       .mesh = {1, 1, 1, 1, 1, 1, 1, 1},
                       .next_sample = 64 * step,
                       .tokens = 1000 * step,
                       .state = "{\"updates\":7}"};
}

static ot_status save(fixture *f, const char *path, int64_t step, int64_t shard_bytes) {
  const ot_tensor_source model[] = {
      {.name = "w",
       .dtype = OT_BF16,
       .rank = 2,
       .dim = {ROWS, COLS},
       .fill = fill_bf16,
       .context = f->weight},
      {.name = "norm", .dtype = OT_F32, .rank = 1, .dim = {COLS}, .data = f->norm},
  };
  const ot_tensor_source optimizer[] = {
      {.name = "m.w", .dtype = OT_F32, .rank = 2, .dim = {ROWS, COLS}, .data = f->moment},
      {.name = "master.w", .dtype = OT_F32, .rank = 2, .dim = {ROWS, COLS}, .data = f->weight},
  };
  const ot_checkpoint_text texts[] = {{"config.json", config_json, sizeof config_json - 1}};
  const ot_manifest manifest = sample_manifest(step);
  const ot_checkpoint_content content = {.num_model = 2,
                                         .model = model,
                                         .num_optimizer = 2,
                                         .optimizer = optimizer,
                                         .num_texts = 1,
                                         .texts = texts,
                                         .manifest = &manifest,
                                         .shard_bytes = shard_bytes};
  return ot_checkpoint_write(path, &content);
}

static ot_checkpoint *open_checkpoint(const char *path) {
  ot_checkpoint *checkpoint = NULL;
  if (ot_checkpoint_create(path, &checkpoint) != OT_OK) fail_msg("%s", ot_fail_message());
  return checkpoint;
}

static void check_content(const fixture *f, ot_checkpoint *checkpoint) {
  static float read[ELEMENTS];
  assert_int_equal(checkpoint_read_tensor(checkpoint, "w", OT_F32, ELEMENTS, read), OT_OK);
  assert_memory_equal(read, f->weight, sizeof read);
  assert_int_equal(checkpoint_read_tensor(checkpoint, "norm", OT_F32, COLS, read), OT_OK);
  assert_memory_equal(read, f->norm, sizeof f->norm);
  assert_int_equal(checkpoint_read_tensor(checkpoint, "m.w", OT_F32, ELEMENTS, read), OT_OK);
  assert_memory_equal(read, f->moment, sizeof read);
  assert_int_equal(checkpoint_read_tensor(checkpoint, "master.w", OT_F32, ELEMENTS, read), OT_OK);
  assert_memory_equal(read, f->weight, sizeof read);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_MODEL), OT_OK);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER), OT_OK);
}

static void returns_what_was_saved(void **state) {
  fixture *const f = *state;
  // bf16 holds 8 bits: use weights that it represents exactly.
  for (int i = 0; i < ELEMENTS; i++) f->weight[i] = (float)(i % 251) - 125.0f;
  const int64_t shard_bytes[] = {0, 1000, 2 << 20};
  for (int i = 0; i < 3; i++) {
    const char *const path = scratch_path(f->directory, "step-00000100");
    assert_int_equal(save(f, path, 100, shard_bytes[i]), OT_OK);
    ot_checkpoint *checkpoint = open_checkpoint(path);
    check_content(f, checkpoint);
    const ot_manifest *const manifest = ot_checkpoint_manifest(checkpoint);
    assert_int_equal(manifest->step, 100);
    assert_int_equal(manifest->next_sample, 6400);
    assert_int_equal(manifest->tokens, 100000);
    assert_string_equal(manifest->config,
                        "{\"seed\":1,\"optimizer\":{\"lr\":0.00029999999999999997,\"name\":"
                        "\"adamw\"}}");
    assert_string_equal(manifest->state, "{\"updates\":7}");
    assert_int_equal(manifest->mesh.ranks, 1);
    assert_non_null(ot_checkpoint_file(checkpoint, "config.json"));
    assert_null(ot_checkpoint_file(checkpoint, "tokenizer.json"));
    ot_checkpoint_destroy(&checkpoint);
    assert_false(ot_disk_is_directory(scratch_path(f->directory, ".step-00000100.partial")));
  }
}

static void accounts_for_every_element(void **state) {
  fixture *const f = *state;
  const char *const path = scratch_path(f->directory, "c");
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  ot_checkpoint *checkpoint = open_checkpoint(path);
  static float read[ELEMENTS];
  assert_int_equal(checkpoint_read_tensor(checkpoint, "norm", OT_F32, COLS, read), OT_OK);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_MODEL), OT_ENVIRONMENT);
  assert_message_has("1 tensor not read completely: w");
  const int w = ot_safetensors_find(ot_checkpoint_tensors(checkpoint, OT_CHECKPOINT_MODEL), "w");
  for (int row = 0; row < ROWS; row++)
    assert_int_equal(ot_checkpoint_read_range(checkpoint, OT_CHECKPOINT_MODEL,
                                              (ot_safetensors_range){w, (int64_t)row * COLS, COLS},
                                              OT_F32, read),
                     OT_OK);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_MODEL), OT_OK);
  assert_int_equal(checkpoint_read_tensor(checkpoint, "norm", OT_F32, COLS, read), OT_OK);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_MODEL), OT_ENVIRONMENT);
  assert_message_has("1 tensor read more than once: norm");
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER),
                   OT_ENVIRONMENT);
  assert_message_has("2 tensors not read completely: m.w, master.w");
  const ot_safetensors *const optimizer =
      ot_checkpoint_tensors(checkpoint, OT_CHECKPOINT_OPTIMIZER);
  for (int i = 0; i < ot_safetensors_count(optimizer); i++)
    ot_checkpoint_skip(checkpoint, OT_CHECKPOINT_OPTIMIZER, i);
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER), OT_OK);
  ot_checkpoint_destroy(&checkpoint);
}

static void flip_byte(const char *path, int64_t at) {
  int64_t bytes;
  char *const data = scratch_read(path, &bytes);
  data[at < 0 ? bytes + at : at] ^= 0x10;
  scratch_write(path, data, bytes);
  free(data);
}

// That its files cannot be opened.
static void expect_unopened(const char *path, const char *message) {
  ot_checkpoint *checkpoint = NULL;
  if (ot_checkpoint_create(path, &checkpoint) == OT_OK) fail_msg("opened: %s", message);
  assert_null(checkpoint);
  assert_message_has(message);
}

// That its bytes differ from the manifest.
static void expect_damage(const char *path, const char *message) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_manifest manifest;
  const char *damage = NULL;
  assert_int_equal(ot_checkpoint_inspect(&arena, path, OT_CHECKPOINT_HASH_ALL, &manifest, &damage),
                   OT_OK);
  if (damage == NULL || strstr(damage, message) == NULL)
    fail_msg("found %s, expected %s", damage ? damage : "no damage", message);
  ot_heap_release(&heap);
}

static void finds_every_kind_of_damage(void **state) {
  fixture *const f = *state;
  const char *const path = scratch_path(f->directory, "c");
  char model[OT_PATH_BYTES], manifest[OT_PATH_BYTES], config[OT_PATH_BYTES];
  snprintf(model, sizeof model, "%s/model.safetensors", path);
  snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
  snprintf(config, sizeof config, "%s/config.json", path);

  assert_int_equal(save(f, path, 1, 0), OT_OK);
  flip_byte(model, -1000);
  expect_damage(path, "the content of");
  expect_damage(path, "model.safetensors");

  // Location: "norm" has the first 3,600 bytes after the header, "w" the rest.
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  flip_byte(model, 9000);
  expect_damage(path,
                "model.safetensors differs from its manifest: bytes 8192 to 12287, tensors w");
  flip_byte(model, 3000);
  expect_damage(path, "bytes 0 to 12287, tensors norm, w");
  flip_byte(model, 1);  // no header, no names
  expect_damage(path, "bytes 0 to 12287");

  assert_int_equal(save(f, path, 1, 0), OT_OK);
  assert_int_equal(truncate(model, 5000), 0);
  expect_unopened(path, "model.safetensors has 5000 bytes, its manifest states");

  assert_int_equal(save(f, path, 1, 0), OT_OK);
  assert_int_equal(unlink(config), 0);
  expect_unopened(path, "config.json is missing");

  // The tensors of another step: same sizes, same format.
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  f->weight[77] += 1.0f;
  assert_int_equal(save(f, scratch_path(f->directory, "other"), 2, 0), OT_OK);
  assert_int_equal(rename(scratch_path(f->directory, "other/optimizer.safetensors"),
                          scratch_path(path, "optimizer.safetensors")),
                   0);
  expect_damage(path, "optimizer.safetensors");
}

// Any changed byte of the manifest is found.
static void finds_every_changed_byte_of_the_manifest(void **state) {
  fixture *const f = *state;
  const char *const path = scratch_path(f->directory, "c");
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  int64_t bytes;
  char *const text = scratch_read(scratch_path(path, "manifest.json"), &bytes);
  const char *const own_key = strstr(text, "\"checksum\"");
  int accepted = 0;
  for (int64_t i = 0; i < bytes; i++) {
    const char before = text[i];
    text[i] ^= 0x01;
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    ot_manifest manifest;
    if (ot_manifest_build(&arena, "manifest.json", text, bytes, &manifest) == OT_OK) {
      // Only the name of the checksum's own key, or blanks around it, can change undetected.
      if (text + i < own_key - 4) fail_msg("change of byte %d was not detected", (int)i);
      accepted++;
    }
    ot_heap_release(&heap);
    text[i] = before;
  }
  assert_in_range(accepted, 0, 16);
  free(text);
}

// Errors found before the checksum is verified.
static const char *const bad_texts[][2] = {
    {"", "not valid JSON"},
    {"[]", "not an object"},
    {"{\"format\":1,\"format\":1}", "duplicate object key"},
    {"{\"format\":1}", "key \"checksum\" is missing"},
    {"{\"format\":1,\"checksum\":7}", "key \"checksum\" is not a text"},
    {"{\"format\":1,\"checksum\":\"12\"}", "does not match its checksum"},
};

#define GOOD_START                                                                                 \
  "{\"format\":1,\"step\":1,\"config\":{},\"mesh\":{\"pp\":1,\"vpp\":1,\"dp_replicate\":1,"        \
  "\"dp_shard\":1,\"cp\":1,\"ep\":1,\"tp\":1,\"ranks\":1},\"data\":{\"next_sample\":0,\"tokens\":" \
  "0}"

// Without their end, which `seal` adds.
static const char *const bad_manifests[][2] = {
    {"{\"format\":2", "format 2; this program reads format 1"},
    {"{\"format\":1", "key \"step\" is missing"},
    {"{\"format\":1,\"step\":-1", "key \"step\" is not a whole number"},
    {"{\"format\":1,\"step\":1,\"config\":[]", "key \"config\" is not an object"},
    {"{\"format\":1,\"step\":1,\"config\":{},\"mesh\":{}", "key \"pp\" is missing"},
    {"{\"format\":1,\"step\":1,\"config\":{},\"mesh\":{\"pp\":0}", "key \"pp\" is not in [1,"},
    {GOOD_START, "key \"files\" is missing"},
    {GOOD_START ",\"files\":{\"../x\":{\"bytes\":1}}", "\"../x\" is not the plain name"},
    {GOOD_START ",\"files\":{\"x\":1}", "file x: not an object"},
    {GOOD_START ",\"files\":{\"x\":{\"bytes\":1,\"xxh3_128\":\"12\"}}",
     "its hash is not 32 digits"},
    {GOOD_START
     ",\"files\":{\"x\":{\"bytes\":5000,\"xxh3_128\":\"00112233445566778899aabbccddeeff\","
     "\"piece_bytes\":4096,\"pieces_xxh3_64\":\"0011223344556677\"}}",
     "its blocks are not 5000 bytes"},
};

// The manifest that starts with `start`, with its checksum.
static const char *seal(const char *start) {
  static char text[1024];
  char hash[OT_CONTENT_HASH_BYTES];
  ot_content_hash_memory(start, (int64_t)strlen(start), hash);
  snprintf(text, sizeof text, "%s,\"checksum\":\"%s\"}", start, hash);
  return text;
}

static void expect_bad_manifest(const char *text, const char *message) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_manifest manifest;
  const ot_status status =
      ot_manifest_build(&arena, "manifest.json", text, (int64_t)strlen(text), &manifest);
  if (status != OT_ENVIRONMENT) fail_msg("accepted %s", text);
  assert_message_has("manifest.json");
  assert_message_has(message);
  ot_heap_release(&heap);
}

static void names_what_is_wrong_with_a_manifest(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++)
    expect_bad_manifest(bad_texts[i][0], bad_texts[i][1]);
  for (size_t i = 0; i < sizeof bad_manifests / sizeof bad_manifests[0]; i++)
    expect_bad_manifest(seal(bad_manifests[i][0]), bad_manifests[i][1]);
}

static void refuses_tensor_files_that_the_manifest_does_not_list(void **state) {
  fixture *const f = *state;
  const char *const path = scratch_path(f->directory, "c");
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  const char *const bare = seal(GOOD_START ",\"files\":{}");
  scratch_write(scratch_path(path, "manifest.json"), bare, (int64_t)strlen(bare));
  expect_unopened(path, "its manifest lists no model.safetensors");
}

// Opening a FIFO as manifest would block. Without a manifest, optimizer tensors distinguish a
// checkpoint from an HF directory.
static void refuses_a_checkpoint_whose_manifest_is_no_file(void **state) {
  fixture *const f = *state;
  const char *const path = scratch_path(f->directory, "c");
  const char *const manifest = scratch_path(path, "manifest.json");
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  assert_int_equal(unlink(manifest), 0);
  expect_unopened(path, "manifest.json is missing");
  assert_int_equal(mkfifo(manifest, 0600), 0);
  expect_unopened(path, "manifest.json is not a regular file");
}

// Two checkpoints of the same content, the second with its files open while `change` happens to
// them.
static ot_status compare_after(fixture *f, void (*change)(const char *model)) {
  const char *const path = scratch_path(f->directory, "c"), *const other =
                                                                scratch_path(f->directory, "d");
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  assert_int_equal(save(f, other, 1, 0), OT_OK);
  ot_checkpoint *a = open_checkpoint(path), *b = open_checkpoint(other);
  change(scratch_path(other, "model.safetensors"));
  ot_checkpoint_difference difference;
  const ot_status status = ot_checkpoint_compare(a, b, &f->arena, &difference);
  ot_checkpoint_destroy(&a);
  ot_checkpoint_destroy(&b);
  return status;
}

static void change_nothing(const char *model) { (void)model; }

static void cut(const char *model) { assert_int_equal(truncate(model, 500000), 0); }

static void change_a_byte(const char *model) { flip_byte(model, 500000); }

static void a_file_that_shrinks_or_changes_while_it_is_read_is_an_error(void **state) {
  fixture *const f = *state;
  assert_int_equal(compare_after(f, change_nothing), OT_OK);
  assert_int_equal(compare_after(f, cut), OT_ENVIRONMENT);
  assert_message_has("file ends at byte 500000");
  assert_int_equal(compare_after(f, change_a_byte), OT_ENVIRONMENT);
  assert_message_has("model.safetensors differs from its manifest: bytes 499712 to 503807");
  assert_message_has("tensors w");
}

static void a_file_that_the_manifest_does_not_list_is_none_of_it(void **state) {
  fixture *const f = *state;
  static const char *const strays[] = {"model.safetensors.index.json",
                                       "optimizer.safetensors.index.json", "model.safetensors"};
  for (int i = 0; i < 4; i++) {
    const char *const path = scratch_path(f->directory, i < 2 ? "single" : "shards");
    float norm[COLS];
    if (i == 0) assert_int_equal(save(f, path, 1, 0), OT_OK);
    if (i == 2) assert_int_equal(save(f, path, 1, 1 << 20), OT_OK);
    if (i < 3) scratch_write(scratch_path(path, strays[i]), "{}", 2);
    ot_checkpoint *checkpoint = open_checkpoint(path);
    assert_int_equal(checkpoint_read_tensor(checkpoint, "norm", OT_F32, COLS, norm), OT_OK);
    assert_memory_equal(norm, f->norm, sizeof norm);
    ot_checkpoint_destroy(&checkpoint);
  }
}

// The cache of the Hugging Face hub: names are links to files beside the directory.
static void follows_links_in_hf_directories_only(void **state) {
  fixture *const f = *state;
  const char *const path = scratch_path(f->directory, "c"),
                    *const model = scratch_path(path, "model.safetensors"),
                    *const linked = scratch_path(f->directory, "linked");
  ot_safetensors *set = NULL;
  assert_int_equal(save(f, path, 1, 0), OT_OK);
  assert_int_equal(symlink("c", linked), 0);
  ot_checkpoint *checkpoint = open_checkpoint(linked);
  ot_checkpoint_destroy(&checkpoint);
  assert_int_equal(rename(model, scratch_path(f->directory, "blob")), 0);
  assert_int_equal(symlink("../blob", model), 0);
  expect_unopened(path, "model.safetensors is not a regular file");
  assert_int_equal(ot_safetensors_create_own(NULL, path, "model.safetensors", &set),
                   OT_ENVIRONMENT);
  assert_message_has("not a regular file but a link");
  assert_int_equal(unlink(scratch_path(path, "manifest.json")), 0);
  assert_int_equal(unlink(scratch_path(path, "optimizer.safetensors")), 0);
  checkpoint = open_checkpoint(path);
  float norm[COLS];
  assert_int_equal(checkpoint_read_tensor(checkpoint, "norm", OT_F32, COLS, norm), OT_OK);
  assert_memory_equal(norm, f->norm, sizeof norm);
  ot_checkpoint_destroy(&checkpoint);
}

static void opens_a_directory_without_manifest(void **state) {
  (void)state;
  ot_checkpoint *checkpoint = open_checkpoint(fixture_path("train/sharded"));
  assert_null(ot_checkpoint_manifest(checkpoint));
  assert_null(ot_checkpoint_tensors(checkpoint, OT_CHECKPOINT_OPTIMIZER));
  assert_int_equal(ot_checkpoint_check_complete(checkpoint, OT_CHECKPOINT_OPTIMIZER), OT_OK);
  float norm[5];
  assert_int_equal(checkpoint_read_tensor(checkpoint, "norm.weight", OT_F32, 5, norm), OT_OK);
  assert_true(norm[4] == 1.0f);
  ot_checkpoint_destroy(&checkpoint);
  checkpoint = open_checkpoint(fixture_path("train/mixed.safetensors"));
  ot_checkpoint_destroy(&checkpoint);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(returns_what_was_saved, set_up, tear_down),
      cmocka_unit_test_setup_teardown(accounts_for_every_element, set_up, tear_down),
      cmocka_unit_test_setup_teardown(finds_every_kind_of_damage, set_up, tear_down),
      cmocka_unit_test_setup_teardown(finds_every_changed_byte_of_the_manifest, set_up, tear_down),
      cmocka_unit_test(names_what_is_wrong_with_a_manifest),
      cmocka_unit_test_setup_teardown(refuses_tensor_files_that_the_manifest_does_not_list, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(refuses_a_checkpoint_whose_manifest_is_no_file, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_file_that_shrinks_or_changes_while_it_is_read_is_an_error,
                                      set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_that_the_manifest_does_not_list_is_none_of_it, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(follows_links_in_hf_directories_only, set_up, tear_down),
      cmocka_unit_test(opens_a_directory_without_manifest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
