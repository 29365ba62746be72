// SPDX-License-Identifier: Apache-2.0
// Selects the checkpoint, checks that it fits, writes the resolved configuration next to it; proves
// that the ranks' schedules match; warnings and disk space.
#include "train/loop_start.h"

#include <math.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/backend_rules.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "checkpoint/checkpoint_list.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "host/heap.h"
#include "runtime/training_request.h"
#include "tokenizer/special_tokens.h"
#include "train/state_copies.h"
#include "train/step_log.h"
#include "train/trainer.h"

// ---- schedules of ranks ----

ot_status ot_loop_check_schedules(const ot_run *run, const ot_mesh *mesh, ot_backend backend) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_planned_run planned = {.run = run, .mesh = mesh, .threads = 1, .backend = backend};
  ot_status status = ot_training_read_order(&planned, &arena);
  if (status == OT_OK) status = ot_planned_run_prove(&planned, &arena);
  ot_heap_release(&heap);
  return status;
}

void ot_loop_note(const ot_loop_request *request, const char *format, ...) {
  char text[4096];
  if (!ot_world_is_leader(request->world)) return;
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_list(text, sizeof text, format, arguments);
  va_end(arguments);
  const ot_loop_event event = {.kind = OT_LOOP_NOTE, .text = text};
  request->sink(request->context, &event);
}

const char *ot_loop_shape(const ot_mesh *mesh, ot_arena *arena) {
  static const ot_axis axes[] = {OT_AXIS_PP, OT_AXIS_DP_REPLICATE, OT_AXIS_DP_SHARD, OT_AXIS_CP,
                                 OT_AXIS_TP, OT_AXIS_EP,           OT_AXIS_ETP};
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "%d ranks (", mesh->ranks);
  const char *separator = "";
  for (int i = 0; i < OT_COUNT(axes); i++) {
    const int degree = mesh->degree[axes[i]];
    if (degree == 1) continue;
    ot_text_appendf(&text, "%s%s %d", separator, ot_axis_name(axes[i]), degree);
    separator = " x ";
  }
  ot_text_appendf(&text, ")");
  return ot_text_builder_text(&text);
}

void ot_loop_note_prediction(const ot_loop_request *request, const ot_prediction *prediction) {
  const char *const notes[] = {prediction->note, prediction->doubt, prediction->basis};
  for (int i = 0; i < OT_COUNT(notes); i++) {
    if (notes[i]) ot_loop_note(request, "%s", notes[i]);
  }
}

void ot_loop_note_products(const ot_loop_request *request, const ot_loop_refusals *now,
                           ot_loop_refusals *noted) {
  if (now->own > noted->own) {
    ot_loop_note(
        request,
        "note: cuBLASLt refuses %d shape%s of products; a slower kernel of our own runs them "
        "(gemm.table of the checkpoint lists them)",
        now->own, ot_text_plural(now->own, "s"));
  }
  *noted = *now;
}

// ---- resuming ----

static bool is_entry_of(const char *path, const char *directory, ot_arena *arena) {
  struct stat parent, other;
  return stat(ot_disk_join(arena, path, ".."), &parent) == 0 && stat(directory, &other) == 0 &&
         parent.st_dev == other.st_dev && parent.st_ino == other.st_ino;
}

// A run stopped before its first checkpoint starts again; one whose checkpoints are missing must
// not.
static ot_status check_nothing_lost(const ot_loop_request *request, ot_loop_start *start,
                                    ot_arena *arena) {
  const char *const output = request->run->output;
  int64_t steps = 0;
  OT_TRY(ot_run_directory_steps(start->directory, &steps));
  if (steps == 0) return OT_OK;
  if (!ot_run_directory_saved(start->directory)) {
    start->restart =
        ot_arena_format(arena, "%s has no checkpoint yet: restarting its %ld steps", output, steps);
    return OT_OK;
  }
  ot_fail(OT_ENVIRONMENT, "%s has metrics of %ld steps and saved checkpoints, but all are missing",
          output, steps);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "restore one from a backup to %s, or start in another `output`",
                      ot_run_directory_checkpoints(start->directory));
}

