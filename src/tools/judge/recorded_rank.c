// SPDX-License-Identifier: Apache-2.0
// The text of one rank without the places of its tensors. Unknown keys are left alone, so that
// recorders may write more.
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "judge/recorded_parts.h"

enum { AXIS_BYTES = 64, SCALARS_MAX = 1024, GROUPS_MAX = 4096, SETTINGS_MAX = 128 };

// ---- members ----

static const char *type_name(json_type type) {
  switch (type) {
    case JSON_OBJECT:
      return "an object";
    case JSON_ARRAY:
      return "a list";
    case JSON_STRING:
      return "a text";
    case JSON_INTEGER:
      return "a whole number";
    case JSON_TRUE:
      return "true or false";
    default:
      return "a number";
  }
}

ot_status ot_recorded_member(const ot_recorded_reading *reading, const json_t *object,
                             const char *key, json_type type, const json_t **value) {
  *value = json_object_get(object, key);
  if (*value == NULL || json_typeof(*value) == type) return OT_OK;
  const bool fits = (type == JSON_TRUE && json_is_boolean(*value)) ||
                    (type == JSON_REAL && json_is_integer(*value));
  OT_CHECK(fits, OT_ENVIRONMENT, "%s: key \"%s\" is not %s", reading->file, key, type_name(type));
  return OT_OK;
}

ot_status ot_recorded_text(const ot_recorded_reading *reading, const json_t *value,
                           const char *what, int64_t most, const char **text) {
  const char *const found = json_string_value(value);
  OT_CHECK(found != NULL, OT_ENVIRONMENT, "%s: %s is not a text", reading->file, what);
  const int64_t bytes = (int64_t)json_string_length(value);
  OT_CHECK(bytes <= most, OT_ENVIRONMENT, "%s: %s has %lld bytes, at most %lld are allowed",
           reading->file, what, (long long)bytes, (long long)most);
  *text = ot_arena_text(reading->arena, found, bytes);
  return OT_OK;
}

bool ot_recorded_number(const json_t *value, double *number) {
  *number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
  if (json_is_boolean(value) || json_is_number(value)) return true;
  return json_is_string(value) && ot_number_parse(json_string_value(value), true, number);
}

// jansson's iteration does not change an object, but its type is not const.
static json_t *iterated(const json_t *object) { return (json_t *)(uintptr_t)object; }

// ---- mesh ----

static ot_status add_axis(ot_recorded_reading *reading, const char *name, const json_t *size) {
  ot_recorded_step *const step = reading->step;
  const int64_t value = json_integer_value(size);
  OT_CHECK(step->num_axes < OT_RECORDED_AXES, OT_ENVIRONMENT, "%s: the mesh has more than %d axes",
           reading->file, OT_RECORDED_AXES);
  OT_CHECK(name[0] != '\0' && ot_text_length(name) <= AXIS_BYTES, OT_ENVIRONMENT,
           "%s: the name of an axis of the mesh has %lld bytes, 1 to %d are allowed", reading->file,
           (long long)ot_text_length(name), AXIS_BYTES);
  OT_CHECK(json_is_integer(size) && value >= 1 && value <= step->world, OT_USAGE,
           "%s: axis %s of the mesh: its size is not a number from 1 to the %d ranks of the step",
           reading->file, name, step->world);
  step->axes[step->num_axes++] = (ot_recorded_axis){
      .name = ot_arena_text(reading->arena, name, ot_text_length(name)), .size = (int)value};
  return OT_OK;
}

static int find_axis(const ot_recorded_step *step, const char *name) {
  for (int i = 0; i < step->num_axes; i++)
    if (ot_text_equal(step->axes[i].name, name)) return i;
  return -1;
}

