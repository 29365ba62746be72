// SPDX-License-Identifier: Apache-2.0
// run: alone. Tensor files against files of the format's Python writer
// (fixtures/train/make_safetensors.py): reading gives the same values, writing the same bytes.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/safetensors_writer.h"
#include "host/heap.h"
#include "support/faults.h"
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

static ot_safetensors *open_fixture(const char *name) {
  ot_safetensors *set = NULL;
  const ot_status status = ot_safetensors_create(fixture_path(name), "model", &set);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
  return set;
}

static void read_all(const ot_safetensors *set, const char *name, ot_dtype dtype, void *out) {
  const int tensor = ot_safetensors_find(set, name);
  assert_true(tensor >= 0);
  const int64_t elements = ot_safetensors_tensor_at(set, tensor)->elements;
  assert_int_equal(
      ot_safetensors_read(set, (ot_safetensors_range){tensor, 0, elements}, dtype, out), OT_OK);
}

static void reads_every_type_of_the_reference_file(void **state) {
  (void)state;
  ot_safetensors *set = open_fixture("train/mixed.safetensors");
  assert_int_equal(ot_safetensors_count(set), 14);
  float f32[6];
  read_all(set, "b.f32", OT_F32, f32);
  for (int i = 0; i < 6; i++) assert_true(f32[i] == 0.5f * (float)i - 1.0f);
  double f64[4];
  read_all(set, "z.f64", OT_F64, f64);
  assert_true(f64[0] == -1.0 && f64[1] == -0.5);
  read_all(set, "bf16", OT_F64, f64);
  assert_true(f64[0] == -1.0 && f64[3] == 0.5);
  read_all(set, "f16", OT_F32, f32);
  assert_true(f32[0] == -1.0f && f32[1] == -0.5f && f32[2] == 0.0f);
  int32_t i32[4];
  read_all(set, "i32", OT_I32, i32);
  assert_int_equal(i32[0], -2);
  int64_t i64[2];
  read_all(set, "i64", OT_I64, i64);
  assert_int_equal(i64[0], -1);
  read_all(set, "scalar", OT_F32, f32);
  assert_true(f32[0] == 2.5f);
  const ot_safetensors_tensor *const empty =
      ot_safetensors_tensor_at(set, ot_safetensors_find(set, "empty"));
  assert_int_equal(empty->rank, 2);
  assert_int_equal(empty->dim[1], 7);
  assert_int_equal(empty->bytes, 0);
  assert_int_equal(ot_safetensors_find(set, "absent"), -1);
  assert_true(ot_safetensors_find(set, "gr\xc3\xb6\xc3\x9f\x65") >= 0);
  ot_safetensors_destroy(&set);
}

static void reads_ranges_and_maps_the_same_bytes(void **state) {
  (void)state;
  ot_safetensors *set = open_fixture("train/mixed.safetensors");
  const int tensor = ot_safetensors_find(set, "b.f32");
  float part[2];
  assert_int_equal(ot_safetensors_read(set, (ot_safetensors_range){tensor, 3, 2}, OT_F32, part),
                   OT_OK);
  assert_true(part[0] == 0.5f && part[1] == 1.0f);
  assert_memory_equal(part, (const char *)tensor_data(set, tensor) + 12, 8);
  uint8_t bytes[6];
  assert_int_equal(ot_safetensors_read(set, (ot_safetensors_range){tensor, 0, 6}, OT_U8, bytes),
                   OT_ENVIRONMENT);
  assert_message_has("tensor b.f32 is F32 and cannot be read as uint8");
  ot_safetensors_destroy(&set);
}

typedef struct copy_request {
  const char *const *names;  // order of the request; null: as in `set`
  int64_t shard_bytes;
  ot_content_record *records;  // result
  int num_records;
} copy_request;

static void clear_files(const char *directory, const ot_safetensors_layout *layout) {
  for (int i = 0; i < layout->num_files; i++)
    remove(scratch_path(directory, layout->files[i].name));
}

// Writes the whole tensors of `set` to the fixture's directory.
static ot_status write_copy(fixture *f, const ot_safetensors *set, copy_request *copy) {
  const int n = ot_safetensors_count(set);
  ot_safetensors_tensor *const tensors = ot_arena_array(&f->arena, n, sizeof *tensors);
  int *const source = ot_arena_array(&f->arena, n, sizeof *source);
  for (int i = 0; i < n; i++) {
    source[i] = copy->names != NULL ? ot_safetensors_find(set, copy->names[i]) : i;
    tensors[i] = *ot_safetensors_tensor_at(set, source[i]);
  }
  const ot_safetensors_request request = {"model", copy->shard_bytes, n, tensors};
  ot_safetensors_layout layout;
  OT_TRY(ot_safetensors_layout_build(&f->arena, &request, &layout));
  ot_safetensors_writer *writer = NULL;
  copy->num_records = layout.num_files;
  copy->records = ot_arena_array(&f->arena, layout.num_files, sizeof *copy->records);
  clear_files(f->directory, &layout);
  OT_TRY(ot_safetensors_files_create(f->directory, &layout));
  ot_status status = ot_safetensors_writer_create(f->directory, &layout, &writer);
  for (int i = 0; i < layout.num_files && status == OT_OK; i++)
    status = ot_safetensors_write_header(writer, i);
  for (int i = 0; i < n && status == OT_OK; i++)
    status = ot_safetensors_write_tensor(writer, i, tensor_data(set, source[i]));
  if (status == OT_OK) status = ot_safetensors_writer_finish(writer, &f->arena, copy->records);
  if (layout.index_name)
    scratch_write(scratch_path(f->directory, layout.index_name), layout.index_text,
                  (int64_t)strlen(layout.index_text));
  ot_safetensors_writer_destroy(&writer);
  return status;
}