// Tensors are compared with their hashes when they are read.
static ot_checkpoint_search search_of(const ot_loop_start *start) {
  return (ot_checkpoint_search){.hashes = OT_CHECKPOINT_HASH_HEADERS, .known = &start->damages};
}

static ot_status find_newest(const ot_loop_request *request, ot_loop_start *start, ot_arena *arena,
                             ot_checkpoint_found *found) {
  const char *const directory = ot_run_directory_checkpoints(start->directory);
  const ot_checkpoint_search search = search_of(start);
  start->newest = true;
  OT_TRY(ot_checkpoint_newest(arena, directory, &search, found));
  return found->path ? OT_OK : check_nothing_lost(request, start, arena);
}

// `--resume DIR`: a checkpoint of `output`, which is rewound to it, or of another run, which
// continues in an `output` without checkpoints of its own or with those that this command saved
// before.
static ot_status find_given(const ot_loop_request *request, ot_loop_start *start, ot_arena *arena,
                            ot_checkpoint_found *found) {
  const char *const directory = ot_run_directory_checkpoints(start->directory);
  const char *const given = request->resume_path;
  bool began = false;
  OT_TRY(ot_run_directory_began_with(start->directory, given, arena, &began));
  if (began) return find_newest(request, start, arena, found);
  const ot_checkpoint_search search = search_of(start);
  OT_TRY(ot_checkpoint_find(arena, given, &search, found));
  OT_CHECK(found->manifest, OT_USAGE, "%s has no manifest.json: it is not a checkpoint of a run",
           found->path);
  start->went_back = is_entry_of(found->path, directory, arena);
  if (start->went_back) return OT_OK;
  ot_checkpoint_steps own;
  OT_TRY(ot_checkpoint_list(arena, directory, &own));
  if (own.count == 0) return check_nothing_lost(request, start, arena);
  ot_fail(OT_USAGE, "%s holds a run with its own checkpoints, up to step %ld (--resume %s)",
          request->run->output, own.step[0], given);
  return ot_fail_hint(OT_USAGE,
                      "without --resume it uses these; %s can continue in another `output`", given);
}

static ot_status find_state(const ot_loop_request *request, ot_loop_start *start, ot_arena *arena,
                            ot_checkpoint_found *found) {
  const ot_run_directory_state state = ot_run_directory_found(start->directory);
  const char *const output = request->run->output;
  OT_CHECK(state != OT_RUN_FOREIGN, OT_USAGE, "%s holds files that are not those of a run (output)",
           output);
  switch (request->resume) {
    case OT_RESUME_AUTO:
      return find_newest(request, start, arena, found);
    case OT_RESUME_NEVER:
      OT_CHECK(state == OT_RUN_EMPTY, OT_USAGE, "%s already holds a run (output, --resume never)",
               output);
      return OT_OK;
    case OT_RESUME_FROM:
      return find_given(request, start, arena, found);
  }
  OT_UNREACHABLE();
}

// ---- start ----

static ot_status write_config(const ot_loop_request *request, const ot_loop_start *start,
                              ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(request->settings, 0, &text);
  return ot_output_file_replace(ot_run_directory_config(start->directory),
                                ot_text_builder_text(&text), text.length);
}

static const char *describe_gpu(const ot_comm *comm, ot_arena *arena) {
  const int nccl = ot_comm_nccl_version(comm);
  if (nccl == 0) return "on a GPU";
  return ot_arena_format(arena, "on a GPU each, by NCCL %d.%d.%d", nccl / 10000, nccl / 100 % 100,
                         nccl % 100);
}

