// SPDX-License-Identifier: Apache-2.0
// run: alone. Records of training steps: what their texts say, and the message of each thing that
// may be wrong with them.
#include "base/text.h"
#include "judge/test_record_files.h"

static const float six[] = {0, 1, 2, 3, 4, 5};
static const int32_t tokens[] = {3, 1, 4, 1};
static const int32_t others[] = {3, 1, 4, 2};

// ---- what is read ----

static void write_mesh_rank(int rank, const char *scalars, const char *more) {
  const stored_tensor tensors[] = {
      STORED("grad/w", OT_F32, six, 3, 2), STORED("master/w", OT_F64, six, 1),
      STORED("spectrum/w", OT_F32, six, 2), STORED("batch/0.ids", OT_I32, tokens, 1, 4)};
  const char *const members = ot_arena_format(
      &arena,
      "\"mesh\": {\"dp\": 2, \"tp\": 2}, \"coordinates\": {\"tp\": %d, \"dp\": %d}, "
      "\"moment\": \"reduced\", \"software\": \"s%d\", \"note\": \"n\", \"dropout\": %s, "
      "\"batches\": [{\"micro\": 0, \"shifted\": true}], \"scalars\": {%s}, \"future\": [{}],"
      "\"aliases\": {\"head\": \"w\"}, \"optimizer\": {\"class\": \"AdamW\", \"groups\": ["
      "{\"names\": [\"w\"], \"settings\": {\"lr\": 0.5, \"betas\": [0.9, 0.95], \"fused\": null, "
      "\"amsgrad\": true, \"kind\": \"adam\"}}]},%s",
      rank % 2, rank / 2, rank, rank == 3 ? "0.25" : "0", scalars, more);
  write_rank(
      rank, 4, members,
      ot_arena_format(&arena,
                      "\"grad/w\": {\"shape\": [6, 4], \"offset\": [%d, %d]}, "
                      "\"master/w\": {\"partial\": []}, \"spectrum/w\": 7, \"batch/0.ids\": {}",
                      3 * (rank / 2), 2 * (rank % 2)));
  write_tensors(rank, tensors, 4);
}

static void reads_ranks_mesh_and_settings(void **state) {
  (void)state;
  for (int rank = 0; rank < 4; rank++)
    write_mesh_rank(rank, rank == 2 ? "\"loss\": \"nan\", \"norm\": 2" : "\"loss\": 1.5", "");
  assert_read();
  assert_int_equal(step.world, 4);
  assert_int_equal(step.model.vocab_size, 31);
  assert_int_equal(step.num_axes, 2);
  assert_string_equal(step.axes[0].name, "dp");
  assert_true(step.axes[0].data && !step.axes[1].data);
  assert_int_equal(step.dp_size, 2);
  assert_int_equal(step.ranks[3].coordinate[1], 1);
  assert_int_equal(step.ranks[1].dp_rank, 0);
  assert_int_equal(step.ranks[2].dp_rank, 1);
  assert_string_equal(step.moment, "reduced");
  assert_string_equal(step.software, "s0");
  assert_true(step.dropout == 0.25);
  assert_int_equal(step.num_batches, 4);
  assert_true(step.batches[2].rank == 2 && step.batches[2].shifted);

  double value = 0;
  assert_true(ot_recorded_scalar_of(&step, "loss", 3, &value) && value == 1.5);
  assert_true(ot_recorded_scalar_of(&step, "loss", 2, &value) && value != value);
  assert_true(ot_recorded_scalar_of(&step, "norm", 2, &value) && value == 2);
  assert_false(ot_recorded_scalar_of(&step, "norm", 1, &value));

  ot_recorded_view view;
  assert_true(ot_recorded_find(&step, OT_RECORDED_GRAD, "w", &view));
  assert_int_equal(view.elements, 24);
  assert_int_equal(view.tensor->num_pieces, 4);
  assert_int_equal(view.tensor->pieces[3].offset[0], 3);
  assert_int_equal(view.tensor->pieces[3].offset[1], 2);
  assert_true(ot_recorded_find(&step, OT_RECORDED_MASTER, "head", &view));
  assert_int_equal(view.tensor->dtype, OT_F64);
  assert_false(ot_recorded_find(&step, OT_RECORDED_WEIGHT, "w", &view));

  const ot_recorded_group *const group = ot_recorded_group_of(&step, "head");
  assert_non_null(group);
  assert_string_equal(group->optimizer, "AdamW");
  assert_true(ot_recorded_setting_of(group, "betas")->value[1] == 0.95);
  assert_int_equal(ot_recorded_setting_of(group, "amsgrad")->value[0], 1);
  assert_string_equal(ot_recorded_setting_of(group, "kind")->text, "adam");
  assert_int_equal(ot_recorded_setting_of(group, "fused")->count, 0);
  assert_null(ot_recorded_setting_of(group, "eps"));
  assert_null(ot_recorded_group_of(&step, "v"));

  assert_int_equal(step.num_notes, 2);
  assert_non_null(strstr(step.notes[0], "4 tensors of kinds"));
  assert_non_null(strstr(step.notes[0], "\"spectrum\""));
  assert_non_null(strstr(step.notes[1], "dropout of 0.25"));
}