static ot_status compare_axes(const ot_recorded_reading *reading, const json_t *mesh) {
  const ot_recorded_step *const step = reading->step;
  OT_CHECK((int)json_object_size(mesh) == step->num_axes, OT_USAGE,
           "%s: the mesh has %d axes, that of rank 0 has %d", reading->file,
           (int)json_object_size(mesh), step->num_axes);
  for (int i = 0; i < step->num_axes; i++) {
    const json_t *const size = json_object_get(mesh, step->axes[i].name);
    OT_CHECK(size != NULL, OT_USAGE, "%s: the mesh lacks axis %s, which rank 0 has", reading->file,
             step->axes[i].name);
    OT_CHECK(json_integer_value(size) == step->axes[i].size, OT_USAGE,
             "%s: axis %s of the mesh has size %lld, at rank 0 %d", reading->file,
             step->axes[i].name, (long long)json_integer_value(size), step->axes[i].size);
  }
  return OT_OK;
}

static ot_status read_coordinates(ot_recorded_reading *reading, const json_t *coordinates) {
  const ot_recorded_step *const step = reading->step;
  for (int i = 0; i < step->num_axes; i++) {
    const json_t *const value = json_object_get(coordinates, step->axes[i].name);
    const int64_t at = json_integer_value(value);
    OT_CHECK(json_is_integer(value), OT_USAGE,
             "%s: key \"coordinates\" has no number for axis %s of the mesh", reading->file,
             step->axes[i].name);
    OT_CHECK(at >= 0 && at < step->axes[i].size, OT_USAGE,
             "%s: coordinate %lld on axis %s of the mesh, allowed: 0 to %d", reading->file,
             (long long)at, step->axes[i].name, step->axes[i].size - 1);
    reading->ranks[reading->rank].coordinate[i] = (int)at;
  }
  return OT_OK;
}

static ot_status read_data_axes(ot_recorded_reading *reading, const json_t *axes) {
  size_t index;
  json_t *item;
  if (axes == NULL || reading->rank > 0) return OT_OK;
  reading->explicit_data = true;
  json_array_foreach(axes, index, item) {
    const char *const name = json_is_string(item) ? json_string_value(item) : "";
    const int axis = find_axis(reading->step, name);
    OT_CHECK(axis >= 0, OT_USAGE, "%s: key \"data_axes\" names \"%s\", which the mesh lacks",
             reading->file, name);
    reading->step->axes[axis].data = true;
  }
  return OT_OK;
}

ot_status ot_recorded_read_mesh(ot_recorded_reading *reading, const json_t *root) {
  const json_t *mesh, *coordinates, *axes;
  const char *name;
  json_t *size;
  OT_TRY(ot_recorded_member(reading, root, "mesh", JSON_OBJECT, &mesh));
  OT_TRY(ot_recorded_member(reading, root, "coordinates", JSON_OBJECT, &coordinates));
  OT_TRY(ot_recorded_member(reading, root, "data_axes", JSON_ARRAY, &axes));
  if (reading->rank == 0) {
    json_object_foreach(iterated(mesh), name, size) OT_TRY(add_axis(reading, name, size));
  }
  OT_TRY(compare_axes(reading, mesh));
  OT_TRY(read_coordinates(reading, coordinates));
  return read_data_axes(reading, axes);
}

// ---- batches, scalars, aliases ----

static ot_status read_batch(ot_recorded_reading *reading, const json_t *item) {
  ot_recorded_step *const step = reading->step;
  const json_t *micro, *shifted;
  OT_CHECK(json_is_object(item), OT_ENVIRONMENT, "%s: an entry of \"batches\" is not an object",
           reading->file);
  OT_TRY(ot_recorded_member(reading, item, "micro", JSON_INTEGER, &micro));
  OT_TRY(ot_recorded_member(reading, item, "shifted", JSON_TRUE, &shifted));
  const int64_t number = json_integer_value(micro);
  OT_CHECK(micro != NULL && number >= 0 && number < OT_RECORDED_MICRO_MAX, OT_ENVIRONMENT,
           "%s: key \"micro\" of a batch is not a number from 0 to %d", reading->file,
           OT_RECORDED_MICRO_MAX - 1);
  reading->batches = ot_arena_grow(reading->arena, reading->batches, step->num_batches,
                                   &reading->batches_capacity, sizeof *reading->batches);
  reading->batches[step->num_batches++] = (ot_recorded_batch){
      .rank = reading->rank, .micro = (int)number, .shifted = json_is_true(shifted)};
  reading->ranks[reading->rank].num_batches++;
  return OT_OK;
}