static void print_start(const ot_loop_request *request, const ot_loop_start *start,
                        ot_arena *arena) {
  const ot_run *const run = request->run;
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(start->trainer));
  const bool many = schedule->ranks > 1;
  const char *const threads =
      ot_arena_format(arena, "%d thread%s%s", schedule->threads,
                      ot_text_plural(schedule->threads, "s"), many ? " each" : "");
  const char *const place = ot_backend_rules_of(schedule->backend)->host
                                ? threads
                                : describe_gpu(ot_world_comm(request->world), arena);
  ot_loop_note(request, "%s: %ld parameters, %s%s%s, %s, arena planned %s%s", run->model.model_type,
               ot_model_parameters(&run->model), ot_dtype_name(run->precision.compute),
               many ? ", " : "", many ? ot_loop_shape(ot_world_mesh(request->world), arena) : "",
               place, ot_figure_bytes(arena, schedule->memory.peak_bytes),
               many ? " on rank 0" : "");
}

// The leader's work for all. `path` stays empty for a new run.
static ot_status choose_state(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start,
                              char *path) {
  ot_checkpoint_found found = {0};
  if (!start->directory) OT_TRY(ot_run_directory_create(request->run->output, &start->directory));
  start->found_step = -1;
  start->newest = false;
  OT_TRY(find_state(request, start, arena, &found));
  if (!found.path) return OT_OK;
  OT_CHECK(ot_text_length(found.path) < OT_WORLD_TEXT, OT_ENVIRONMENT, "a path is too long (%s)",
           found.path);
  ot_text_format(path, OT_WORLD_TEXT, "%s", found.path);
  start->found_step = found.manifest->step;
  start->found = (ot_data_record_state){.path = found.path,
                                        .record = found.manifest->record,
                                        .next_sample = found.manifest->next_sample};
  start->fallback = found.note;
  if (found.note) ot_loop_note(request, "%s", found.note);
  start->resumed_here =
      is_entry_of(found.path, ot_run_directory_checkpoints(start->directory), arena);
  OT_TRY(ot_loop_compare_settings(request, found.path, found.manifest->config, arena));
  ot_loop_note_rate(request, found.manifest->config, found.manifest->step, arena);
  return OT_OK;
}

static ot_status find_start(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start,
                            char *path) {
  ot_world *const world = request->world;
  const bool leads = ot_world_is_leader(world);
  OT_TRY(ot_world_agree(world, leads ? choose_state(request, arena, start, path) : OT_OK));
  OT_TRY(ot_world_broadcast(world, path));
  double here = start->resumed_here;
  OT_TRY(ot_world_allreduce(world, &here, 1));
  start->resumed_here = here > 0;
  return OT_OK;
}

// The run continues from `step`: later contents of its directory are set aside, and its settings
// are written. A run that starts here has no checkpoint yet.
static ot_status enter_directory(const ot_loop_request *request, ot_arena *arena,
                                 const ot_loop_start *start) {
  const char *note = NULL;
  const int64_t step = ot_trainer_position(start->trainer).step;
  if (start->fallback) ot_loop_log_fallback(start, start->fallback);
  const bool continues = start->resumed_here || start->from_memory;
  if (continues) OT_TRY(ot_run_directory_rewind(start->directory, step, arena, &note));
  if (note) ot_loop_note(request, "%s", note);
  if (!continues) OT_TRY(ot_run_directory_clear_saved(start->directory));
  if (!start->from_memory)
    OT_TRY(start->memory ? ot_run_directory_draw_history(start->directory)
                         : ot_run_directory_clear_history(start->directory));
  return write_config(request, start, arena);
}

// Loads the checkpoint at `path`, or, if it is damaged, the newest one before it that is not; or
// copies in memory that are not older.
static ot_status load_state(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start,
                            char *path) {
  while (true) {
    OT_TRY(ot_state_copies_load(request, arena, start));
    if (start->from_memory || path[0] == '\0') return OT_OK;
    const bool leads = ot_world_is_leader(request->world);
    OT_TRY(
        ot_world_agree(request->world,
                       leads ? ot_loop_compare_data(request, start, &start->found, arena) : OT_OK));
    const ot_status status = ot_trainer_resume(start->trainer, path);
    if (status == OT_OK || !ot_trainer_found_damage(start->trainer)) return status;
    ot_checkpoint_damage_add(arena, &start->damages, start->found_step, ot_fail_message());
    OT_TRY(find_start(request, arena, start, path));
  }
}