// ---- texts ----

#define HEAD "{\"format\": \"orthant-step-1\", \"rank\": 0, \"world\": 1, "
#define PLACES "\"tensors\": {\"grad/w\": {}, \"batch/0.ids\": {}}}"
#define PLACED(place) HEAD "\"tensors\": {\"grad/w\": " place ", \"batch/0.ids\": {}}}"

typedef struct bad_text {
  const char *text;
  ot_status status;
  const char *message;
} bad_text;

// Each text describes the one rank of a record that has grad/w of 3 x 2 and batch/0.ids.
static const bad_text bad_texts[] = {
    {"", OT_ENVIRONMENT, "rank-00000.json:1:0: not valid JSON"},
    {"{", OT_ENVIRONMENT, "not valid JSON"},
    {"[]", OT_ENVIRONMENT, "not an object"},
    {HEAD "\"rank\": 0}", OT_ENVIRONMENT, "duplicate object key"},
    {"{}", OT_ENVIRONMENT, "its format is \"\", this program reads \"orthant-step-1\""},
    {"{\"format\": 1}", OT_ENVIRONMENT, "key \"format\" is not a text"},
    {"{\"format\": \"orthant-step-0\"}", OT_ENVIRONMENT, "its format is \"orthant-step-0\""},
    {"{\"format\": \"orthant-step-1\", \"rank\": 0}", OT_ENVIRONMENT,
     "key \"world\" is not a number of ranks from 1 to 65536"},
    {"{\"format\": \"orthant-step-1\", \"rank\": 0, \"world\": 0}", OT_ENVIRONMENT,
     "key \"world\" is not a number of ranks"},
    {"{\"format\": \"orthant-step-1\", \"rank\": 0, \"world\": 65537}", OT_ENVIRONMENT,
     "key \"world\" is not a number of ranks"},
    {"{\"format\": \"orthant-step-1\", \"rank\": 0, \"world\": 1e3}", OT_ENVIRONMENT,
     "key \"world\" is not a whole number"},
    {"{\"format\": \"orthant-step-1\", \"rank\": 1, \"world\": 2}", OT_USAGE,
     "it is the record of rank 1 by its key \"rank\""},
    {HEAD "\"mesh\": [], " PLACES, OT_ENVIRONMENT, "key \"mesh\" is not an object"},
    {HEAD "\"mesh\": {\"dp\": 2}, " PLACES, OT_USAGE,
     "axis dp of the mesh: its size is not a number from 1 to the 1 ranks"},
    {HEAD "\"mesh\": {\"dp\": true}, " PLACES, OT_USAGE, "axis dp of the mesh: its size"},
    {HEAD "\"mesh\": {\"\": 1}, " PLACES, OT_ENVIRONMENT, "the name of an axis of the mesh has 0"},
    {HEAD "\"mesh\": {\"dp\": 1}, " PLACES, OT_USAGE,
     "key \"coordinates\" has no number for axis dp"},
    {HEAD "\"mesh\": {\"dp\": 1}, \"coordinates\": {\"dp\": 1}, " PLACES, OT_USAGE,
     "coordinate 1 on axis dp of the mesh, allowed: 0 to 0"},
    {HEAD "\"mesh\": {\"dp\": 1}, \"coordinates\": {\"dp\": 0}, \"data_axes\": [\"tp\"], " PLACES,
     OT_USAGE, "key \"data_axes\" names \"tp\", which the mesh lacks"},
    {HEAD "\"mesh\": {\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,"
          "\"j\":1,\"k\":1,\"l\":1,\"m\":1,\"n\":1,\"o\":1,\"p\":1,\"q\":1}, " PLACES,
     OT_ENVIRONMENT, "the mesh has more than 16 axes"},
    {HEAD "\"moment\": [], " PLACES, OT_ENVIRONMENT, "key \"moment\" is not a text"},
    {HEAD "\"dropout\": \"0\", " PLACES, OT_ENVIRONMENT, "key \"dropout\" is not a number"},
    {HEAD "\"batches\": {}, " PLACES, OT_ENVIRONMENT, "key \"batches\" is not a list"},
    {HEAD "\"batches\": [1], " PLACES, OT_ENVIRONMENT, "an entry of \"batches\" is not an object"},
    {HEAD "\"batches\": [{}], " PLACES, OT_ENVIRONMENT,
     "key \"micro\" of a batch is not a number from 0 to 1048575"},
    {HEAD "\"batches\": [{\"micro\": 1048576}], " PLACES, OT_ENVIRONMENT,
     "key \"micro\" of a batch"},
    {HEAD "\"batches\": [{\"micro\": 0, \"shifted\": 1}], " PLACES, OT_ENVIRONMENT,
     "key \"shifted\" is not true or false"},
    {HEAD "\"batches\": [{\"micro\": 0}, {\"micro\": 0}], " PLACES, OT_USAGE,
     "rank 0 recorded two batches with the number 0"},
    {HEAD "\"scalars\": {\"loss\": \"high\"}, " PLACES, OT_ENVIRONMENT,
     "scalar \"loss\" is not a number"},
    {HEAD "\"scalars\": {\"loss\": []}, " PLACES, OT_ENVIRONMENT,
     "scalar \"loss\" is not a number"},
    {HEAD "\"aliases\": {\"a\": 1}, " PLACES, OT_ENVIRONMENT,
     "a name in \"aliases\" is not a text"},
    {HEAD "\"optimizer\": 1, " PLACES, OT_ENVIRONMENT, "key \"optimizer\" is not an object"},
    {HEAD "\"optimizer\": {\"groups\": [1]}, " PLACES, OT_ENVIRONMENT,
     "a group of the optimizer is not an object"},
    {HEAD "\"optimizer\": {\"groups\": [{\"names\": [1]}]}, " PLACES, OT_ENVIRONMENT,
     "a name in a group of the optimizer is not a text"},
    {HEAD "\"tensors\": []}", OT_ENVIRONMENT, "key \"tensors\" is not an object"},
    {HEAD "\"note\": \"\"}", OT_USAGE, "key \"tensors\" has no place of tensor batch/0.ids of"},
    {HEAD "\"tensors\": {\"grad/w\": {}, \"batch/0.ids\": {}, \"grad/v\": {}}}", OT_USAGE,
     "tensor grad/v is not in"},
    {PLACED("1"), OT_ENVIRONMENT, "tensor grad/w: its place is not an object"},
    {PLACED("{\"shape\": 6}"), OT_ENVIRONMENT, "key \"shape\" is not a list of at most 4 numbers"},
    {PLACED("{\"shape\": [1,1,1,3,2]}"), OT_ENVIRONMENT,
     "key \"shape\" is not a list of at most 4"},
    {PLACED("{\"shape\": [3, -2]}"), OT_ENVIRONMENT, "number 1 of key \"shape\" is not a count"},
    {PLACED("{\"shape\": [3, 2.0]}"), OT_ENVIRONMENT, "number 1 of key \"shape\" is not a count"},
    {PLACED("{\"shape\": [3, 9223372036854775808]}"), OT_ENVIRONMENT, "is not a count"},
    {PLACED("{\"shape\": [4294967296, 4294967296]}"), OT_ENVIRONMENT,
     "the size of shape [4294967296, 4294967296] overflows 64 bits"},
    {PLACED("{\"shape\": [6]}"), OT_ENVIRONMENT,
     "tensor grad/w has shape [6], but its values [3, 2] have other dimensions"},
    {PLACED("{\"shape\": [3, 2], \"offset\": [0]}"), OT_ENVIRONMENT,
     "key \"offset\" has 1 numbers, the shape has 2"},
    {PLACED("{\"shape\": [2, 2]}"), OT_USAGE,
     "a block of [3, 2] at [0, 0] passes the end of [2, 2]"},
    {PLACED("{\"shape\": [9, 2], \"offset\": [7, 0]}"), OT_USAGE,
     "a block of [3, 2] at [7, 0] passes"},
    {PLACED("{\"shape\": [9, 2], \"offset\": [9223372036854775807, 0]}"), OT_USAGE,
     "at [9223372036854775807, 0] passes the end"},
    {PLACED("{\"block\": [3, 2]}"), OT_ENVIRONMENT,
     "key \"block\" is a list of 2 numbers; it stands"},
    {PLACED("{\"shape\": [4, 2], \"block\": [8], \"flat\": [0, 6]}"), OT_ENVIRONMENT,
     "key \"block\" is a list of 1 numbers"},
    {PLACED("{\"shape\": [4, 2], \"flat\": [0]}"), OT_ENVIRONMENT,
     "key \"flat\" is not a list of pairs of first element and count"},
    {PLACED("{\"shape\": [4, 2], \"flat\": {}}"), OT_ENVIRONMENT,
     "key \"flat\" is not a list of pairs"},
    {PLACED("{\"shape\": [4, 2], \"flat\": [0, 5]}"), OT_USAGE,
     "the runs of key \"flat\" are 5 elements, its values are 6"},
    {PLACED("{\"shape\": [4, 2], \"flat\": [0, 3, 2, 3]}"), OT_USAGE,
     "run 1 of key \"flat\" is not"},
    {PLACED("{\"shape\": [4, 2], \"flat\": [0, 0, 0, 6]}"), OT_USAGE,
     "run 0 of key \"flat\" is not"},
    {PLACED("{\"shape\": [4, 2], \"flat\": [3, 6]}"), OT_USAGE,
     "run 0 of key \"flat\" is not after the one before it and within the 8 elements"},
    {PLACED("{\"shape\": [4, 2], \"flat\": [3, 9223372036854775807]}"), OT_USAGE, "run 0 of key"},
    {PLACED("{\"partial\": [\"tp\"]}"), OT_USAGE,
     "tensor grad/w is partial over axis \"tp\", which the mesh lacks"},
    {PLACED("{\"partial\": \"tp\"}"), OT_ENVIRONMENT, "key \"partial\" is not a list"},
    {PLACED("{\"shape\": [1099511627776, 2]}"), OT_USAGE,
     "tensor grad/w has 2199023255552 elements, but the 1 ranks that hold some of it hold 6"},
};

