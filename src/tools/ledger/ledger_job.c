// SPDX-License-Identifier: Apache-2.0
// An arm as settings of a run in order of precedence: scale, budget, changes, tuning, and what the
// ledger fixes. Paths are written relative to their files in what is hashed, so that a key is the
// same on every machine.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "checkpoint/checkpoint_list.h"
#include "data/data_loader.h"
#include "data/shard_meta.h"
#include "data/token_shard.h"
#include "describe/run_keys.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "host/heap.h"
#include "ledger/ledger.h"
#include "record/metrics_read.h"
#include "runtime/training_request.h"

const char *ot_ledger_arm_name(const ot_ledger_arm *arm, ot_arena *arena) {
  ot_text_builder name = {.arena = arena};
  for (int i = 0; i < arm->num_changes; i++)
    ot_text_appendf(&name, "%s%s", i > 0 ? "+" : "", arm->changes[i]->name);
  return arm->num_changes > 0 ? ot_text_builder_text(&name) : "base";
}

// ---- settings ----

typedef struct setting_list {
  const ot_ledger *ledger;
  ot_ledger_job *job;
  int64_t capacity;
  ot_text_builder identity;  // what the key is the hash of
} setting_list;

static void add(setting_list *l, const char *text, const char *written) {
  ot_ledger_job *const job = l->job;
  job->sets =
      ot_arena_grow(l->ledger->arena, job->sets, job->num_sets, &l->capacity, sizeof *job->sets);
  job->sets[job->num_sets++] = text;
  if (written) ot_text_appendf(&l->identity, "%s\n", written);
}

static void add_number(setting_list *l, const char *key, int64_t value) {
  const char *const text = ot_arena_format(l->ledger->arena, "%s=%lld", key, (long long)value);
  add(l, text, text);
}

static void add_all(setting_list *l, const ot_ledger_sets *sets) {
  for (int i = 0; i < sets->count; i++) add(l, sets->text[i], sets->written[i]);
}

static ot_status load(const ot_ledger *ledger, const ot_ledger_job *job, ot_config *config) {
  const ot_config_request request = {.path = ledger->policy.base,
                                     .sets = job->sets,
                                     .num_sets = job->num_sets,
                                     .presets = ledger->presets};
  return ot_config_load(&request, ledger->arena, config);
}

// Multiplies tuned numbers, as they are with all other settings.
static ot_status add_tuned(setting_list *l) {
  const ot_ledger_policy *const p = &l->ledger->policy;
  ot_config config;
  bool any = false;
  for (int i = 0; i < p->tuning.num_keys; i++)
    any = any || (l->job->arm.tuned[i] != 0 && l->job->arm.tuned[i] != 1);
  if (!any) return OT_OK;
  OT_TRY(load(l->ledger, l->job, &config));
  for (int i = 0; i < p->tuning.num_keys; i++) {
    const double factor = l->job->arm.tuned[i];
    if (factor == 0 || factor == 1) continue;
    const ot_node *const node = ot_node_find(config.settings, p->tuning.keys[i]);
    double value;
    OT_CHECK(node && node->kind == OT_NODE_SCALAR && ot_number_parse(node->text, false, &value),
             OT_USAGE, "tuning.keys: %s is no number (%s)", p->tuning.keys[i], p->path);
    char number[32];
    ot_number_print_shortest(number, sizeof number, value * factor);
    const char *const text = ot_arena_format(l->ledger->arena, "%s=%s", p->tuning.keys[i], number);
    add(l, text, text);
  }
  return OT_OK;
}

static void add_budget(setting_list *l) {
  const ot_ledger_arm *const arm = &l->job->arm;
  const double forged = ot_ledger_forged(arm->changes, arm->num_changes, arm->scale);
  double tokens = (double)l->ledger->policy.scales[arm->scale].tokens * arm->budget * forged;
  for (int i = 0; i < arm->num_changes; i++) tokens *= arm->changes[i]->budget;
  add(l, "steps=0", NULL);
  add_number(l, "tokens", (int64_t)(tokens + 0.5));
}

// A change of tokenizer brings the same text in its own tokens.
static void add_metric(setting_list *l) {
  const ot_ledger_policy *const p = &l->ledger->policy;
  if (p->metric.data[0] != '\0')
    add(l, ot_config_setting(l->ledger->arena, "data.validation", p->metric.data),
        "data.validation");
  if (p->metric.tokens > 0) add_number(l, "data.validation_tokens", p->metric.tokens);
}