static void check_records(fixture *f, const ot_content_record *records, int num_records) {
  for (int i = 0; i < num_records; i++) {
    const char *const path = scratch_path(f->directory, records[i].name);
    ot_content_record read;
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, records[i].bytes);
    assert_int_equal(ot_content_record_read(&f->arena, path, &read), OT_OK);
    assert_string_equal(read.hash, records[i].hash);
  }
}

static void writes_the_bytes_of_the_reference_writer(void **state) {
  fixture *const f = *state;
  ot_safetensors *set = open_fixture("train/mixed.safetensors");
  copy_request copy = {0};
  assert_int_equal(write_copy(f, set, &copy), OT_OK);
  assert_int_equal(copy.num_records, 1);
  check_records(f, copy.records, copy.num_records);
  assert_files_equal(scratch_path(f->directory, "model.safetensors"),
                     fixture_path("train/mixed.safetensors"));
  ot_safetensors_destroy(&set);
}

static void writes_shards_and_index_as_transformers_does(void **state) {
  fixture *const f = *state;
  ot_safetensors *set = open_fixture("train/sharded");
  assert_int_equal(ot_safetensors_num_files(set), 3);
  const char *const names[] = {"layers.0.weight", "layers.1.weight", "layers.2.weight",
                               "layers.3.weight", "layers.4.weight", "norm.weight"};
  copy_request copy = {.names = names, .shard_bytes = 170};
  assert_int_equal(write_copy(f, set, &copy), OT_OK);
  assert_int_equal(copy.num_records, 3);
  check_records(f, copy.records, copy.num_records);
  assert_files_equal(scratch_path(f->directory, "model.safetensors.index.json"),
                     fixture_path("train/sharded/model.safetensors.index.json"));
  for (int i = 0; i < copy.num_records; i++) {
    char name[SCRATCH_BYTES] = "train/sharded/";
    strncat(name, copy.records[i].name, sizeof name - strlen(name) - 1);
    assert_files_equal(scratch_path(f->directory, copy.records[i].name), fixture_path(name));
  }
  ot_safetensors_destroy(&set);
}