static void names_what_is_wrong_in_a_text(void **state) {
  (void)state;
  const stored_tensor tensors[] = {STORED("grad/w", OT_F32, six, 3, 2),
                                   STORED("batch/0.ids", OT_I32, tokens, 1, 4)};
  write_tensors(0, tensors, 2);
  write_text(0, HEAD PLACES);
  assert_read();
  for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
    write_text(0, bad_texts[i].text);
    assert_refused(bad_texts[i].status, bad_texts[i].message, folder);
  }
}

static void refuses_texts_beyond_the_limits(void **state) {
  (void)state;
  const stored_tensor tensors[] = {STORED("grad/w", OT_F32, six, 3, 2)};
  const int many = (1 << 20) + 1, deep = 3000;
  char *const text = ot_arena_take(&arena, 2 * many + 256);
  write_tensors(0, tensors, 1);
  ot_text_format(text, 256, "%s", HEAD "\"future\": ");
  int64_t length = ot_text_length(text);
  memset(text + length, '[', (size_t)deep);
  write_text(0, text);
  assert_refused(OT_ENVIRONMENT, "maximum parsing depth reached", "rank-00000.json");
  for (int i = 0; i < many; i++) length += sprintf(text + length, i == 0 ? "[[]" : ",[");
  write_text(0, text);
  assert_refused(OT_USAGE, "lists and objects, allowed: 1048576", "rank-00000.json");
}

