// SPDX-License-Identifier: Apache-2.0
// run: alone. Whole tensors of recorded steps: shards of every form, sums, copies that differ, and
// the message of each thing that may be wrong with them.
#include <math.h>

#include "judge/assemble.h"
#include "judge/test_record_files.h"

enum { MOST = 4096 };

static float numbers[MOST];  // i at i
static double whole[MOST];
static ot_assembly report;

static int begin_numbers(void **state) {
  for (int i = 0; i < MOST; i++) numbers[i] = (float)i;
  return begin(state);
}

// ---- writing ----

// One piece of grad/w, all of which is written by one rank.
typedef struct shard {
  const char *place;    // JSON
  int dims;             // of the stored values
  int64_t dim[4];       //
  const float *values;  // null: none of this rank
} shard;

static void write_shard(int rank, int world, const char *members, const shard *s) {
  const stored_tensor tensor = {.key = "grad/w",
                                .dtype = OT_F32,
                                .rank = s->dims,
                                .dim = {s->dim[0], s->dim[1], s->dim[2], s->dim[3]},
                                .data = s->values};
  write_tensors(rank, &tensor, s->values != NULL);
  write_rank(rank, world, members,
             s->values != NULL ? ot_arena_format(&arena, "\"grad/w\": %s", s->place) : "");
}

// Ranks of dp 2 x tp 2, or of fewer axes.
static void write_shards(const shard *shards, int world) {
  static const char *const axes[] = {"dp", "tp"};
  const int sizes[] = {world / 2, 2};
  for (int rank = 0; rank < world; rank++)
    write_shard(rank, world, mesh_of(axes, sizes, 2, rank), &shards[rank]);
}

// ---- assembling ----

static ot_status assemble_range(ot_assembly_request request, int64_t first, int64_t count,
                                void *out) {
  ot_recorded_view view;
  if (read_step() != OT_OK) fail_msg("%s", ot_fail_message());
  assert_true(ot_recorded_find(&step, OT_RECORDED_GRAD, "w", &view));
  request.view = &view;
  request.first = first;
  request.count = count < 0 ? view.elements : count;
  request.dtype = request.dtype == OT_F64 ? OT_F64 : OT_F32;
  memset(out, 0x7f, (size_t)(request.count * ot_dtype_bytes(request.dtype)));
  return ot_assemble(&step, &request, &arena, out, &report);
}

static ot_status assemble(ot_assembly_request request) {
  request.dtype = OT_F64;
  return assemble_range(request, 0, -1, whole);
}

static void assert_counts_up(int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (whole[i] != (double)i) fail_msg("element %d is %g", (int)i, whole[i]);
}

