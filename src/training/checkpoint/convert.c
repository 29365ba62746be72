// SPDX-License-Identifier: Apache-2.0
// Reads one set of files while writing another, a block at a time, independent of model size.
#include "checkpoint/convert.h"

#include <unistd.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "checkpoint/hf_texts.h"
#include "checkpoint/weight_stack.h"
#include "describe/model_keys.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "graph/graph.h"

enum { TEXTS_MAX = 16 };

// Tokenizer files, copied unchanged if present.
static const char *const copied_names[] = {"generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja"};
enum { NUM_COPIED = sizeof copied_names / sizeof copied_names[0] };

typedef struct conversion {
  ot_arena *arena;
  const ot_convert_request *request;
  ot_convert_report *report;
  const char *to;  // request->to with links resolved
  ot_checkpoint *checkpoint;
  ot_model model;
  ot_graph graph;
  ot_weight_map map;
  ot_weight_source *source;  // [map.num_tensors] in the set that holds it
  ot_checkpoint_set set;
  ot_tensor_source *sources;  // [num_sources]
  int num_sources;
  int num_texts;
  ot_checkpoint_text texts[TEXTS_MAX];
} conversion;

// A tensor of the input files.
typedef struct file_tensor {
  ot_weight_reader reading;
  ot_dtype dtype;
} file_tensor;

static ot_status fill(void *context, int64_t first, int64_t count, void *out) {
  const file_tensor *const tensor = context;
  return ot_weight_read(&tensor->reading, first, count, tensor->dtype, out);
}

// ---- the tensors ----

static ot_status read_model(conversion *c) {
  const ot_config_request request = {.sets = c->request->sets, .num_sets = c->request->num_sets};
  ot_config_model *const read = ot_arena_take(c->arena, sizeof *read);
  OT_TRY(ot_config_load_model(c->report->from, &request, c->arena, read));
  c->model = read->model;
  c->report->config_notes = read->notes;
  return OT_OK;
}

static ot_status build_map(conversion *c) {
  const ot_graph_request request = {.model = &c->model,
                                    .mode = OT_MODE_LOGITS,
                                    .micro_batch_size = 1,
                                    .sequence_length = 1,
                                    .compute = OT_F32,
                                    .storage = OT_F32,
                                    .threads = 1};
  OT_TRY(ot_graph_build(&request, c->arena, &c->graph));
  OT_TRY(ot_weight_map_build(c->arena, c->graph.parameters, c->graph.num_parameters, &c->map));
  c->map.files = &c->model;
  return OT_OK;
}

// Points the sources at master.NAME if every tensor has one; false if some lack it.
static bool find_masters(conversion *c) {
  const ot_safetensors *const optimizer =
      ot_checkpoint_tensors(c->checkpoint, OT_CHECKPOINT_OPTIMIZER);
  if (optimizer == NULL) return false;
  ot_weight_source *const masters = ot_arena_array(c->arena, c->map.num_tensors, sizeof *masters);
  for (int i = 0; i < c->map.num_tensors; i++) {
    const char *const name = ot_arena_format(c->arena, "master.%s", c->map.tensors[i].name);
    masters[i] = (ot_weight_source){.index = ot_safetensors_find(optimizer, name)};
    if (masters[i].index < 0) return false;
  }
  c->source = masters;
  c->set = OT_CHECKPOINT_OPTIMIZER;
  return true;
}

// Marks the rounded weights next to their masters as handled: known but not wanted.
static void skip_all(ot_checkpoint *checkpoint, ot_checkpoint_set set) {
  const int count = ot_safetensors_count(ot_checkpoint_tensors(checkpoint, set));
  for (int i = 0; i < count; i++) ot_checkpoint_skip(checkpoint, set, i);
}

static ot_status choose_sources(conversion *c) {
  ot_convert_report *const report = c->report;
  c->source = ot_arena_array(c->arena, c->map.num_tensors, sizeof *c->source);
  c->set = OT_CHECKPOINT_MODEL;
  OT_TRY(ot_weights_match(c->arena, &c->map, c->checkpoint, c->source, &report->notes));
  const bool wide = c->request->dtype != NULL && *c->request->dtype == OT_F32;
  report->from_master = wide && find_masters(c);
  if (report->from_master) skip_all(c->checkpoint, OT_CHECKPOINT_MODEL);
  return OT_OK;
}