static void add_fixed(setting_list *l) {
  const ot_ledger_policy *const p = &l->ledger->policy;
  if (l->job->arm.steps > 0) {
    add_number(l, "steps", l->job->arm.steps);
    add(l, "tokens=0", NULL);
  }
  add_number(l, "seed", p->seeds.base + l->job->arm.seed);
  add_number(l, "threads", p->threads);
  ot_text_appendf(&l->identity, "ranks=%d\nscale %s\nbase %s\nprogram %s\n", p->ranks,
                  p->scales[l->job->arm.scale].name, l->ledger->base_hash, l->job->program);
  static const char *const rest[] = {"data.validation_every=0", "checkpoint.every=0",
                                     "checkpoint.keep=1", "log.tensorboard=false", "audit.every=0"};
  for (int i = 0; i < OT_COUNT(rest); i++) add(l, rest[i], NULL);
}

static ot_status find_program(ot_ledger_job *job) {
  job->program = "";
  for (int i = 0; i < job->arm.num_changes; i++) {
    const char *const own = job->arm.changes[i]->program;
    if (own[0] == '\0') continue;
    OT_CHECK(job->program[0] == '\0' || ot_text_equal(job->program, own), OT_USAGE,
             "%s: two of the changes name programs, %s and %s", job->name, job->program, own);
    job->program = own;
  }
  return OT_OK;
}

ot_status ot_ledger_job_build(const ot_ledger *ledger, const ot_ledger_arm *arm,
                              ot_ledger_job *out) {
  const ot_ledger_policy *const p = &ledger->policy;
  ot_arena *const arena = ledger->arena;
  *out = (ot_ledger_job){.arm = *arm, .name = ot_ledger_arm_name(arm, arena)};
  setting_list l = {.ledger = ledger, .job = out, .identity = {.arena = arena}};
  OT_TRY(find_program(out));
  add_all(&l, &p->scales[arm->scale].sets);
  add_budget(&l);
  add_metric(&l);
  for (int i = 0; i < arm->num_changes; i++) add_all(&l, &arm->changes[i]->sets);
  OT_TRY(add_tuned(&l));
  add_fixed(&l);
  char key[OT_CONTENT_HASH_BYTES], budget[32] = "";
  ot_content_hash_memory(ot_text_builder_text(&l.identity), l.identity.length, key);
  out->key = ot_arena_text(arena, key, OT_CONTENT_HASH_BYTES - 1);
  if (arm->budget != 1) snprintf(budget, sizeof budget, "-x%g", arm->budget);
  out->id = ot_arena_format(arena, "%.40s-%s-%lld%s-%.8s", out->name, p->scales[arm->scale].name,
                            (long long)(p->seeds.base + arm->seed), budget, out->key);
  out->directory = ot_disk_join(arena, ot_disk_join(arena, ledger->directory, "runs"), out->id);
  add(&l, ot_config_setting(arena, "output", out->directory), NULL);
  return OT_OK;
}

// ---- what a run will take ----

static void hash_rows(ot_content_hash *hash, const ot_micro_batch *rows) {
  const int64_t bytes = rows->B * rows->T * (int64_t)sizeof *rows->tokens;
  ot_content_hash_update(hash, rows->tokens, bytes);
  ot_content_hash_update(hash, rows->targets, bytes);
}

// Hashes the first `count` samples of the training or the validation data.
static ot_status hash_samples(ot_data_loader *loader, bool train, int64_t count, int64_t length,
                              ot_content_hash *hash) {
  ot_micro_batch rows;
  OT_TRY(ot_micro_batch_create(1, length, &rows));
  ot_status status = OT_OK;
  for (int64_t i = 0; i < count && status == OT_OK; i++) {
    status = train ? ot_data_loader_train(loader, i, &rows)
                   : ot_data_loader_validation(loader, 0, i, &rows);
    if (status == OT_OK) hash_rows(hash, &rows);
  }
  ot_micro_batch_release(&rows);
  return status;
}

static const char *finish_hash(ot_content_hash **hash, ot_arena *arena) {
  char hex[OT_CONTENT_HASH_BYTES];
  ot_content_hash_print(*hash, hex);
  ot_content_hash_destroy(hash);
  return ot_arena_text(arena, hex, OT_CONTENT_HASH_BYTES - 1);
}

