// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// The schema code on a small table: types, ranges, lists, shorthands, variants, setting by path,
// writing back, and the exact text of every error.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/schema.h"
#include "base/text.h"
#include "files/tree_file.h"
#include "support/arena_fixture.h"

typedef struct wheel {
  const char *name;
  const char *path;
  double size;
} wheel;

typedef struct engine {
  int64_t power;
  int fuel;
  int64_t gears;
} engine;

typedef struct car {
  int64_t length;
  int doors;
  double weight;
  double pair[2];
  bool open;
  const char *title;
  const char *manual;
  int color;
  int dtype;
  int automatic;
  engine engine;
  int64_t *numbers;
  int64_t num_numbers;
  wheel *wheels;
  int64_t num_wheels;
  wheel *spares;
  int64_t num_spares;
  int64_t limit;
  int berths, crew;
} car;

static const char *const colors[] = {"red", "green|verdant", "blue", NULL};
static const char *const gears[] = {"auto", NULL};
static const char *const fuels[] = {"wood", "coal", NULL};
static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const fixed[] = {"false", "0", NULL};
static const char *const no_manual[] = {"none", NULL};
enum { SMALL = 1, LARGE = 2 };

// clang-format off
static const ot_key wheel_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(wheel, name), .fallback = ""},
    {"path", OT_KEY_PATH, offsetof(wheel, path), .help = "where it is"},
    {"size", OT_KEY_REAL, offsetof(wheel, size), "1.5", 0, OT_NO_MAXIMUM, .above_minimum = true},
};
static const ot_schema wheel_schema = {
    "wheel", wheel_keys, OT_COUNT(wheel_keys), .size = sizeof(wheel), .shorthand = "path"};

static const ot_key engine_keys[] = {
    {"power", OT_KEY_INTEGER, offsetof(engine, power), "90", 1, 1000, .also = "strength kW",
     .unit = "kW"},
    {"fuel", OT_KEY_CHOICE, offsetof(engine, fuel), "coal", .choices = fuels},
    {"gears", OT_KEY_INTEGER, offsetof(engine, gears), "4", 1, 9, .choices = gears},
};
static const ot_schema engine_schema = {
    "engine", engine_keys, OT_COUNT(engine_keys), .size = sizeof(engine)};

static const ot_key car_keys[] = {
    {"length", OT_KEY_INTEGER, offsetof(car, length), NULL, 1, 1 << 20, .unit = "mm",
     .help = "from end to end"},
    {"doors", OT_KEY_INT, offsetof(car, doors), "3", .maximum = 5},
    {"weight", OT_KEY_REAL, offsetof(car, weight), "1e-3", 0, 10, .below_maximum = true},
    {"pair", OT_KEY_REAL, offsetof(car, pair), "0.9 0.95", .shape = OT_SHAPE_ARRAY, .count = 2},
    {"open", OT_KEY_BOOL, offsetof(car, open), .fallback = "false"},
    {"title", OT_KEY_TEXT, offsetof(car, title), "null", .null_text = ""},
    {"manual", OT_KEY_PATH, offsetof(car, manual), "none", .choices = no_manual},
    {"color", OT_KEY_CHOICE, offsetof(car, color), "red", .choices = colors},
    {"dtype", OT_KEY_DTYPE, offsetof(car, dtype), "fp32", .choices = dtypes},
    {"automatic", OT_KEY_DTYPE, offsetof(car, automatic), "auto", .choices = dtypes},
    {"engine", OT_KEY_OBJECT, offsetof(car, engine), .object = &engine_schema},
    {"numbers", OT_KEY_INTEGER, offsetof(car, numbers), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(car, num_numbers)},
    {"wheels", OT_KEY_OBJECT, offsetof(car, wheels), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(car, num_wheels), .object = &wheel_schema},
    {"spares", OT_KEY_OBJECT, offsetof(car, spares), "", .shape = OT_SHAPE_NAMED,
     .count_offset = offsetof(car, num_spares), .object = &wheel_schema},
    {"limit", OT_KEY_INTEGER, offsetof(car, limit), "7", 1, 100, .null_text = "0",
     .variants = LARGE},
    {"flying", OT_KEY_FIXED, .choices = fixed, .help = "cars stay down"},
};
// clang-format on

static int variant_of(const ot_node *map) {
  const ot_node *const length = ot_node_child(map, "length");
  return length && length->text && ot_text_length(length->text) > 3 ? LARGE : SMALL;
}