// ---- keys and types ----

static void names_keys_and_types_that_are_wrong(void **state) {
  (void)state;
  static const struct {
    stored_tensor tensor;
    const char *message;
  } cases[] = {
      {STORED("grad", OT_F32, six, 2), "tensor grad: its name is not KIND/NAME"},
      {STORED("grad/", OT_F32, six, 2), "tensor grad/ has no name after its kind"},
      {STORED("act/layers.0", OT_F32, six, 2), "its name is not act/MICRO.NAME"},
      {STORED("act/1048576.x", OT_F32, six, 2), "with the number of a batch below 1048576"},
      {STORED("batch/0.", OT_I32, tokens, 2), "tensor batch/0. has no name"},
      {STORED("batch/0.ids", OT_F32, six, 2), "tensor batch/0.ids is F32, allowed: I32, I64"},
      {STORED("batch/0.weight", OT_I32, tokens, 2), "is I32, allowed: F64, F32, BF16, F16"},
      {STORED("grad/w", OT_I64, six, 2), "tensor grad/w is I64, allowed: F64, F32, BF16, F16"},
      {STORED("routes/0.x", OT_F32, six, 2), "tensor routes/0.x is F32, allowed: I32, I64"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_tensors(0, &cases[i].tensor, 1);
    write_rank(0, 1, "", ot_arena_format(&arena, "\"%s\": {}", cases[i].tensor.key));
    assert_refused(OT_ENVIRONMENT, cases[i].message, "rank-00000.json");
  }
}

// ---- files ----

static void write_plain_rank(int rank, int world, const char *members) {
  const stored_tensor tensors[] = {STORED("grad/w", OT_F32, six, 3, 2)};
  write_tensors(rank, tensors, 1);
  write_rank(rank, world, members, "\"grad/w\": {}");
}

static void names_files_that_are_missing_or_left(void **state) {
  (void)state;
  write_plain_rank(0, 2, "");
  assert_refused(OT_ENVIRONMENT, "rank-00001.json: missing; rank 0 says that the step had 2 ranks",
                 folder);
  assert_non_null(strstr(ot_fail_hint_text(), "copy the files of all ranks"));
  write_plain_rank(1, 2, "");
  assert_read();
  write_text(2, "");
  assert_refused(OT_USAGE, "rank-00002.json: rank 0 says that the step had 2 ranks", folder);
  assert_non_null(strstr(ot_fail_hint_text(), "a new folder"));
  remove(scratch_path(folder, "rank-00002.json"));
  remove(scratch_path(folder, "rank-00001.safetensors"));
  assert_refused(OT_ENVIRONMENT, "rank-00001.safetensors", "No such file");
  scratch_write(scratch_path(folder, "rank-00001.safetensors"), "1234567", 7);
  assert_refused(OT_ENVIRONMENT, "rank-00001.safetensors", "7 bytes, at least 8 are needed");
  remove(scratch_path(folder, "rank-00000.json"));
  assert_refused(OT_ENVIRONMENT, "rank-00000.json: missing", folder);
  scratch_write(scratch_path(folder, "config.json"), "{\"model_type\": \"rwkv\"}", 22);
  assert_refused(OT_USAGE, "config.json", "rwkv");
  remove(scratch_path(folder, "config.json"));
  assert_refused(OT_ENVIRONMENT, "config.json: missing", folder);
  scratch_destroy(folder);
  assert_refused(OT_ENVIRONMENT, "not a folder", folder);
}

// ---- ranks ----

typedef struct bad_rank {
  const char *members, *place;  // of rank 1
  const char *message;
} bad_rank;

static void names_ranks_that_contradict_each_other(void **state) {
  (void)state;
#define MESH "\"mesh\": {\"dp\": 2}, \"coordinates\": {\"dp\": 1}, \"moment\": \"m\", "
  static const bad_rank cases[] = {
      {"\"mesh\": {}, \"moment\": \"m\",", "{}", "the mesh has 0 axes, that of rank 0 has 1"},
      {"\"mesh\": {\"tp\": 2}, \"moment\": \"m\",", "{}",
       "the mesh lacks axis dp, which rank 0 has"},
      {"\"mesh\": {\"dp\": 1}, \"moment\": \"m\",", "{}",
       "axis dp of the mesh has size 1, at rank 0 2"},
      {"\"mesh\": {\"dp\": 2}, \"coordinates\": {\"dp\": 0}, \"moment\": \"m\",", "{}",
       "ranks 0 and 1 have the same coordinates on all axes of the mesh"},
      {"\"mesh\": {\"dp\": 2}, \"coordinates\": {\"dp\": 1}, \"moment\": \"n\",", "{}",
       "key \"moment\" is \"n\", at rank 0 \"m\""},
      {MESH "\"aliases\": {\"a\": \"v\"}, ", "{}", "a is an alias of both v and w"},
      {MESH, "{\"shape\": [4, 2]}",
       "tensor grad/w has shape [3, 2] at rank 0 and [4, 2] at rank 1"},
      {MESH, "{\"partial\": [\"dp\"]}",
       "tensor grad/w is partial over other axes at rank 1 than at rank 0"},
  };
  const stored_tensor tensors[] = {STORED("grad/w", OT_F32, six, 3, 2)};
  write_tensors(0, tensors, 1);
  write_tensors(1, tensors, 1);
  write_rank(0, 2,
             "\"mesh\": {\"dp\": 2}, \"coordinates\": {\"dp\": 0}, \"moment\": \"m\", "
             "\"aliases\": {\"a\": \"w\"},",
             "\"grad/w\": {}");
  write_rank(1, 2, MESH "\"aliases\": {\"a\": \"w\"},", "\"grad/w\": {}");
  assert_read();
  assert_int_equal(step.num_aliases, 1);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_rank(1, 2, cases[i].members, ot_arena_format(&arena, "\"grad/w\": %s", cases[i].place));
    assert_refused(OT_USAGE, cases[i].message, folder);
  }
  write_rank(1, 3, MESH, "\"grad/w\": {}");
  assert_refused(OT_USAGE, "rank-00001.json: the step had 3 ranks, by rank 0 it had 2", folder);
  const stored_tensor wide[] = {STORED("grad/w", OT_BF16, six, 3, 2)};
  write_tensors(1, wide, 1);
  write_rank(1, 2, MESH, "\"grad/w\": {}");
  assert_refused(OT_USAGE, "tensor grad/w is fp32 at rank 0 and bf16 at rank 1", folder);
#undef MESH
}