static void writes_the_worked_example_of_100_bytes(void **state) {
  fixture *const f = *state;
  const ot_safetensors_tensor w = {.name = "w", .type = OT_SAFETENSORS_BF16, .rank = 1, .dim = {2}};
  const ot_safetensors_request request = {"model", 0, 1, &w};
  ot_safetensors_layout layout;
  assert_int_equal(ot_safetensors_layout_build(&f->arena, &request, &layout), OT_OK);
  static const char expected[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"BF16\",\"shape\":[2],"
      "\"data_offsets\":[0,4]}}  ";
  assert_int_equal(layout.files[0].file_bytes, 100);
  assert_int_equal(layout.files[0].header_bytes, 96);
  assert_memory_equal(layout.files[0].header, "\x58\0\0\0\0\0\0\0", 8);
  assert_memory_equal(layout.files[0].header + 8, expected, 88);
}

static ot_safetensors_writer *start_writer(fixture *f, const ot_safetensors_tensor *tensors,
                                           int num_tensors) {
  const ot_safetensors_request request = {"model", 0, num_tensors, tensors};
  ot_safetensors_layout *const layout = ot_arena_take(&f->arena, sizeof *layout);
  assert_int_equal(ot_safetensors_layout_build(&f->arena, &request, layout), OT_OK);
  ot_safetensors_writer *writer = NULL;
  clear_files(f->directory, layout);
  assert_int_equal(ot_safetensors_files_create(f->directory, layout), OT_OK);
  assert_int_equal(ot_safetensors_writer_create(f->directory, layout, &writer), OT_OK);
  assert_int_equal(ot_safetensors_write_header(writer, 0), OT_OK);
  return writer;
}

static void hashes_slices_that_come_out_of_order(void **state) {
  fixture *const f = *state;
  const ot_safetensors_tensor tensors[] = {
      {.name = "a", .type = OT_SAFETENSORS_F32, .rank = 1, .dim = {1000}},
      {.name = "b", .type = OT_SAFETENSORS_F32, .rank = 2, .dim = {10, 50}},
  };
  ot_safetensors_writer *writer = start_writer(f, tensors, 2);
  float data[1000];
  for (int i = 0; i < 1000; i++) data[i] = (float)i;
  assert_int_equal(ot_safetensors_write_tensor(writer, 1, data), OT_OK);
  for (int i = 900; i >= 0; i -= 100)
    assert_int_equal(ot_safetensors_write(writer, (ot_safetensors_range){0, i, 100}, data + i),
                     OT_OK);
  ot_content_record record;
  assert_int_equal(ot_safetensors_writer_finish(writer, &f->arena, &record), OT_OK);
  ot_safetensors_writer_destroy(&writer);
  check_records(f, &record, 1);
  ot_safetensors *set = NULL;
  assert_int_equal(ot_safetensors_create(f->directory, "model", &set), OT_OK);
  assert_memory_equal(tensor_data(set, 0), data, sizeof data);
  assert_memory_equal(tensor_data(set, 1), data, 500 * sizeof *data);
  ot_safetensors_destroy(&set);
}

static void refuses_to_finish_with_elements_missing(void **state) {
  fixture *const f = *state;
  const ot_safetensors_tensor w = {.name = "w", .type = OT_SAFETENSORS_F32, .rank = 1, .dim = {4}};
  ot_safetensors_writer *writer = start_writer(f, &w, 1);
  const float data[4] = {0};
  assert_int_equal(ot_safetensors_write(writer, (ot_safetensors_range){0, 0, 3}, data), OT_OK);
  ot_content_record record;
  assert_int_equal(ot_safetensors_writer_finish(writer, &f->arena, &record), OT_BUG);
  assert_message_has("tensor w: 3 of 4 elements were written");
  ot_safetensors_writer_destroy(&writer);
}

static void refuses_to_lay_out_a_name_twice(void **state) {
  fixture *const f = *state;
  const ot_safetensors_tensor twice[] = {{.name = "w"}, {.name = "v"}, {.name = "w"}};
  const ot_safetensors_request request = {"model", 0, 3, twice};
  ot_safetensors_layout layout;
  assert_int_equal(ot_safetensors_layout_build(&f->arena, &request, &layout), OT_BUG);
  assert_message_has("tensor w is given twice");
}

// Each system call of a write fails in turn, with ENOSPC and EIO.
static void reports_a_failure_of_every_system_call(void **state) {
  fixture *const f = *state;
  ot_safetensors *set = open_fixture("train/sharded");
  copy_request copy = {.shard_bytes = 170};
  faults_arm(0, 0);
  assert_int_equal(write_copy(f, set, &copy), OT_OK);
  const int calls = faults_count();
  assert_true(calls > 15);
  const int errors[] = {ENOSPC, EIO, EDQUOT};
  for (int call = 1; call <= calls; call++) {
    for (int i = 0; i < 3; i++) {
      faults_arm(call, errors[i]);
      const ot_status status = write_copy(f, set, &copy);
      faults_arm(0, 0);
      assert_int_equal(status, OT_ENVIRONMENT);
      assert_message_has(strerror(errors[i]));
      assert_message_has(f->directory);
    }
  }
  ot_safetensors_destroy(&set);
}

static void survives_interrupted_and_short_writes(void **state) {
  fixture *const f = *state;
  ot_safetensors *set = open_fixture("train/mixed.safetensors");
  copy_request copy = {0};
  faults_short_writes(7);
  const ot_status status = write_copy(f, set, &copy);
  faults_short_writes(0);
  assert_int_equal(status, OT_OK);
  assert_files_equal(scratch_path(f->directory, "model.safetensors"),
                     fixture_path("train/mixed.safetensors"));
  faults_arm(5, EINTR);  // the first write, of the header
  assert_int_equal(write_copy(f, set, &copy), OT_OK);
  faults_arm(0, 0);
  ot_safetensors_destroy(&set);
}

static void reports_a_file_size_limit(void **state) {
  fixture *const f = *state;
  ot_safetensors *set = open_fixture("train/mixed.safetensors");
  struct rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small = {900, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  copy_request copy = {0};
  const ot_status status = write_copy(f, set, &copy);
  setrlimit(RLIMIT_FSIZE, &before);
  assert_int_equal(status, OT_ENVIRONMENT);
  assert_message_has("cannot reserve space: File too large");
  ot_safetensors_destroy(&set);
}

static void hashes_as_the_published_vector(void **state) {
  (void)state;
  char hash[OT_CONTENT_HASH_BYTES];
  ot_content_hash_memory("", 0, hash);
  assert_string_equal(hash, "99aa06d3014798d86001c324468d497f");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_every_type_of_the_reference_file),
      cmocka_unit_test(reads_ranges_and_maps_the_same_bytes),
      cmocka_unit_test_setup_teardown(writes_the_bytes_of_the_reference_writer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(writes_shards_and_index_as_transformers_does, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(writes_the_worked_example_of_100_bytes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(hashes_slices_that_come_out_of_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(refuses_to_finish_with_elements_missing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(refuses_to_lay_out_a_name_twice, set_up, tear_down),
      cmocka_unit_test_setup_teardown(reports_a_failure_of_every_system_call, set_up, tear_down),
      cmocka_unit_test_setup_teardown(survives_interrupted_and_short_writes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(reports_a_file_size_limit, set_up, tear_down),
      cmocka_unit_test(hashes_as_the_published_vector),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