static ot_status read_scalars(ot_recorded_reading *reading, const json_t *scalars) {
  ot_recorded_step *const step = reading->step;
  const char *name;
  json_t *value;
  OT_CHECK(json_object_size(scalars) <= SCALARS_MAX, OT_ENVIRONMENT,
           "%s: more than %d entries in \"scalars\"", reading->file, SCALARS_MAX);
  json_object_foreach(iterated(scalars), name, value) {
    ot_recorded_scalar scalar = {.rank = reading->rank};
    if (json_is_null(value)) continue;
    OT_CHECK(ot_recorded_number(value, &scalar.value), OT_ENVIRONMENT,
             "%s: scalar \"%s\" is not a number", reading->file, name);
    scalar.name = ot_arena_text(reading->arena, name, ot_text_length(name));
    reading->scalars = ot_arena_grow(reading->arena, reading->scalars, step->num_scalars,
                                     &reading->scalars_capacity, sizeof *reading->scalars);
    reading->scalars[step->num_scalars++] = scalar;
  }
  return OT_OK;
}

static ot_status read_aliases(ot_recorded_reading *reading, const json_t *aliases) {
  ot_recorded_step *const step = reading->step;
  const char *name;
  json_t *value;
  json_object_foreach(iterated(aliases), name, value) {
    ot_recorded_alias alias;
    OT_TRY(ot_recorded_text(reading, value, "a name in \"aliases\"", OT_RECORDED_NAME_BYTES,
                            &alias.target));
    alias.name = ot_arena_text(reading->arena, name, ot_text_length(name));
    reading->aliases = ot_arena_grow(reading->arena, reading->aliases, step->num_aliases,
                                     &reading->aliases_capacity, sizeof *reading->aliases);
    reading->aliases[step->num_aliases++] = alias;
  }
  return OT_OK;
}

// A text of all ranks, which is that of rank 0 if `same`.
static ot_status read_common(const ot_recorded_reading *reading, const json_t *root,
                             const char *key, bool same, const char **text) {
  const json_t *value;
  const char *found = "";
  OT_TRY(ot_recorded_member(reading, root, key, JSON_STRING, &value));
  if (value != NULL)
    OT_TRY(ot_recorded_text(reading, value, ot_arena_format(reading->arena, "key \"%s\"", key),
                            OT_RECORDED_TEXT_BYTES, &found));
  if (reading->rank == 0) *text = found;
  OT_CHECK(!same || ot_text_equal(*text, found), OT_USAGE,
           "%s: key \"%s\" is \"%s\", at rank 0 \"%s\"", reading->file, key, found, *text);
  return OT_OK;
}

ot_status ot_recorded_read_settings(ot_recorded_reading *reading, const json_t *root) {
  ot_recorded_step *const step = reading->step;
  const json_t *batches, *scalars, *aliases, *dropout;
  size_t index;
  json_t *item;
  OT_TRY(read_common(reading, root, "moment", true, &step->moment));
  OT_TRY(read_common(reading, root, "software", false, &step->software));
  OT_TRY(read_common(reading, root, "note", false, &step->note));
  OT_TRY(ot_recorded_member(reading, root, "dropout", JSON_REAL, &dropout));
  OT_TRY(ot_recorded_member(reading, root, "batches", JSON_ARRAY, &batches));
  OT_TRY(ot_recorded_member(reading, root, "scalars", JSON_OBJECT, &scalars));
  OT_TRY(ot_recorded_member(reading, root, "aliases", JSON_OBJECT, &aliases));
  step->dropout = fmax(step->dropout, json_number_value(dropout));
  json_array_foreach(batches, index, item) OT_TRY(read_batch(reading, item));
  OT_TRY(read_scalars(reading, scalars));
  return read_aliases(reading, aliases);
}