// ---- which ranks read the same data ----

// Four ranks on axes a and b, 2 x 2, whose batches are equal if the letters of `data` are; '-': the
// rank records none. The dp_rank of each, as digits.
static const char *data_ranks(const char *a, const char *b, const char *more, const char *data) {
  for (int rank = 0; rank < 4; rank++) {
    const stored_tensor tensors[] = {
        STORED("batch/0.ids", OT_I32, data[rank] == 'x' ? tokens : others, 1, 4)};
    const bool none = data[rank] == '-';
    const char *const mesh =
        a == NULL ? ""
                  : ot_arena_format(&arena,
                                    "\"mesh\": {\"%s\": 2, \"%s\": 2}, \"coordinates\": "
                                    "{\"%s\": %d, \"%s\": %d}, %s",
                                    a, b, a, rank / 2, b, rank % 2, more);
    write_tensors(rank, tensors, none ? 0 : 1);
    write_rank(rank, 4,
               ot_arena_format(&arena, "%s %s", mesh,
                               none ? "" : "\"batches\": [{\"micro\": 0, \"shifted\": true}],"),
               none ? "" : "\"batch/0.ids\": {}");
  }
  assert_read();
  char *const digits = ot_arena_take(&arena, 5);
  for (int rank = 0; rank < 4; rank++) digits[rank] = (char)('0' + step.ranks[rank].dp_rank);
  return digits;
}