static void print_origin(const ot_loop_request *request, const ot_loop_start *start,
                         const char *path) {
  if (start->from_memory)
    ot_loop_note(request, "resuming from the copies in memory of step %ld",
                 ot_trainer_position(start->trainer).step);
  else if (path[0] != '\0')
    ot_loop_note(request, "resuming from %s", path);
  else if (start->restart)
    ot_loop_note(request, "%s", start->restart);
}

// ---- hosts that do not see the run directory ----

// A run that rank 0 has saved on another host must not begin again here.
static ot_status check_not_newer(const ot_loop_request *request, ot_arena *arena,
                                 const ot_loop_start *start) {
  const char *const directory = ot_disk_join(arena, request->run->output, "checkpoints");
  const bool without = start->access.number_with < 0;
  int64_t *const all = ot_arena_array(arena, ot_world_size(request->world), sizeof *all);
  int64_t mine = ot_world_is_leader(request->world) ? start->found_step : -1;
  ot_checkpoint_steps own;
  if (without && ot_checkpoint_list(arena, directory, &own) == OT_OK && own.count > 0)
    mine = own.step[0];
  OT_TRY(ot_world_allgather(request->world, mine, all));
  ot_status status = OT_OK;
  if (without && request->resume == OT_RESUME_AUTO && mine > all[0]) {
    ot_fail(OT_ENVIRONMENT,
            "%s has a checkpoint of step %lld on this host; rank 0, on another host, does not see "
            "it and would go on from step %lld",
            directory, (long long)mine, (long long)(all[0] < 0 ? 0 : all[0]));
    status = ot_fail_hint(OT_ENVIRONMENT,
                          "start rank 0 on this host, or remove the checkpoints here if they are "
                          "not wanted");
  }
  return ot_world_agree(request->world, status);
}

static ot_status read_folder(const ot_loop_request *request, ot_arena *arena,
                             ot_loop_start *start) {
  ot_world *const world = request->world;
  ot_folder_access *const access = &start->access;
  const char *const directory =
      start->directory ? ot_run_directory_checkpoints(start->directory) : NULL;
  char host[OT_WORLD_TEXT] = "";
  OT_TRY(ot_folder_access_probe(world, directory, arena, access));
  if (access->num_without == 0) return OT_OK;
  ot_text_format(host, sizeof host, "%s", ot_comm_host(ot_world_comm(world)));
  OT_TRY(ot_world_broadcast_from(world, access->first_without, host));
  ot_loop_note(
      request,
      "note: %d of %d ranks do not see %s of rank 0 on %s, the first of them is rank %d on "
      "%s: what they save and load goes through ranks that do",
      access->num_without, ot_world_size(world), directory, ot_comm_host(ot_world_comm(world)),
      access->first_without, host);
  return check_not_newer(request, arena, start);
}

static ot_status open_run(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start) {
  char path[OT_WORLD_TEXT] = "";
  OT_TRY(ot_loop_compare_ranks(request, arena));
  OT_TRY(find_start(request, arena, start, path));
  OT_TRY(read_folder(request, arena, start));
  OT_TRY(ot_trainer_create(request->run, request->settings, request->world, &start->trainer));
  if (request->hooks) ot_trainer_set_hooks(start->trainer, request->hooks);
  const ot_backend backend = ot_runtime_backend(ot_trainer_runtime(start->trainer));
  const bool leader = ot_world_is_leader(request->world);
  OT_TRY(ot_world_agree(
      request->world,
      leader ? ot_loop_check_schedules(request->run, ot_world_mesh(request->world), backend)
             : OT_OK));
  OT_TRY(ot_state_copies_open(request, arena, start));
  OT_TRY(load_state(request, arena, start, path));
  const ot_position position = ot_trainer_position(start->trainer);
  start->finished = position.step >= ot_trainer_total_steps(start->trainer);
  if (start->finished) {
    ot_loop_note(request, "%s is finished: %ld steps, %ld tokens", request->run->output,
                 position.step, position.tokens);
    return start->memory ? ot_memory_copies_remove(start->memory) : OT_OK;
  }
  print_start(request, start, arena);
  const char *const device_note = ot_runtime_note(ot_trainer_runtime(start->trainer));
  if (device_note) ot_loop_note(request, "note: %s", device_note);
  print_origin(request, start, path);
  if (ot_trainer_note(start->trainer)) ot_loop_note(request, "%s", ot_trainer_note(start->trainer));
  return ot_world_agree(request->world, leader ? enter_directory(request, arena, start) : OT_OK);
}