// ---- the optimizer ----

// Values that are no numbers, such as null, have neither numbers nor a text.
static ot_status read_setting(const ot_recorded_reading *reading, const char *name,
                              const json_t *value, ot_recorded_setting *setting) {
  setting->name = ot_arena_text(reading->arena, name, ot_text_length(name));
  const int many = json_is_array(value) ? (int)json_array_size(value) : 1;
  for (int i = 0; i < many && i < OT_RECORDED_VALUES; i++) {
    const json_t *const item = json_is_array(value) ? json_array_get(value, (size_t)i) : value;
    if (!ot_recorded_number(item, &setting->value[i])) break;
    setting->count = i + 1;
  }
  if (setting->count > 0 || !json_is_string(value)) return OT_OK;
  return ot_recorded_text(reading, value, "a setting of the optimizer", OT_RECORDED_TEXT_BYTES,
                          &setting->text);
}

static ot_status read_group(const ot_recorded_reading *reading, const json_t *item,
                            ot_recorded_group *group) {
  const json_t *names, *settings;
  const char *key;
  json_t *value;
  OT_CHECK(json_is_object(item), OT_ENVIRONMENT, "%s: a group of the optimizer is not an object",
           reading->file);
  OT_TRY(ot_recorded_member(reading, item, "names", JSON_ARRAY, &names));
  OT_TRY(ot_recorded_member(reading, item, "settings", JSON_OBJECT, &settings));
  OT_CHECK(json_object_size(settings) <= SETTINGS_MAX, OT_ENVIRONMENT,
           "%s: a group of the optimizer has more than %d settings", reading->file, SETTINGS_MAX);
  const int64_t count = (int64_t)json_object_size(settings);
  ot_recorded_setting *const list = ot_arena_array(reading->arena, count, sizeof *list);
  json_object_foreach(iterated(settings), key, value)
      OT_TRY(read_setting(reading, key, value, &list[group->num_settings++]));
  group->settings = list;
  group->num_names = (int)json_array_size(names);
  group->names = ot_arena_array(reading->arena, group->num_names, sizeof *group->names);
  for (int i = 0; i < group->num_names; i++)
    OT_TRY(ot_recorded_text(reading, json_array_get(names, (size_t)i),
                            "a name in a group of the optimizer", OT_RECORDED_NAME_BYTES,
                            &group->names[i]));
  return OT_OK;
}

ot_status ot_recorded_read_optimizer(ot_recorded_reading *reading, const json_t *root) {
  ot_recorded_step *const step = reading->step;
  const json_t *optimizer, *kind, *groups;
  const char *class = "";
  size_t index;
  json_t *item;
  OT_TRY(ot_recorded_member(reading, root, "optimizer", JSON_OBJECT, &optimizer));
  OT_TRY(ot_recorded_member(reading, optimizer, "class", JSON_STRING, &kind));
  OT_TRY(ot_recorded_member(reading, optimizer, "groups", JSON_ARRAY, &groups));
  OT_CHECK(json_array_size(groups) <= GROUPS_MAX, OT_ENVIRONMENT,
           "%s: the optimizer has more than %d groups", reading->file, GROUPS_MAX);
  if (kind != NULL)
    OT_TRY(ot_recorded_text(reading, kind, "the class of the optimizer", OT_RECORDED_NAME_BYTES,
                            &class));
  json_array_foreach(groups, index, item) {
    ot_recorded_group group = {.rank = reading->rank, .index = (int)index, .optimizer = class};
    OT_TRY(read_group(reading, item, &group));
    reading->groups = ot_arena_grow(reading->arena, reading->groups, step->num_groups,
                                    &reading->groups_capacity, sizeof *reading->groups);
    reading->groups[step->num_groups++] = group;
  }
  return OT_OK;
}