static void finds_ranks_that_read_the_same_data(void **state) {
  (void)state;
  assert_string_equal(data_ranks("dp", "tp", "", "xxxx"), "0011");
  assert_string_equal(data_ranks("pp", "dp_replicate", "", "xxxx"), "0101");
  assert_string_equal(data_ranks("fsdp2", "dp1", "", "xxxx"), "0123");
  assert_string_equal(data_ranks("dp_shard_cp", "tp", "", "xxxx"), "0011");
  assert_string_equal(data_ranks("dp_shard_cp", "dp", "", "xxxx"), "0101");
  assert_string_equal(data_ranks("cp", "tp", "", "xyxy"), "0000");
  assert_string_equal(data_ranks("dp", "tp", "\"data_axes\": [\"tp\"],", "xxxx"), "0101");
  assert_string_equal(data_ranks("dim0", "dim1", "", "xyxy"), "0101");
  assert_string_equal(data_ranks("dp", "dim1", "", "xyxx"), "0122");
  assert_string_equal(data_ranks(NULL, NULL, "", "yxyx"), "0101");
  assert_string_equal(data_ranks(NULL, NULL, "", "-xyx"), "0010");
  assert_int_equal(step.num_axes, 1);
  assert_string_equal(step.axes[0].name, "rank");
  assert_int_equal(step.dp_size, 2);
}