static void assert_assembled(int64_t count) {
  if (assemble((ot_assembly_request){0}) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_counts_up(count);
}

// The values of block [rows, columns] at (row, column) of a matrix with `width` columns.
static const float *block_of(int row, int column, int rows, int columns, int width) {
  float *const values = ot_arena_array(&arena, rows * columns, sizeof *values);
  for (int i = 0; i < rows * columns; i++)
    values[i] = (float)((row + i / columns) * width + column + i % columns);
  return values;
}

// ---- shards ----

static void joins_shards_of_two_dimensions(void **state) {
  (void)state;
  const shard shards[] = {
      {"{\"shape\": [6, 4], \"offset\": [0, 0]}", 2, {3, 2}, block_of(0, 0, 3, 2, 4)},
      {"{\"shape\": [6, 4], \"offset\": [0, 2]}", 2, {3, 2}, block_of(0, 2, 3, 2, 4)},
      {"{\"shape\": [6, 4], \"offset\": [3, 0]}", 2, {3, 2}, block_of(3, 0, 3, 2, 4)},
      {"{\"shape\": [6, 4], \"offset\": [3, 2]}", 2, {3, 2}, block_of(3, 2, 3, 2, 4)}};
  write_shards(shards, 4);
  assert_assembled(24);
  assert_int_equal(report.copied_axes, 0);
  assert_int_equal(report.num_differences, 0);
  float narrow[24];
  assert_int_equal(assemble_range((ot_assembly_request){0}, 0, -1, narrow), OT_OK);
  assert_memory_equal(narrow, numbers, sizeof narrow);
}

// Five rows over four ranks: 2, 2, 1, 0, and 3 columns as 2 and 1.
static void joins_uneven_shards(void **state) {
  (void)state;
  const shard rows[] = {{"{\"shape\": [5, 3], \"offset\": [0, 0]}", 2, {2, 3}, numbers},
                        {"{\"shape\": [5, 3], \"offset\": [2, 0]}", 2, {2, 3}, numbers + 6},
                        {"{\"shape\": [5, 3], \"offset\": [4, 0]}", 2, {1, 3}, numbers + 12},
                        {"{\"shape\": [5, 3], \"offset\": [5, 0]}", 2, {0, 3}, numbers}};
  const shard columns[] = {
      {"{\"shape\": [5, 3], \"offset\": [0, 0]}", 2, {5, 2}, block_of(0, 0, 5, 2, 3)},
      {"{\"shape\": [5, 3], \"offset\": [0, 2]}", 2, {5, 1}, block_of(0, 2, 5, 1, 3)}};
  write_shards(rows, 4);
  assert_assembled(15);
  write_shards(columns, 2);
  remove(scratch_path(folder, "rank-00002.json"));
  remove(scratch_path(folder, "rank-00003.json"));
  assert_assembled(15);
}

// As ZeRO cuts: ranges of the flattened tensor, and of a block of it.
static void joins_flat_ranges(void **state) {
  (void)state;
  const shard ranges[] = {{"{\"shape\": [5, 3], \"flat\": [0, 7]}", 1, {7}, numbers},
                          {"{\"shape\": [5, 3], \"flat\": [7, 8]}", 1, {8}, numbers + 7}};
  write_shards(ranges, 2);
  assert_assembled(15);
  // Columns 1 to 2 of 4 x 3 are elements 1 2, 4 5, 7 8, 10 11; rank 0 has those and 0, 3 of column
  // 0.
  static const float mixed[] = {1, 2, 5, 8, 10}, others[] = {4, 7, 11};
  static const float first[] = {0, 3, 6, 9};
  const shard blocks[] = {
      {"{\"shape\": [4, 3], \"offset\": [0, 1], \"block\": [4, 2], \"flat\": [0, 2, 3, 1, 5, 2]}",
       1,
       {5},
       mixed},
      {"{\"shape\": [4, 3], \"offset\": [0, 1], \"block\": [4, 2], \"flat\": [2, 1, 4, 1, 7, 1]}",
       1,
       {3},
       others},
      {"{\"shape\": [4, 3], \"offset\": [0, 0], \"block\": [4, 1], \"flat\": [0, 4]}",
       1,
       {4},
       first},
      {"{\"shape\": [4, 3], \"flat\": []}", 1, {0}, first}};
  write_shards(blocks, 4);
  assert_assembled(12);
}

static void joins_scalars_and_tensors_of_four_dimensions(void **state) {
  (void)state;
  const shard scalar = {"{}", 0, {0}, numbers};
  write_shard(0, 1, "", &scalar);
  assert_assembled(1);
  const shard halves[] = {
      {"{\"shape\": [2, 3, 2, 5], \"offset\": [0, 0, 0, 0]}", 4, {1, 3, 2, 5}, numbers},
      {"{\"shape\": [2, 3, 2, 5], \"offset\": [1, 0, 0, 0]}", 4, {1, 3, 2, 5}, numbers + 30}};
  write_shards(halves, 2);
  assert_assembled(60);
}

// Any range of a tensor is the same as that part of the whole, over borders of the chunks in which
// pieces are read, too.
static void reads_ranges_of_large_tensors(void **state) {
  (void)state;
  enum { ROWS = 300, COLUMNS = 256, ELEMENTS = ROWS * COLUMNS, TRIALS = 200 };
  float *const values = ot_arena_array(&arena, ELEMENTS, sizeof *values);
  float *const left = ot_arena_array(&arena, ELEMENTS, sizeof *left);
  float *const right = ot_arena_array(&arena, ELEMENTS, sizeof *right);
  float *const part = ot_arena_array(&arena, ELEMENTS, sizeof *part);
  for (int i = 0; i < ELEMENTS; i++) values[i] = (float)i;
  for (int i = 0; i < ROWS; i++) {
    memcpy(left + i * 200, values + i * COLUMNS, 200 * sizeof *left);
    memcpy(right + i * 56, values + i * COLUMNS + 200, 56 * sizeof *right);
  }
  const shard shards[] = {{"{\"shape\": [300, 256], \"offset\": [0, 0]}", 2, {ROWS, 200}, left},
                          {"{\"shape\": [300, 256], \"offset\": [0, 200]}", 2, {ROWS, 56}, right}};
  write_shards(shards, 2);
  uint64_t seed = 1;
  for (int trial = 0; trial < TRIALS; trial++) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const int64_t first = (int64_t)(seed >> 33) % ELEMENTS;
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const int64_t count =
        trial == 0 ? ELEMENTS - first : (int64_t)(seed >> 33) % (ELEMENTS - first);
    if (assemble_range((ot_assembly_request){0}, first, count, part) != OT_OK)
      fail_msg("%s", ot_fail_message());
    if (memcmp(part, values + first, (size_t)count * sizeof *part) != 0)
      fail_msg("elements %d to %d differ", (int)first, (int)(first + count));
  }
}

