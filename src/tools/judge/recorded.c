// SPDX-License-Identifier: Apache-2.0
// The folder: one rank after the other, whose texts are parsed as a whole and released.
#include "judge/recorded.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "judge/recorded_parts.h"

// ---- one rank ----

static ot_status read_head(ot_recorded_reading *reading, const json_t *root) {
  ot_recorded_step *const step = reading->step;
  const json_t *format, *rank, *world;
  OT_CHECK(json_is_object(root), OT_ENVIRONMENT, "%s: not an object", reading->file);
  OT_TRY(ot_recorded_member(reading, root, "format", JSON_STRING, &format));
  OT_TRY(ot_recorded_member(reading, root, "rank", JSON_INTEGER, &rank));
  OT_TRY(ot_recorded_member(reading, root, "world", JSON_INTEGER, &world));
  const char *const name = format != NULL ? json_string_value(format) : "";
  if (!ot_text_equal(name, OT_RECORDED_FORMAT)) {
    ot_fail(OT_ENVIRONMENT, "%s: its format is \"%s\", this program reads \"%s\"", reading->file,
            name, OT_RECORDED_FORMAT);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "record the step with the orthant_record.py of this version");
  }
  const int64_t ranks = json_integer_value(world), own = json_integer_value(rank);
  OT_CHECK(world != NULL && ranks >= 1 && ranks <= OT_RECORDED_RANKS, OT_ENVIRONMENT,
           "%s: key \"world\" is not a number of ranks from 1 to %d", reading->file,
           OT_RECORDED_RANKS);
  OT_CHECK(rank != NULL && own == reading->rank, OT_USAGE,
           "%s: it is the record of rank %lld by its key \"rank\"", reading->file, (long long)own);
  OT_CHECK(reading->rank == 0 || ranks == step->world, OT_USAGE,
           "%s: the step had %lld ranks, by rank 0 it had %d", reading->file, (long long)ranks,
           step->world);
  if (reading->rank > 0) return OT_OK;
  step->world = (int)ranks;
  step->ranks = reading->ranks = ot_arena_array(reading->arena, ranks, sizeof *reading->ranks);
  return OT_OK;
}

static ot_status read_tensors(ot_recorded_reading *reading, const json_t *root) {
  const json_t *places;
  ot_safetensors *files = NULL;
  OT_TRY(ot_recorded_member(reading, root, "tensors", JSON_OBJECT, &places));
  const char *const path = reading->ranks[reading->rank].tensor_file;
  OT_CHECK(!ot_disk_is_directory(path), OT_ENVIRONMENT, "%s: not a file", path);
  OT_TRY(ot_safetensors_create(path, "", &files));
  const ot_status status = ot_recorded_read_tensors(reading, places, files);
  ot_safetensors_destroy(&files);
  return status;
}

static ot_status read_root(ot_recorded_reading *reading, const json_t *root) {
  OT_TRY(read_head(reading, root));
  reading->ranks[reading->rank].tensor_file = ot_arena_format(
      reading->arena, "%s/rank-%05d.safetensors", reading->step->path, reading->rank);
  OT_TRY(ot_recorded_read_mesh(reading, root));
  OT_TRY(ot_recorded_read_settings(reading, root));
  OT_TRY(ot_recorded_read_optimizer(reading, root));
  return read_tensors(reading, root);
}

static ot_status parse_rank(ot_recorded_reading *reading, ot_arena *texts) {
  char *text;
  int64_t bytes;
  json_t *root = NULL;
  OT_TRY(ot_disk_read(texts, reading->file, OT_RECORDED_JSON_BYTES, &text, &bytes));
  OT_TRY(ot_json_check_lists(reading->file, text, bytes, OT_RECORDED_JSON_LISTS));
  OT_TRY(ot_json_parse(reading->file, text, bytes, &root));
  const ot_status status = read_root(reading, root);
  json_decref(root);
  return status;
}

static ot_status read_rank(ot_recorded_reading *reading, int rank) {
  reading->rank = rank;
  reading->file = ot_arena_format(reading->arena, "%s/rank-%05d.json", reading->step->path, rank);
  if (!ot_disk_is_file(reading->file)) {
    ot_fail(OT_ENVIRONMENT, "%s: missing%s", reading->file,
            rank == 0 ? ""
                      : ot_arena_format(reading->arena, "; rank 0 says that the step had %d ranks",
                                        reading->step->world));
    return ot_fail_hint(OT_ENVIRONMENT,
                        "copy the files of all ranks into one folder; each rank calls close()");
  }
  ot_heap heap = {0};
  ot_arena texts = ot_heap_arena_create(&heap);
  const ot_status status = parse_rank(reading, &texts);
  ot_heap_release(&heap);
  return status;
}

// ---- all ranks ----