// ---- stacks of experts ----

static void finds_experts_in_stacks(void **state) {
  (void)state;
  float values[3 * 4 * 2] = {0};
  const stored_tensor tensors[] = {
      STORED("grad/l.mlp.experts.gate_up_proj", OT_F32, values, 3, 4, 2),
      STORED("grad/l.mlp.experts.down_proj", OT_F32, values, 3, 2, 2),
      STORED("grad/l.mlp.gate.weight", OT_F32, values, 3, 2)};
  static const struct {
    const char *name;
    int64_t first, rows;  // -1: not found
  } cases[] = {
      {"l.mlp.experts.0.gate_proj.weight", 0, 2},
      {"l.mlp.experts.2.up_proj.weight", 20, 2},
      {"l.mlp.experts.1.down_proj.weight", 4, 2},
      {"l.block_sparse_moe.experts.1.w3.weight", 12, 2},
      {"l.block_sparse_moe.experts.1.w2.weight", 4, 2},
      {"l.block_sparse_moe.gate.weight", 0, 3},
      {"l.mlp.experts.gate_up_proj[1]", 8, 4},
      {"l.mlp.experts.gate_up_proj", 0, 3},
      {"l.mlp.experts.3.gate_proj.weight", -1, 0},
      {"l.mlp.experts.99999999999999999999.gate_proj.weight", -1, 0},
      {"l.mlp.experts.1.gate_proj.bias", -1, 0},
      {"l.mlp.experts..gate_proj.weight", -1, 0},
      {"l.mlp.experts.gate_up_proj[1", -1, 0},
      {"k.mlp.experts.1.gate_proj.weight", -1, 0},
  };
  write_tensors(0, tensors, 3);
  write_rank(0, 1, "\"optimizer\": {\"groups\": [{\"names\": [\"l.mlp.experts.gate_up_proj\"]}]},",
             "\"grad/l.mlp.experts.gate_up_proj\": {}, \"grad/l.mlp.experts.down_proj\": {}, "
             "\"grad/l.mlp.gate.weight\": {}");
  assert_read();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ot_recorded_view view;
    const bool found = ot_recorded_find(&step, OT_RECORDED_GRAD, cases[i].name, &view);
    if (found != (cases[i].first >= 0)) fail_msg("%s: found %d", cases[i].name, found);
    if (!found) continue;
    assert_int_equal(view.first, cases[i].first);
    assert_int_equal(view.shape[0], cases[i].rows);
    assert_int_equal(view.first + view.elements <= view.tensor->elements, 1);
  }
}