// ---- sums ----

static void sums_partial_pieces(void **state) {
  (void)state;
  static const float a[] = {0, 0.25f, 3, 1}, b[] = {0, 0.75f, -1, 2};
#define PARTIAL "{\"partial\": [\"tp\"]}"
  const shard parts[] = {
      {PARTIAL, 1, {4}, a}, {PARTIAL, 1, {4}, b}, {PARTIAL, 1, {4}, a}, {PARTIAL, 1, {4}, b}};
  write_shards(parts, 4);
  assert_assembled(4);
  assert_int_equal(report.copied_axes, 1);  // dp
  assert_int_equal(report.differing_axes, 0);
  shard fewer[] = {parts[0], parts[1], parts[2], parts[3]};
  fewer[3].values = NULL;
  write_shards(fewer, 4);
  assert_int_equal(assemble((ot_assembly_request){0}), OT_USAGE);
  assert_message_has(
      "tensor grad/w is partial over tp, but of the 2 pieces to be summed with that "
      "of rank 2 the record has 1");
#undef PARTIAL
}

// A sum over an axis where each rank has a shard of its own, and over both axes.
static void sums_over_one_axis_of_shards(void **state) {
  (void)state;
  static const float low[] = {0, 0.5f}, high[] = {1, 1.5f};
#define AT(offset) "{\"shape\": [4], \"offset\": [" offset "], \"partial\": [\"dp\"]}"
  const shard parts[] = {{AT("0"), 1, {2}, low},
                         {AT("2"), 1, {2}, high},
                         {AT("0"), 1, {2}, low},
                         {AT("2"), 1, {2}, high}};
  write_shards(parts, 4);
  assert_assembled(4);
  static const float quarter[] = {0, 0.25f};
#define BOTH "{\"partial\": [\"tp\", \"dp\"]}"
  const shard all[] = {{BOTH, 1, {2}, quarter},
                       {BOTH, 1, {2}, quarter},
                       {BOTH, 1, {2}, quarter},
                       {BOTH, 1, {2}, quarter}};
  write_shards(all, 4);
  assert_assembled(2);
#undef AT
#undef BOTH
}

// ---- copies ----