// Files of a rank that the step did not have are left from another one.
static ot_status check_names(const ot_recorded_reading *reading) {
  const ot_recorded_step *const step = reading->step;
  ot_disk_names names;
  OT_TRY(ot_disk_list(reading->arena, step->path, &names));
  for (int64_t i = 0; i < names.count; i++) {
    const char *const digits = names.name[i] + ot_text_length("rank-");
    if (!ot_text_matches(names.name[i], "rank-?????.json")) continue;
    char *end;
    const long rank = strtol(digits, &end, 10);
    if (end != digits + 5 || (rank >= 0 && rank < step->world)) continue;
    ot_fail(OT_USAGE, "%s/%s: rank 0 says that the step had %d ranks", step->path, names.name[i],
            step->world);
    return ot_fail_hint(OT_USAGE, "record each step into a new folder");
  }
  return OT_OK;
}

typedef struct mesh_place {
  int coordinate[OT_RECORDED_AXES];
  int rank;
} mesh_place;

static int compare_places(const void *a, const void *b) {
  const mesh_place *const x = a, *const y = b;
  const int order = memcmp(x->coordinate, y->coordinate, sizeof x->coordinate);
  return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

// Ranks have different places in the mesh. A record without a mesh gets an axis of all ranks.
static ot_status check_coordinates(ot_recorded_reading *reading) {
  ot_recorded_step *const step = reading->step;
  if (step->num_axes == 0 && step->world > 1) {
    step->axes[step->num_axes++] = (ot_recorded_axis){.name = "rank", .size = step->world};
    for (int i = 0; i < step->world; i++) reading->ranks[i].coordinate[0] = i;
  }
  mesh_place *const places = ot_arena_array(reading->arena, step->world, sizeof *places);
  for (int i = 0; i < step->world; i++) {
    memcpy(places[i].coordinate, reading->ranks[i].coordinate, sizeof places[i].coordinate);
    places[i].rank = i;
  }
  qsort(places, (size_t)step->world, sizeof *places, compare_places);
  for (int i = 1; i < step->world; i++) {
    if (memcmp(places[i - 1].coordinate, places[i].coordinate, sizeof places[i].coordinate) != 0)
      continue;
    ot_fail(OT_USAGE, "%s: ranks %d and %d have the same coordinates on all axes of the mesh",
            step->path, places[i - 1].rank, places[i].rank);
    return ot_fail_hint(OT_USAGE, "give the Recorder the mesh with all its axes");
  }
  return OT_OK;
}

static ot_status read_model(ot_recorded_reading *reading) {
  ot_recorded_step *const step = reading->step;
  const ot_config_request request = {0};
  ot_config_model model;
  const char *const path = ot_arena_format(reading->arena, "%s/config.json", step->path);
  if (!ot_disk_is_file(path)) {
    ot_fail(OT_ENVIRONMENT, "%s: missing", path);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "copy the model's config.json of Hugging Face into the record");
  }
  OT_TRY(ot_config_load_model(path, &request, reading->arena, &model));
  step->model = model.model;
  return OT_OK;
}

static void add_note(ot_recorded_step *step, const char *note) {
  if (step->num_notes < OT_COUNT(step->notes)) step->notes[step->num_notes++] = note;
}

static void add_notes(const ot_recorded_reading *reading) {
  ot_recorded_step *const step = reading->step;
  if (reading->num_unknown > 0)
    add_note(step, ot_arena_format(reading->arena,
                                   "%lld tensors of kinds that this program does not know, such "
                                   "as \"%s\", are ignored.",
                                   (long long)reading->num_unknown, reading->unknown_kind));
  if (step->dropout > 0)
    add_note(step, ot_arena_format(reading->arena,
                                   "The model has dropout of %.3g: unless it was off, no "
                                   "recomputation agrees.",
                                   step->dropout));
}

ot_status ot_recorded_read(const char *path, ot_arena *arena, ot_recorded_step *out) {
  ot_recorded_reading reading = {.arena = arena, .step = out};
  *out = (ot_recorded_step){.world = 1, .path = ot_arena_text(arena, path, ot_text_length(path))};
  if (!ot_disk_is_directory(path)) {
    ot_fail(OT_ENVIRONMENT, "%s: not a folder", path);
    return ot_fail_hint(OT_ENVIRONMENT, "a record is the folder that orthant_record.py wrote");
  }
  OT_TRY(read_model(&reading));
  for (int rank = 0; rank < out->world; rank++) OT_TRY(read_rank(&reading, rank));
  OT_TRY(check_names(&reading));
  OT_TRY(ot_recorded_group_ranks(&reading));
  OT_TRY(check_coordinates(&reading));
  OT_TRY(ot_recorded_join(&reading));
  add_notes(&reading);
  return OT_OK;
}