static ot_status build_sources(conversion *c) {
  OT_TRY(choose_sources(c));
  const ot_safetensors *const tensors = ot_checkpoint_tensors(c->checkpoint, c->set);
  c->sources = ot_arena_array(c->arena, c->map.num_tensors, sizeof *c->sources);
  for (int i = 0; i < c->map.num_tensors; i++) {
    const ot_safetensors_tensor *const found =
        ot_safetensors_tensor_at(tensors, c->source[i].index);
    file_tensor *const context = ot_arena_take(c->arena, sizeof *context);
    *context = (file_tensor){{c->checkpoint, c->set, c->source[i], true}, OT_F32};
    const bool known = ot_safetensors_type_dtype(found->type, &context->dtype);
    if (c->source[i].scales) context->dtype = c->model.dtype;
    OT_CHECK(known && ot_dtype_is_real(context->dtype), OT_ENVIRONMENT,
             "tensor %s is %s, which this program cannot convert (%s)", found->name,
             ot_safetensors_type_name(found->type), c->report->from);
    if (c->request->dtype != NULL) context->dtype = *c->request->dtype;
    const ot_weight_tensor *const tensor = &c->map.tensors[i];
    c->sources[i] = (ot_tensor_source){.name = tensor->name,
                                       .dtype = context->dtype,
                                       .rank = tensor->rank,
                                       .dim = {tensor->dim[0], tensor->dim[1]},
                                       .fill = fill,
                                       .context = context};
    c->report->bytes += tensor->rows * tensor->cols * ot_dtype_bytes(context->dtype);
  }
  c->num_sources = c->map.num_tensors;
  ot_weight_stacks_join(c->arena, c->sources, &c->num_sources, NULL);
  c->report->num_tensors = c->num_sources;
  return OT_OK;
}

static void count_left_out(conversion *c) {
  const ot_safetensors *const optimizer =
      ot_checkpoint_tensors(c->checkpoint, OT_CHECKPOINT_OPTIMIZER);
  if (optimizer == NULL) return;
  for (int i = 0; i < ot_safetensors_count(optimizer); i++) {
    const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(optimizer, i);
    if (c->report->from_master && ot_text_starts_with(tensor->name, "master.")) continue;
    c->report->num_left_out++;
    c->report->left_out_bytes += tensor->bytes;
    ot_checkpoint_skip(c->checkpoint, OT_CHECKPOINT_OPTIMIZER, i);
  }
}

// ---- the small files ----

static void add_text(conversion *c, ot_checkpoint_text text) {
  for (int i = 0; i < c->num_texts; i++)
    if (ot_text_equal(c->texts[i].name, text.name)) return;
  OT_ASSERT(c->num_texts < TEXTS_MAX);
  c->texts[c->num_texts++] = text;
}

static ot_status copy_texts(conversion *c) {
  for (int i = 0; i < NUM_COPIED; i++) {
    ot_checkpoint_text text = {.name = copied_names[i]};
    OT_TRY(ot_checkpoint_read_text(c->checkpoint, c->arena, &text));
    if (text.text != NULL) add_text(c, text);
  }
  return OT_OK;
}

// Generates the files that the source lacks; if this program cannot run the tokenizer, only its
// file is copied.
static ot_status make_texts(conversion *c) {
  const ot_dtype dtype = c->num_sources > 0 ? c->sources[0].dtype : c->model.dtype;
  const char *const path = ot_checkpoint_file(c->checkpoint, "tokenizer.json");
  const bool described = ot_checkpoint_file(c->checkpoint, "tokenizer_config.json") != NULL;
  ot_tokenizer *tokenizer = NULL;
  if (path != NULL && !described) (void)ot_tokenizer_create(path, &tokenizer);
  ot_hf_texts made;
  const ot_status status = ot_hf_texts_build(c->arena, &c->model, dtype, tokenizer, &made);
  for (int i = 0; i < made.count; i++) {
    ot_checkpoint_text *const text = &made.text[i];
    text->text = ot_arena_text(c->arena, text->text, text->bytes);
    add_text(c, *text);
  }
  ot_tokenizer_destroy(&tokenizer);
  return status;
}