static void compares_copies_bit_by_bit(void **state) {
  (void)state;
  static const float right[] = {0, 1, 2, 3}, zero[] = {-0.0f, 1, 2, 3}, wrong[] = {0, 1, 5, 7};
  shard copies[] = {
      {"{}", 1, {4}, right}, {"{}", 1, {4}, right}, {"{}", 1, {4}, right}, {"{}", 1, {4}, right}};
  write_shards(copies, 4);
  assert_assembled(4);
  assert_int_equal(report.copied_axes, 3);
  assert_int_equal(report.differing_axes, 0);

  copies[1].values = copies[3].values = wrong;  // of tp rank 1
  write_shards(copies, 4);
  assert_assembled(4);
  assert_int_equal(report.differing_axes, 2);
  assert_int_equal(report.num_differences, 2);
  const ot_copy_difference *const d = &report.differences[1];
  assert_int_equal(d->rank, 3);
  assert_int_equal(d->other, 0);
  assert_int_equal(d->axes, 3);
  assert_int_equal(d->elements, 2);
  assert_int_equal(d->first, 2);
  assert_true(fabs(d->relative - 5 / sqrt(14)) < 1e-15);

  copies[1].values = right;  // of one rank only
  write_shards(copies, 4);
  assert_assembled(4);
  assert_int_equal(report.differing_axes, 3);
  copies[3].values = zero;
  write_shards(copies, 4);
  assert_assembled(4);
  assert_int_equal(report.num_differences, 1);
  assert_int_equal(report.differences[0].elements, 1);
  assert_true(report.differences[0].relative == 0);
}

static void accepts_values_that_are_no_numbers(void **state) {
  (void)state;
  static const float some[] = {0, NAN, 2, INFINITY}, other[] = {0, NAN, 3, 4};
  const shard copies[] = {{"{}", 1, {4}, some}, {"{}", 1, {4}, other}};
  write_shards(copies, 2);
  assert_int_equal(assemble((ot_assembly_request){0}), OT_OK);
  assert_true(isnan(whole[1]) && isinf(whole[3]));
  assert_int_equal(report.differences[0].elements, 2);
  assert_true(report.differences[0].relative == 0.5);
}

static void sums_or_chooses_copies_on_request(void **state) {
  (void)state;
  static const float a[] = {0, 0.25f, 3, 1}, b[] = {0, 0.75f, -1, 2};
  const shard copies[] = {
      {"{}", 1, {4}, a}, {"{}", 1, {4}, b}, {"{}", 1, {4}, a}, {"{}", 1, {4}, b}};
  write_shards(copies, 4);
  assert_int_equal(assemble((ot_assembly_request){.sum_axes = 2}), OT_OK);
  assert_counts_up(4);
  assert_int_equal(report.copied_axes, 1);
  assert_int_equal(assemble((ot_assembly_request){.choose = true, .axis = 1, .coordinate = 1}),
                   OT_OK);
  assert_true(whole[2] == -1 && whole[3] == 2);
  assert_int_equal(report.differences[0].other, 1);
  assert_int_equal(assemble((ot_assembly_request){.choose = true, .axis = 1}), OT_OK);
  assert_true(whole[2] == 3);
}

// Expert parallelism made of the ranks of dp and tp: the axis ep follows from the others.
static void knows_axes_that_follow_from_others(void **state) {
  (void)state;
  static const char *const axes[] = {"dp", "tp"};
  static const int sizes[] = {2, 2};
  static const float a[] = {0, 1}, b[] = {0, 3};
  for (int rank = 0; rank < 4; rank++) {
    const char *const mesh = mesh_of(axes, sizes, 2, rank);
    const char *const wider =
        ot_arena_format(&arena,
                        "\"mesh\": {\"dp\": 2, \"tp\": 2, \"ep\": 4}, \"coordinates\": "
                        "{\"ep\": %d, %s",
                        rank, strstr(mesh, "\"coordinates\": {") + strlen("\"coordinates\": {"));
    const shard copy = {"{}", 1, {2}, rank % 2 == 0 ? a : b};
    write_shard(rank, 4, wider, &copy);
  }
  assert_assembled(2);
  assert_int_equal(step.num_axes, 3);
  assert_int_equal(report.differing_axes & 3, 2);  // tp, not dp
  assert_int_equal(assemble((ot_assembly_request){.sum_axes = 2}), OT_OK);
  assert_true(whole[1] == 4);
  assert_int_equal(report.num_differences, 0);
}