static ot_status show_batch(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start) {
  const char *text = NULL;
  if (!request->show_batch) return OT_OK;
  ot_status status = OT_OK;
  if (ot_world_is_leader(request->world))
    status = ot_trainer_show_batch(start->trainer, arena, &text);
  OT_TRY(ot_world_agree(request->world, status));
  if (!text) return OT_OK;
  const ot_loop_event event = {.kind = OT_LOOP_NOTE, .text = text};
  request->sink(request->context, &event);
  return OT_OK;
}

ot_status ot_loop_start_open(const ot_loop_request *request, ot_arena *arena,
                             ot_loop_start *start) {
  OT_TRY(open_run(request, arena, start));
  return start->finished ? OT_OK : show_batch(request, arena, start);
}

void ot_loop_start_close(ot_loop_start *start) {
  ot_memory_copies_destroy(&start->memory);
  ot_trainer_destroy(&start->trainer);
  ot_run_directory_destroy(&start->directory);
}

// ---- settings ----

// Keys that set the size of a model, in the spelling of its family.
static const char *const sizes[] = {
    "vocab_size",        "hidden_size",         "n_embd", "intermediate_size",       "n_layer",
    "num_hidden_layers", "num_attention_heads", "n_head", "max_position_embeddings", "n_positions"};

static void note_sizes(const ot_loop_request *request, ot_arena *arena) {
  const ot_node *const settings = request->settings;
  const ot_node *const model = settings ? ot_node_child(settings, "model") : NULL;
  ot_text_builder text = {.arena = arena};
  for (int i = 0; model && i < OT_COUNT(sizes); i++) {
    const ot_node *const node = ot_node_child(model, sizes[i]);
    if (!node || !node->source || !ot_text_starts_with(node->source, "default of")) continue;
    ot_text_appendf(&text, "%s %s=%s", text.length > 0 ? "," : "", sizes[i], node->text);
  }
  if (text.length == 0) return;
  ot_loop_note(request, "note: not given, so the default of %s is used:%s (model)",
               request->run->model.model_type, ot_text_builder_text(&text));
}

static void note_warmup(const ot_loop_request *request) {
  const int64_t warmup = request->run->learning_rate.warmup_steps;
  const int64_t steps = ot_run_total_steps(request->run);
  if (warmup < steps || warmup == 0) return;
  ot_loop_note(request,
               "note: the warm-up of %lld steps is not over when the run ends, after %lld: the "
               "learning rate does not reach its peak (learning_rate.warmup_steps)",
               (long long)warmup, (long long)steps);
}

static void note_tokenizer(const ot_loop_request *request, const ot_data_loader *loader,
                           ot_arena *arena) {
  const ot_tokenizer *const tokenizer = ot_data_loader_tokenizer(loader);
  const int64_t rows = request->run->model.vocab_size;
  const char *const note = tokenizer ? ot_tokenizer_note(tokenizer, rows, arena) : NULL;
  if (note) ot_loop_note(request, "note: %s", note);
}