// ---- the conversion ----

static const char *model_settings(conversion *c) {
  ot_json_writer json = ot_json_begin(c->arena, 0);
  ot_json_object(&json, NULL);
  ot_node_write_json(ot_model_write(&c->model, c->arena), "model", &json);
  ot_json_end(&json);
  return json.text;
}

// Software that reads HF directories would ignore tensors without a known name and run another
// model.
static ot_status check_known(const conversion *c) {
  if (c->model.residuals.block_size == 0 || c->request->only_native) return OT_OK;
  ot_fail(OT_USAGE,
          "no HF model has attention_residuals, so there is no HF directory of this one (%s)",
          c->report->from);
  return ot_fail_hint(OT_USAGE, "train, score and sample read the checkpoint itself");
}

static ot_status convert_open(conversion *c) {
  ot_convert_report *const report = c->report;
  report->to_hf = ot_checkpoint_manifest(c->checkpoint) != NULL;
  OT_TRY(build_map(c));
  if (report->to_hf) OT_TRY(check_known(c));
  OT_TRY(build_sources(c));
  count_left_out(c);
  OT_TRY(copy_texts(c));
  OT_TRY(make_texts(c));
  const ot_manifest manifest = {.config = model_settings(c), .mesh = {1, 1, 1, 1, 1, 1, 1, 1}};
  const ot_checkpoint_content content = {.num_model = c->num_sources,
                                         .model = c->sources,
                                         .num_texts = c->num_texts,
                                         .texts = c->texts,
                                         .manifest = report->to_hf ? NULL : &manifest,
                                         .shard_bytes = c->request->shard_bytes};
  OT_TRY(ot_checkpoint_write(c->to, &content));
  OT_TRY(ot_checkpoint_check_complete(c->checkpoint, OT_CHECKPOINT_MODEL));
  return ot_checkpoint_check_complete(c->checkpoint, OT_CHECKPOINT_OPTIMIZER);
}

// *damaged: it failed because the files are not those that were saved.
static ot_status convert_found(conversion *c, const ot_checkpoint_found *found, bool *damaged) {
  *damaged = false;
  *c->report = (ot_convert_report){.from = found->path, .note = found->note};
  OT_TRY(read_model(c));
  OT_TRY(ot_checkpoint_create(found->path, &c->checkpoint));
  const ot_status status = convert_open(c);
  *damaged = status != OT_OK && ot_checkpoint_damage(c->checkpoint) != NULL;
  ot_checkpoint_destroy(&c->checkpoint);
  return status;
}

ot_status ot_convert(ot_arena *arena, const ot_convert_request *request,
                     ot_convert_report *report) {
  *report = (ot_convert_report){0};
  char target[OT_PATH_BYTES];
  OT_TRY(ot_output_file_follow(request->to, target));
  if (access(target, F_OK) == 0) {
    ot_fail(OT_USAGE, "the output directory already exists (%s)", request->to);
    return ot_fail_hint(OT_USAGE, "choose another, or remove it first");
  }
  ot_checkpoint_damage_list damages = {0};
  bool damaged = true;
  ot_status status = OT_OK;
  while (damaged) {
    const ot_checkpoint_search search = {.hashes = OT_CHECKPOINT_HASH_HEADERS, .known = &damages};
    ot_checkpoint_found found;
    OT_TRY(ot_checkpoint_find(arena, request->from, &search, &found));
    conversion c = {.arena = arena, .request = request, .report = report, .to = target};
    status = convert_found(&c, &found, &damaged);
    if (damaged) ot_checkpoint_damage_add(arena, &damages, found.manifest->step, ot_fail_message());
  }
  return status;
}