static ot_status hash_data(const ot_ledger *ledger, const ot_run *run, ot_ledger_job *job) {
  const int64_t length = run->data.sequence_length;
  const int64_t tokens = ledger->policy.scales[job->arm.scale].tokens;
  ot_data_loader *loader = NULL;
  ot_content_hash *train = NULL, *validation = NULL;
  ot_status status = ot_content_hash_create(&train);
  if (status == OT_OK) status = ot_content_hash_create(&validation);
  if (status == OT_OK) status = ot_data_loader_create(run, &loader);
  if (status == OT_OK)
    status = hash_samples(loader, true, (tokens + length - 1) / length, length, train);
  if (status == OT_OK)
    status =
        hash_samples(loader, false, ot_data_loader_validation_rows(loader, 0), length, validation);
  ot_data_loader_destroy(&loader);
  job->data_hash = finish_hash(&train, ledger->arena);
  job->validation_hash = finish_hash(&validation, ledger->arena);
  return status;
}

// FLOPs of the model are proportional to the sequences of a run, those of its optimizer to its
// steps.
static ot_status plan_steps(const ot_ledger *ledger, const ot_run *run, ot_ledger_job *job) {
  ot_mesh mesh;
  double flops = 0, update = 0;
  OT_TRY(ot_mesh_build(&run->parallel, ledger->policy.ranks, &mesh));
  for (int rank = 0; rank < mesh.ranks; rank++) {
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    ot_planned_run planned = {
        .run = run, .mesh = &mesh, .threads = ledger->policy.threads, .backend = OT_BACKEND_CPU};
    ot_schedule schedule;
    ot_status status = ot_training_read_order(&planned, &scratch);
    if (status == OT_OK) status = ot_planned_run_rank(&planned, rank, &scratch, &schedule);
    if (status == OT_OK) {
      const int order = ot_schedule_find_order(&schedule, OT_ORDER_STEP, 0);
      flops += ot_order_flops(&schedule, order, true);
      update += ot_order_update_flops(&schedule, order);
    }
    if (status == OT_OK && rank == 0)
      job->schedule_hash = ot_arena_format(ledger->arena, "%016llx",
                                           (unsigned long long)ot_schedule_hash(&schedule));
    ot_heap_release(&heap);
    OT_TRY(status);
  }
  job->steps = ot_run_total_steps(run);
  job->tokens = ot_run_tokens_after(run, job->steps);
  job->model_flops = flops * ((double)job->tokens / (double)ot_run_tokens_after(run, 1)) +
                     update * (double)job->steps;
  return OT_OK;
}

// Bits a byte: tokens of the validation set per byte of its text, over ln 2.
static ot_status find_unit(const ot_ledger *ledger, const ot_run *run, ot_ledger_job *job) {
  const ot_token_shard_request request = {
      .path = run->data.validation[0].path, .format = run->data.format, .eod = -1};
  ot_token_shard *shard = NULL;
  ot_shard_origin origin;
  job->unit = 1;
  if (ledger->policy.metric.unit == 0) return OT_OK;
  OT_TRY(ot_token_shard_create(&request, &shard));
  const ot_token_shard_info *const info = ot_token_shard_describe(shard);
  const double tokens = (double)info->tokens;
  const ot_status status = ot_shard_origin_read(info->bin_path, ledger->arena, &origin);
  ot_token_shard_destroy(&shard);
  OT_TRY(status);
  OT_CHECK(origin.found && origin.text_bytes > 0, OT_USAGE,
           "metric.name: bits_per_byte needs the bytes of the text, which only `orthant tokenize` "
           "writes (%s)",
           request.path);
  job->unit = (double)origin.text_bytes / tokens * log(2);
  return OT_OK;
}

ot_status ot_ledger_job_describe(const ot_ledger *ledger, ot_ledger_job *job) {
  ot_config config;
  OT_TRY(load(ledger, job, &config));
  OT_TRY(ot_run_check_training(&config.run));
  OT_CHECK(config.run.data.num_validation == 1, OT_USAGE,
           "a ledger compares one validation set, and the base has %lld (%s)",
           (long long)config.run.data.num_validation, ledger->policy.base);
  OT_TRY(plan_steps(ledger, &config.run, job));
  OT_TRY(find_unit(ledger, &config.run, job));
  ot_run same = config.run;
  same.output = "";
  job->config_hash = ot_arena_format(ledger->arena, "%016llx",
                                     (unsigned long long)ot_run_hash(&same, ledger->arena));
  return hash_data(ledger, &config.run, job);
}