static bool variant_has(const ot_key *key, int variant) {
  return (key->variants & (uint32_t)variant) != 0;
}

static const ot_key large_keys[] = {
    {"berths", OT_KEY_INT, offsetof(car, berths), "2", .after = "doors"},
    {"crew", OT_KEY_INT, offsetof(car, crew), .fallback = "1"},
};

static const ot_key *added_key(int variant, int index) {
  return variant != SMALL && index < OT_COUNT(large_keys) ? &large_keys[index] : NULL;
}

static const char *fallback_of(const ot_key *key, int variant) {
  return variant == LARGE && ot_text_equal(key->name, "doors") ? "5" : NULL;
}

static const ot_schema schema = {.name = "car",
                                 .keys = car_keys,
                                 .num_keys = OT_COUNT(car_keys),
                                 .size = sizeof(car),
                                 .inert = "smell|taste",
                                 .unknown_hint = "try --ignore=%s",
                                 .variant = variant_of,
                                 .has = variant_has,
                                 .added = added_key,
                                 .fallback = fallback_of};

static ot_node *parse(const char *text) {
  static const ot_tree_origin origin = {.name = "car.yaml", .directory = "/garage"};
  ot_node *tree;
  if (ot_tree_parse_yaml(&origin, text, ot_text_length(text), &arena, &tree) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return tree;
}

static car accept(const char *text) {
  car out;
  if (ot_schema_read(&schema, parse(text), &arena, &out) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return out;
}

// Expects an error with exactly this message and hint.
static void refuse(const char *text, const char *message, const char *hint) {
  car out;
  assert_int_equal(ot_schema_read(&schema, parse(text), &arena, &out), OT_USAGE);
  assert_string_equal(ot_fail_message(), message);
  assert_string_equal(ot_fail_hint_text(), hint);
}

static void defaults_fill_what_is_absent(void **state) {
  (void)state;
  const car c = accept("length: 900");
  assert_int_equal(c.length, 900);
  assert_int_equal(c.doors, 3);
  assert_true(c.weight == 1e-3 && c.pair[0] == 0.9 && c.pair[1] == 0.95 && !c.open);
  assert_string_equal(c.title, "");
  assert_string_equal(c.manual, "none");
  assert_int_equal(c.engine.power, 90);
  assert_int_equal(c.engine.fuel, 1);
  assert_int_equal(c.automatic, -1);
  assert_int_equal(c.num_numbers + c.num_wheels + c.num_spares, 0);
}

static void values_are_typed_by_the_table(void **state) {
  (void)state;
  const car c = accept(
      "length: 4000\ndoors: 0\nweight: 3e-4\npair: [1, -2]\nopen: true\ntitle: 007\n"
      "manual: sub/m.txt\ncolor: verdant\ndtype: bfloat16\nautomatic: fp32\n"
      "engine: {strength: 1_0, fuel: wood}\nnumbers: [1, 2Ki]\nwheels: [a, {path: /b, size: 2}]\n"
      "spares: {left: l, right: {path: r, size: 3}}\nlimit: null\nsmell: [oil]\nflying: false\n");
  assert_int_equal(c.length, 4000);
  assert_true(c.weight == 3e-4 && c.pair[1] == -2 && c.open);
  assert_string_equal(c.title, "007");
  assert_string_equal(c.manual, "/garage/sub/m.txt");
  assert_int_equal(c.color, 1);
  assert_int_equal(c.dtype, OT_BF16);
  assert_int_equal(c.automatic, OT_F32);
  assert_int_equal(c.engine.power, 10);
  assert_int_equal(c.numbers[1], 2048);
  assert_string_equal(c.wheels[0].path, "/garage/a");
  assert_true(c.wheels[0].size == 1.5 && c.wheels[1].size == 2);
  assert_string_equal(c.wheels[1].path, "/b");
  assert_string_equal(c.spares[1].name, "right");
  assert_true(c.spares[1].size == 3);
  assert_int_equal(c.limit, 0);
}

static void one_value_is_a_list_of_one(void **state) {
  (void)state;
  const car c = accept("length: 1\nnumbers: 5\nwheels: w\nspares: s\n");
  assert_int_equal(c.num_numbers, 1);
  assert_int_equal(c.numbers[0], 5);
  assert_string_equal(c.wheels[0].path, "/garage/w");
  assert_string_equal(c.spares[0].name, "");
}

static void error_texts_are_exact(void **state) {
  (void)state;
  refuse("doors: 1", "length is needed (car.yaml:1:1)", "length: from end to end");
  refuse("length: 0", "length: 0 is out of range; allowed: 1 to 1048576 mm (car.yaml:1:9)", "");
  refuse("length: 5\ndoors: two",
         "doors: \"two\" is not a whole number; allowed: 0 to 5 (car.yaml:2:8)", "");
  refuse("length: 5\ndoors: 2.5",
         "doors: \"2.5\" is not a whole number; allowed: 0 to 5 (car.yaml:2:8)", "");
  refuse("length: 5\ndoors: 1e30", "doors: 1e30 is too large; allowed: 0 to 5 (car.yaml:2:8)", "");
  refuse("length: 5\nweight: 3kg",
         "weight: \"3kg\" is not a number; allowed: at least 0 and below 10 (car.yaml:2:9)", "");
  refuse("length: [5]", "length: expects 1 to 1048576 mm, not a list (car.yaml:1:9)", "");
  refuse("length: null", "length: expects 1 to 1048576 mm, not null (car.yaml:1:9)", "");
  refuse("length: 5\nweight: 10",
         "weight: 10 is out of range; allowed: at least 0 and below 10 (car.yaml:2:9)", "");
  refuse("length: 5\nweight: 1e999",
         "weight: 1e999 is too large; allowed: at least 0 and below 10 (car.yaml:2:9)", "");
  refuse("length: 5\nopen: yes", "open: \"yes\" is not true or false (car.yaml:2:7)", "");
  refuse("length: 5\npair: [1]", "pair: has 1 entries; needed: exactly 2 (car.yaml:2:7)", "");
  refuse("length: 5\ncolor: bleu",
         "color: \"bleu\" is not one of red, green = verdant, blue (car.yaml:2:8)",
         "did you mean \"blue\"?");
  refuse("length: 5\nengine: {power: 2k}",
         "engine.power: 2k is out of range; allowed: 1 to 1000 kW (car.yaml:2:17)", "");
  refuse("length: 5\nengine: big", "engine: \"big\" is not a map (car.yaml:2:9)", "");
  refuse("length: 5\nwheels: [a, {size: 1}]", "wheels.1.path is needed (car.yaml:2:13)",
         "path: where it is");
  refuse("length: 5\nflying: true",
         "flying: true is not supported: cars stay down; allowed: false, 0 (car.yaml:2:9)", "");
  refuse("length: 5\nengine: {power: 3, kW: 4}",
         "engine.power is given twice, at car.yaml:2:17 and as \"kW\" (car.yaml:2:24)", "");
}

static void unknown_keys_name_the_nearest(void **state) {
  (void)state;
  refuse("lenght: 5", "unknown key \"lenght\" (car.yaml:1:9)", "did you mean \"length\"?");
  refuse("length: 5\nfuel: wood", "unknown key \"fuel\" (car.yaml:2:7)",
         "did you mean engine.fuel?");
  refuse("length: 5\nengine: {powr: 5}", "engine: unknown key \"powr\" (car.yaml:2:16)",
         "did you mean \"power\"?");
  refuse("length: 5\nanswer: 42", "unknown key \"answer\" (car.yaml:2:9)", "try --ignore=answer");
}

static void variants_have_their_own_keys_and_defaults(void **state) {
  (void)state;
  assert_int_equal(accept("length: 1000").doors, 5);
  assert_int_equal(accept("length: 1000\nlimit: 9").limit, 9);
  refuse("length: 5\nlimit: 9", "the key \"limit\" belongs to another kind of car (car.yaml:2:8)",
         "try --ignore=limit");
}

static void a_missing_dtype_on_this_machine_is_an_environment_error(void **state) {
  (void)state;
  car out;
  assert_int_equal(ot_schema_read(&schema, parse("length: 5\ndtype: fp8"), &arena, &out),
                   OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "fp8 is not available"));
  assert_int_equal(ot_schema_read(&schema, parse("length: 5\ndtype: float16"), &arena, &out),
                   OT_ENVIRONMENT);
  assert_int_equal(ot_schema_read(&schema, parse("length: 5\ndtype: int32"), &arena, &out),
                   OT_USAGE);
}

static car read_settings(ot_settings *settings) {
  car out;
  if (ot_schema_read(&schema, settings->tree, &arena, &out) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return out;
}

static void set(ot_settings *settings, const char *path, const char *text) {
  if (ot_settings_set(settings, path, text, "--set") != OT_OK) fail_msg("%s", ot_fail_message());
}

static void paths_set_single_values(void **state) {
  (void)state;
  ot_settings s = {&schema, &arena,
                   parse("length: 5\nwheels: w\nspares: s\nnumbers: 4\n"
                         "engine: {kW: 7}")};
  set(&s, "length", "6");
  set(&s, "engine.power", "8");
  set(&s, "wheels.0.size", "2.5");
  set(&s, "wheels.1", "x");
  set(&s, "spares.big.path", "y");
  set(&s, "numbers.1", "9");
  const car c = read_settings(&s);
  assert_int_equal(c.length, 6);
  assert_int_equal(c.engine.power, 8);  // under its other spelling, only once
  assert_int_equal(c.num_wheels, 2);
  assert_string_equal(c.wheels[0].path, "/garage/w");
  assert_true(c.wheels[0].size == 2.5);
  assert_string_equal(c.wheels[1].path, "x");  // no directory: unchanged
  assert_int_equal(c.num_spares, 2);
  assert_string_equal(c.spares[1].name, "big");
  assert_int_equal(c.numbers[1], 9);
}

static void refuse_path(const char *path, const char *part) {
  ot_settings s = {&schema, &arena, parse("length: 5\nnumbers: [4]")};
  assert_int_equal(ot_settings_set(&s, path, "1", "--set"), OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
}

static void paths_without_a_target_are_rejected(void **state) {
  (void)state;
  refuse_path("engin.power", "unknown key \"engin\"");
  refuse_path("engine.pow", "engine: unknown key \"pow\"");
  refuse_path("length.x", "length has no keys of its own");
  refuse_path("numbers.3", "entries are 0 to 1");
  refuse_path("numbers.x", "there is no entry \"x\"");
  refuse_path("numbers.0.y", "has no keys of its own");
  refuse_path("engine.", "an empty key");
  refuse_path("numbers.", "an empty key");
  refuse_path("", "an empty key");
  refuse_path(".", "unknown key \"\"");
  refuse_path("a..b", "unknown key \"a\"");
  char path[400];
  memset(path, 'a', sizeof path);
  path[399] = '\0';
  refuse_path(path, "longer than 255 bytes");
}

static const char *yaml_of(const ot_node *tree) {
  ot_text_builder text = {.arena = &arena};
  ot_node_print_yaml(tree, 0, &text);
  return ot_text_builder_text(&text);
}

static void written_values_read_back(void **state) {
  (void)state;
  const car c = accept(
      "length: 4000\ntitle: \"a: \\\"b\\\" #c\"\nwheels: [a, {path: \"b c\", size: 2}]\n"
      "spares: {left: l, right: r}\nlimit: null\npair: [0.1, 1e-7]");
  ot_node *const tree = ot_schema_write(&schema, LARGE, &c, &arena);
  const char *const text = yaml_of(tree);
  const car again = accept(text);
  assert_string_equal(yaml_of(ot_schema_write(&schema, LARGE, &again, &arena)), text);
  assert_string_equal(again.title, "a: \"b\" #c");
  assert_string_equal(again.spares[1].path, "/garage/r");
  assert_non_null(strstr(text, "limit: null\n"));
  assert_non_null(strstr(text, "automatic: auto\n"));
  const car plain = accept("length: 5");
  assert_non_null(
      strstr(yaml_of(ot_schema_write(&schema, SMALL, &plain, &arena)), "title: null\n"));
}

// The place of `key` in `text`.
static int64_t place_in(const char *text, const char *key) {
  const char *const at = strstr(text, key);
  if (!at) fail_msg("no %s in %s", key, text);
  return at - text;
}

static void keys_that_a_variant_adds_are_its_own_in_their_places(void **state) {
  (void)state;
  const car large = accept("length: 1000\nberths: 3");
  assert_int_equal(large.berths, 3);
  assert_int_equal(large.crew, 1);
  assert_int_equal(accept("length: 5").crew, 0);
  refuse("length: 5\nberths: 3", "the key \"berths\" belongs to another kind of car (car.yaml:2:9)",
         "try --ignore=berths");
  const char *const text = yaml_of(ot_schema_write(&schema, LARGE, &large, &arena));
  assert_true(place_in(text, "doors:") < place_in(text, "berths:"));
  assert_true(place_in(text, "berths:") < place_in(text, "weight:"));
  assert_true(place_in(text, "limit:") < place_in(text, "crew:"));
  const char *const small = yaml_of(ot_schema_write(&schema, SMALL, &large, &arena));
  assert_null(strstr(small, "berths"));
  assert_null(strstr(small, "limit"));
}

static void a_word_may_stand_for_a_number(void **state) {
  (void)state;
  const car c = accept("length: 5\nengine: {gears: auto}");
  assert_int_equal(c.engine.gears, -1);
  assert_int_equal(accept("length: 5\nengine: {gears: 7}").engine.gears, 7);
  const ot_node *const tree = ot_schema_write(&schema, SMALL, &c, &arena);
  assert_string_equal(ot_node_find(tree, "engine.gears")->text, "auto");
  refuse("length: 5\nengine: {gears: many}",
         "engine.gears: \"many\" is not a whole number; allowed: 1 to 9 or auto (car.yaml:2:17)",
         "");
  refuse("length: 5\nengine: {gears: -1}",
         "engine.gears: -1 is out of range; allowed: 1 to 9 or auto (car.yaml:2:17)", "");
}

static void places_follow_the_values(void **state) {
  (void)state;
  ot_node *const given = parse("length: 9\nengine: {kW: 7}\nnumbers: [1]");
  car c;
  assert_int_equal(ot_schema_read(&schema, given, &arena, &c), OT_OK);
  ot_node *const tree = ot_schema_write(&schema, SMALL, &c, &arena);
  ot_schema_place(&schema, tree, given, "default");
  assert_string_equal(ot_node_place(&arena, ot_node_find(tree, "length")), "car.yaml:1:9");
  assert_string_equal(ot_node_place(&arena, ot_node_find(tree, "engine.power")), "car.yaml:2:14");
  assert_string_equal(ot_node_place(&arena, ot_node_find(tree, "engine.fuel")), "default");
  assert_string_equal(ot_node_place(&arena, ot_node_find(tree, "doors")), "default");
}

static void the_example_is_complete_and_valid(void **state) {
  (void)state;
  static const char *const samples[] = {"length", "1234", "doors", "5", NULL};
  ot_text_builder text = {.arena = &arena};
  ot_schema_example(&schema, samples, &text);
  const car from_example = accept(text.text);
  const car defaults = accept("length: 1234");
  assert_string_equal(yaml_of(ot_schema_write(&schema, LARGE, &from_example, &arena)),
                      yaml_of(ot_schema_write(&schema, LARGE, &defaults, &arena)));
  assert_non_null(strstr(text.text, "# from end to end; 1 to 1048576 mm; needed\n"));
}

static void count_path(void *context, const char *path, const ot_key *key) {
  (void)key;
  *(int *)context += 1;
  assert_non_null(ot_schema_find_path(&schema, path));
}

static void every_path_is_listed(void **state) {
  (void)state;
  int count = 0;
  ot_schema_list(&schema, count_path, &count);
  assert_int_equal(count, OT_COUNT(car_keys) - 2 + 3 + OT_COUNT(large_keys));
  // engine has three, FIXED has none
  assert_string_equal(ot_schema_find_path(&schema, "spares.x.size")->name, "size");
  assert_null(ot_schema_find_path(&schema, "length.x"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_fill_what_is_absent),
      cmocka_unit_test(values_are_typed_by_the_table),
      cmocka_unit_test(one_value_is_a_list_of_one),
      cmocka_unit_test(error_texts_are_exact),
      cmocka_unit_test(unknown_keys_name_the_nearest),
      cmocka_unit_test(variants_have_their_own_keys_and_defaults),
      cmocka_unit_test(keys_that_a_variant_adds_are_its_own_in_their_places),
      cmocka_unit_test(a_missing_dtype_on_this_machine_is_an_environment_error),
      cmocka_unit_test(paths_set_single_values),
      cmocka_unit_test(paths_without_a_target_are_rejected),
      cmocka_unit_test(written_values_read_back),
      cmocka_unit_test(a_word_may_stand_for_a_number),
      cmocka_unit_test(places_follow_the_values),
      cmocka_unit_test(the_example_is_complete_and_valid),
      cmocka_unit_test(every_path_is_listed),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