// ---- what does not fit ----

static void names_overlaps_and_holes(void **state) {
  (void)state;
  static const float same[] = {2, 3, 4, 5}, other[] = {2, 9, 4, 5};
  shard parts[] = {{"{\"shape\": [6], \"offset\": [0]}", 1, {4}, numbers},
                   {"{\"shape\": [6], \"offset\": [2]}", 1, {4}, same}};
  write_shards(parts, 2);
  assert_assembled(6);
  const shard within[] = {parts[0], {"{\"shape\": [6]}", 1, {6}, numbers}};
  write_shards(within, 2);
  assert_assembled(6);
  assert_int_equal(report.copied_axes, 0);
  parts[1].values = other;
  write_shards(parts, 2);
  assert_int_equal(assemble((ot_assembly_request){0}), OT_USAGE);
  assert_message_has(
      "tensor grad/w: element 3 is 9 at rank 1, and another value at a rank whose "
      "part overlaps");
  const shard holes[] = {{"{\"shape\": [3, 2], \"flat\": [0, 2]}", 1, {2}, numbers},
                         {"{\"shape\": [3, 2], \"flat\": [1, 1, 5, 1]}", 1, {2}, other},
                         {"{\"shape\": [3, 2], \"flat\": [0, 2]}", 1, {2}, numbers},
                         {"", 0, {0}, NULL}};
  static const float fit[] = {1, 5};
  shard fitting[] = {holes[0], holes[1], holes[2], holes[3]};
  fitting[1].values = fit;
  write_shards(fitting, 4);
  assert_int_equal(assemble((ot_assembly_request){0}), OT_USAGE);
  assert_message_has("tensor grad/w: no rank holds elements 2 to 4 of [3, 2]; ranks 0, 1, 2 hold");
  assert_int_equal(assemble_range((ot_assembly_request){0}, 5, 1, whole), OT_OK);
}

static void names_a_file_that_was_cut(void **state) {
  (void)state;
  const shard one = {"{}", 1, {4}, numbers};
  ot_recorded_view view;
  write_shard(0, 1, "", &one);
  assert_read();
  assert_true(ot_recorded_find(&step, OT_RECORDED_GRAD, "w", &view));
  int64_t bytes;
  const char *const path = scratch_path(folder, "rank-00000.safetensors");
  char *const file = scratch_read(path, &bytes);
  scratch_write(path, file, bytes - 4);
  free(file);
  const ot_assembly_request request = {.view = &view, .count = 4, .dtype = OT_F64};
  assert_int_equal(ot_assemble(&step, &request, &arena, whole, &report), OT_ENVIRONMENT);
  assert_message_has("rank-00000.safetensors");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_numbers, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(joins_shards_of_two_dimensions),
      TEST(joins_uneven_shards),
      TEST(joins_flat_ranges),
      TEST(joins_scalars_and_tensors_of_four_dimensions),
      TEST(reads_ranges_of_large_tensors),
      TEST(sums_partial_pieces),
      TEST(sums_over_one_axis_of_shards),
      TEST(compares_copies_bit_by_bit),
      TEST(accepts_values_that_are_no_numbers),
      TEST(sums_or_chooses_copies_on_request),
      TEST(knows_axes_that_follow_from_others),
      TEST(names_overlaps_and_holes),
      TEST(names_a_file_that_was_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