// ---- what a run became ----

typedef struct metrics_sum {
  ot_ledger_result *result;
  int64_t last_step;
} metrics_sum;

static ot_status add_line(void *context, const ot_metrics_line *line) {
  metrics_sum *const sum = context;
  if (line->kind == OT_METRICS_STEP) {
    sum->result->seconds += line->values.step_s;
    sum->last_step = line->step;
  } else if (line->kind == OT_METRICS_VALIDATION) {
    sum->result->loss = line->step == sum->last_step ? line->value : NAN;
  } else if (line->kind == OT_METRICS_SPIKE) {
    sum->result->spikes++;
  }
  return OT_OK;
}

static ot_status hash_weights(const ot_ledger *ledger, const char *directory, const char **hash) {
  const ot_checkpoint_search search = {.hashes = OT_CHECKPOINT_HASH_ALL};
  ot_checkpoint_found found;
  ot_content_hash *all = NULL;
  OT_TRY(ot_checkpoint_newest(ledger->arena, directory, &search, &found));
  OT_CHECK(found.manifest, OT_ENVIRONMENT, "the run has no checkpoint (%s)", directory);
  OT_TRY(ot_content_hash_create(&all));
  for (int i = 0; i < found.manifest->num_files; i++) {
    const ot_content_record *const file = &found.manifest->files[i];
    if (ot_text_starts_with(file->name, "model") && ot_text_ends_with(file->name, ".safetensors"))
      ot_content_hash_update(all, file->hash, OT_CONTENT_HASH_BYTES - 1);
  }
  *hash = finish_hash(&all, ledger->arena);
  return OT_OK;
}

ot_status ot_ledger_read_result(const ot_ledger *ledger, const ot_ledger_job *job,
                                ot_ledger_result *out) {
  *out = (ot_ledger_result){.loss = NAN, .weights_hash = ""};
  metrics_sum sum = {out, 0};
  OT_TRY(ot_metrics_read(ot_disk_join(ledger->arena, job->directory, "metrics.jsonl"), add_line,
                         &sum));
  OT_CHECK(sum.last_step == job->steps, OT_ENVIRONMENT, "the run has %lld of %lld steps (%s)",
           (long long)sum.last_step, (long long)job->steps, job->directory);
  return hash_weights(ledger, ot_disk_join(ledger->arena, job->directory, "checkpoints"),
                      &out->weights_hash);
}

const ot_record_line *ot_ledger_find_run(const ot_ledger *ledger, const ot_ledger_job *job) {
  return ot_record_find(&ledger->record, "run", "key", job->key);
}

ot_status ot_ledger_record_run(ot_ledger *ledger, const ot_ledger_job *job, bool diverged) {
  const ot_ledger_policy *const p = &ledger->policy;
  ot_ledger_result result = {.loss = NAN, .weights_hash = ""};
  if (!diverged) OT_TRY(ot_ledger_read_result(ledger, job, &result));
  ot_json_writer line = ot_record_begin(&ledger->record, "run", ledger->arena);
  ot_json_text(&line, "change", job->name);
  ot_json_text(&line, "scale", p->scales[job->arm.scale].name);
  ot_json_integer(&line, "seed", p->seeds.base + job->arm.seed);
  ot_json_real(&line, "budget", job->arm.budget);
  ot_json_real(&line, "loss", result.loss / job->unit);
  ot_json_integer(&line, "steps", job->steps);
  ot_json_integer(&line, "tokens", job->tokens);
  ot_json_real(&line, "model_flops", job->model_flops);
  ot_json_real(&line, "seconds", result.seconds);
  ot_json_integer(&line, "spikes", result.spikes);
  ot_json_text(&line, "data_hash", job->data_hash);
  ot_json_text(&line, "validation_hash", job->validation_hash);
  ot_json_text(&line, "schedule_hash", job->schedule_hash);
  ot_json_text(&line, "config_hash", job->config_hash);
  ot_json_text(&line, "weights_hash", result.weights_hash);
  ot_json_text(&line, "base", ledger->base_hash);
  ot_json_text(&line, "key", job->key);
  ot_json_text(&line, "run", job->id);
  ot_json_text(&line, "state", diverged ? "diverged" : "finished");
  return ot_record_append(&ledger->record, &line, ledger->arena);
}