static void note_data(const ot_loop_request *request, const ot_data_loader *loader) {
  const ot_run *const run = request->run;
  const int64_t step = run->batch.global_batch_size * run->data.sequence_length;
  const int64_t tokens = ot_data_loader_tokens(loader);
  if (step <= tokens) return;
  ot_loop_note(request,
               "note: a step needs %lld tokens and the training data has %lld: they are repeated "
               "(batch.global_batch_size, data.sequence_length)",
               (long long)step, (long long)tokens);
}

void ot_loop_warn_settings(const ot_loop_request *request, const ot_data_loader *loader,
                           ot_arena *arena) {
  note_sizes(request, arena);
  note_warmup(request);
  note_data(request, loader);
  note_tokenizer(request, loader, arena);
}

// ---- disk ----

// A checkpoint holds weights, moments and, if separate, master weights, of all ranks once.
static int64_t checkpoint_bytes(const ot_run *run) {
  const ot_run_precision *const p = &run->precision;
  const int64_t master = p->master != p->params ? ot_dtype_bytes(p->master) : 0;
  return ot_model_parameters(&run->model) *
         (ot_dtype_bytes(p->params) + 2 * ot_dtype_bytes(p->moments) + master);
}

ot_status ot_loop_check_disk(const ot_loop_request *request, ot_arena *arena, ot_disk_space *room) {
  const char *path = request->run->output;
  while (!ot_disk_is_directory(path)) {
    char *const parent = ot_arena_format(arena, "%s", path);
    char *slash = NULL;
    for (char *c = parent; *c; c++) slash = *c == '/' ? c : slash;
    if (!slash || slash == parent) {
      path = slash ? "/" : ".";
      break;
    }
    *slash = '\0';
    path = parent;
  }
  *room = (ot_disk_space){.checkpoint_bytes = checkpoint_bytes(request->run)};
  OT_TRY(ot_disk_free_bytes(path, &room->free_bytes));
  OT_CHECK(room->free_bytes > room->checkpoint_bytes, OT_ENVIRONMENT,
           "a checkpoint needs %s, the disk of %s has %s free (output)",
           ot_figure_bytes(arena, room->checkpoint_bytes), path,
           ot_figure_bytes(arena, room->free_bytes));
  return OT_OK;
}

// ---- what watches the run ----

// Seconds from a stop signal on that a kernel has to end, before a launcher ends what is left.
static const double stop_s = 20;
// The share of the timeout: the rank itself knows its kernel, ranks that wait for it do not.
static const double before_others = 0.9;

ot_status ot_loop_watch_kernels(const ot_loop_request *request, ot_trainer *trainer,
                                ot_arena *arena, ot_kernel_watch **out) {
  const ot_comm *const comm = ot_world_comm(request->world);
  const double watchdog_s = request->run->parallel.watchdog_seconds;
  const int rank = ot_world_rank(request->world);
  const ot_kernel_watch_request watch = {
      .schedule = ot_runtime_schedule(ot_trainer_runtime(trainer)),
      .rank = comm ? ot_arena_format(arena, "rank %d on %s", rank, ot_comm_host(comm)) : "rank 0",
      .timeout_s = ot_world_size(request->world) > 1 ? before_others * watchdog_s : watchdog_s,
      .stop_s = watchdog_s > 0 ? fmin(stop_s, watchdog_s) : stop_s,
      .end = request->hangs};
  return request->hangs ? ot_kernel_watch_create(&watch, out) : OT_OK;
}

ot_status ot_loop_check_files(const ot_loop_request *request, ot_arena *arena) {
  ot_disk_space room;
  OT_TRY(ot_loop_check_disk(request, arena, &room));
  return request->trace_path ? ot_output_file_check(request->trace_path) : OT_OK;
}

ot_status ot_session_check_position(const ot_session *s) {
  const ot_status status =
      ot_world_agree(s->request->world, ot_trainer_check_position(s->start.trainer));
  if (status != OT_FINDINGS) return status;
  return ot_fail_hint(status,
                      "suspect the memory of that machine; the step was not saved: the same "
                      "command resumes from the checkpoint before it");
}