// ---- recorded by orthant_record.py ----

static void reads_records_of_the_recorder(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int world, batches, tensors;  // tensors: weights
  } cases[] = {
      {"llama_fp32", 1, 4, 21},      {"llama_bf16", 1, 4, 21},    {"qwen3_fp32", 1, 4, 24},
      {"qwen3_bf16", 1, 4, 24},      {"llama_ddp", 2, 4, 21},     {"llama_fsdp2", 2, 4, 21},
      {"qwen3_tp", 2, 8, 24},        {"qwen3_tp_bf16", 2, 8, 24}, {"llama_decay", 1, 4, 21},
      {"llama_ddp_means", 2, 4, 21}, {"llama_shifted", 1, 4, 21}, {"qwen3_tp_unreduced", 2, 8, 24},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *const path = fixture_path(ot_arena_format(&arena, "judge/%s", cases[i].name));
    if (ot_recorded_read(path, &arena, &step) != OT_OK) fail_msg("%s", ot_fail_message());
    int64_t weights = 0;
    for (int64_t k = 0; k < step.num_tensors; k++)
      weights += step.tensors[k].kind == OT_RECORDED_WEIGHT;
    assert_int_equal(step.world, cases[i].world);
    assert_int_equal(step.num_batches, cases[i].batches);
    assert_int_equal(weights, cases[i].tensors);
    assert_string_equal(step.note, cases[i].name);
    assert_string_equal(step.moment, "reduced, before clipping");
    assert_int_equal(step.num_notes, 0);
    const ot_recorded_group *const norms = ot_recorded_group_of(&step, "model.norm.weight");
    assert_string_equal(norms->optimizer, "AdamW");
    assert_int_equal(ot_recorded_setting_of(norms, "step")->value[0], 1);
    const bool decay = strcmp(cases[i].name, "llama_decay") == 0;
    assert_true(ot_recorded_setting_of(norms, "weight_decay")->value[0] == (decay ? 0.1 : 0));
    const ot_recorded_group *const head = ot_recorded_group_of(&step, "lm_head.weight");
    assert_true(ot_recorded_setting_of(head, "weight_decay")->value[0] == 0.1);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(reads_ranks_mesh_and_settings),        TEST(names_what_is_wrong_in_a_text),
      TEST(refuses_texts_beyond_the_limits),      TEST(names_keys_and_types_that_are_wrong),
      TEST(names_files_that_are_missing_or_left), TEST(names_ranks_that_contradict_each_other),
      TEST(finds_ranks_that_read_the_same_data),  TEST(finds_experts_in_stacks),
      TEST(reads_records_of_the_recorder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
