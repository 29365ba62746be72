// SPDX-License-Identifier: Apache-2.0
// The stages, and what the ranks exchange between them: how many elements of each tensor were
// written, and the hashes of files.
#include "state/state_save.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/failure.h"
#include "base/text.h"
#include "host/clock.h"
#include "host/heap.h"
#include "runtime/host_allreduce.h"
#include "state/algorithm_table.h"
#include "state/file_relay.h"
#include "state/state_shares.h"

enum { SHARD_BYTES = 1 << 30, PIECES_MAX = 1024, HASH_WORDS = 4, RECORDS_AT_ONCE = 64 };

typedef enum stage { BEGIN, WRITE, VERIFY, COMMIT, IDLE } stage;

// The words of a file's record.
typedef struct record_words {
  int64_t hash[HASH_WORDS], piece_bytes, pieces, piece[PIECES_MAX];
} record_words;

enum { RECORD_WORDS = sizeof(record_words) / sizeof(int64_t) };

// The context of a writer's sink.
typedef struct redirected_set {
  ot_file_relay *relay;
  int set;
} redirected_set;

struct ot_state_save {
  ot_runtime *runtime;
  ot_world *world;
  ot_folder_access access;
  ot_file_relay *relay;  // null: this rank neither needs nor serves another
  ot_state_shares *shares;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  bool running;  // under the mutex: the thread has not ended its stage
  bool joined;   // there is no thread to join
  pthread_t thread;
  ot_state_saved saved;
  double start_s;

  // The save in progress.
  stage stage;
  ot_heap heap;
  ot_arena arena;
  ot_state_content content;
  ot_checkpoint_plan plan;
  ot_safetensors_writer *writers[OT_CHECKPOINT_SETS];
  redirected_set redirected[OT_CHECKPOINT_SETS];  // where writers send to, without access
  bool *mine;                                     // [plan.num_files] this rank finds the record
  ot_content_record *records;                     // [plan.num_files]
  bool committed;
  double wait_s;       // between meetings of ranks that wait
  ot_failure failure;  // of this rank's thread
};

// ---- the stages ----

// Calls `visit` for each file: its set, its index in the set and of all files.
static ot_status each_file(ot_state_save *save,
                           ot_status (*visit)(ot_state_save *save, int set, int file, int index)) {
  int index = 0;
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    for (int i = 0; i < save->plan.layout[set].num_files; i++) OT_TRY(visit(save, set, i, index++));
  }
  return OT_OK;
}

// Sends a run of bytes of a rank that does not see the directory.
static ot_status send_run(void *context, int file, int64_t offset, const void *data,
                          int64_t bytes) {
  const redirected_set *const to = context;
  const ot_file_run run = {.set = to->set, .file = file, .offset = offset, .bytes = bytes};
  return ot_file_relay_put(to->relay, run, data);
}

// Receives a run of bytes of another rank.
static ot_status write_run(void *context, ot_file_run run, const void *data) {
  const ot_state_save *const save = context;
  OT_ASSERT(run.set >= 0 && run.set < OT_CHECKPOINT_SETS);
  return ot_safetensors_put(save->writers[run.set], (int)run.file, run.offset, data, run.bytes);
}

static ot_status sync_writers(ot_state_save *save) {
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++)
    OT_TRY(ot_safetensors_writer_sync(save->writers[set]));
  return OT_OK;
}

// Network file systems show other hosts only what was synced. On one host files are synced after
// they are hashed, so that the disk works meanwhile.
static bool has_one_host(const ot_state_save *save) {
  const int size = ot_world_size(save->world);
  return size == 1 || ot_comm_local_size(ot_world_comm(save->world)) == size;
}

static ot_status write_own(ot_state_save *save) {
  const ot_share_target target = {.plan = &save->plan,
                                  .writers = save->writers,
                                  .rank = ot_world_rank(save->world),
                                  .size = ot_world_size(save->world)};
  OT_TRY(ot_state_shares_write(save->shares, &save->content, &target));
  return has_one_host(save) ? OT_OK : sync_writers(save);
}

// Ranks that are served never wait for more than the ranks before them.
static ot_status write_shares(ot_state_save *save) {
  ot_status status = OT_OK;
  if (save->access.num_clients > 0)
    status = ot_file_relay_receive(save->relay, (ot_file_receiver){write_run, save});
  if (status == OT_OK) status = write_own(save);
  if (save->access.server < 0) return status;
  const ot_status finished = ot_file_relay_finish(save->relay);
  return status == OT_OK ? finished : status;
}

static ot_status find_record(ot_state_save *save, int set, int file, int index) {
  if (!save->mine[index]) return OT_OK;
  return ot_safetensors_record(save->writers[set], file, &save->arena, &save->records[index]);
}

static ot_status run_stage(ot_state_save *save) {
  switch (save->stage) {
    case BEGIN:
      return ot_checkpoint_begin(&save->plan);
    case WRITE:
      return write_shares(save);
    case VERIFY:
      OT_TRY(each_file(save, find_record));
      return sync_writers(save);
    case COMMIT:
      return ot_checkpoint_commit(&save->plan, &save->content.files, save->records,
                                  &save->committed);
    case IDLE:
      break;
  }
  OT_UNREACHABLE();
}

static void *run_thread(void *context) {
  ot_state_save *const save = context;
  ot_failure_take(&save->failure, run_stage(save));
  if (save->relay) ot_comm_add_thread(ot_world_comm(save->world), false);
  pthread_mutex_lock(&save->mutex);
  save->running = false;
  pthread_cond_signal(&save->ended);
  pthread_mutex_unlock(&save->mutex);
  return NULL;
}

// Without a thread the steps wait.
static void start_stage(ot_state_save *save, stage next) {
  save->stage = next;
  const bool led = next == BEGIN || next == COMMIT;
  if (led && !ot_world_is_leader(save->world)) return;
  save->running = true;
  if (save->relay) ot_comm_add_thread(ot_world_comm(save->world), true);
  save->joined = pthread_create(&save->thread, NULL, run_thread, save) != 0;
  if (save->joined) run_thread(save);
}

static void join(ot_state_save *save) {
  if (!save->joined) pthread_join(save->thread, NULL);
  save->joined = true;
}

// ---- meetings ----

// Tells whether all elements are written, and which files have no hash yet.
static ot_status agree_after_writing(ot_state_save *save, ot_host_allreduce *exchange) {
  const ot_checkpoint_plan *const plan = &save->plan;
  int64_t *const words = ot_host_allreduce_words(exchange);
  int64_t count = 0;
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    const ot_safetensors_layout *const layout = &plan->layout[set];
    const int64_t *const written = ot_safetensors_written(save->writers[set]);
    for (int i = 0; i < layout->num_tensors; i++) words[count++] = written[i];
    for (int i = 0; i < layout->num_files; i++)
      words[count++] = ot_safetensors_is_hashed(save->writers[set], i);
  }
  OT_TRY(ot_host_allreduce_integers(exchange, count));
  const int64_t *at = words;
  int index = 0, unhashed = 0;
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    const ot_safetensors_layout *const layout = &plan->layout[set];
    OT_TRY(ot_safetensors_check_written(layout, at));
    at += layout->num_tensors;
    for (int i = 0; i < layout->num_files; i++, index++) {
      save->mine[index] = ot_safetensors_is_hashed(save->writers[set], i);
      if (*at++ > 0) continue;
      save->mine[index] = unhashed++ % save->access.num_with == save->access.number_with;
    }
  }
  return OT_OK;
}

static void pack_record(const ot_content_record *record, record_words *words) {
  memcpy(words->hash, record->hash, sizeof words->hash);
  words->piece_bytes = record->pieces.bytes;
  words->pieces = record->pieces.count;
  OT_ASSERT(record->pieces.count <= PIECES_MAX);
  memcpy(words->piece, record->pieces.hash, (size_t)record->pieces.count * sizeof *words->piece);
}

static void unpack_record(ot_state_save *save, const record_words *words, int index) {
  ot_content_record *const record = &save->records[index];
  const int model = save->plan.layout[OT_CHECKPOINT_MODEL].num_files;
  const ot_safetensors_layout *const layout = &save->plan.layout[index >= model];
  const ot_safetensors_layout_file *const file =
      &layout->files[index < model ? index : index - model];
  uint64_t *const pieces = ot_arena_array(&save->arena, words->pieces, sizeof *pieces);
  memcpy(pieces, words->piece, (size_t)words->pieces * sizeof *pieces);
  *record = (ot_content_record){.name = file->name,
                                .bytes = file->file_bytes,
                                .pieces = {words->piece_bytes, words->pieces, pieces}};
  memcpy(record->hash, words->hash, sizeof words->hash);
}

// Each record from the rank that found it.
static ot_status agree_after_verifying(ot_state_save *save, ot_host_allreduce *exchange) {
  record_words *const words = (record_words *)ot_host_allreduce_words(exchange);
  for (int first = 0; first < save->plan.num_files; first += RECORDS_AT_ONCE) {
    const int left = save->plan.num_files - first;
    const int count = left < RECORDS_AT_ONCE ? left : RECORDS_AT_ONCE;
    memset(words, 0, (size_t)count * sizeof *words);
    for (int i = 0; i < count; i++)
      if (save->mine[first + i]) pack_record(&save->records[first + i], &words[i]);
    OT_TRY(ot_host_allreduce_integers(exchange, (int64_t)count * RECORD_WORDS));
    if (!ot_world_is_leader(save->world)) continue;
    for (int i = 0; i < count; i++) unpack_record(save, &words[i], first + i);
  }
  return OT_OK;
}

static int64_t words_needed(const ot_state_save *save) {
  const ot_checkpoint_plan *const plan = &save->plan;
  int64_t counts = plan->num_files;
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) counts += plan->layout[set].num_tensors;
  const int at_once = plan->num_files < RECORDS_AT_ONCE ? plan->num_files : RECORDS_AT_ONCE;
  const int64_t records = (int64_t)at_once * RECORD_WORDS;
  return save->stage == WRITE ? counts : records;
}

static ot_status agree(ot_state_save *save) {
  ot_host_allreduce *exchange = NULL;
  if (save->stage != WRITE && save->stage != VERIFY) return OT_OK;
  OT_TRY(ot_world_agree(save->world, ot_host_allreduce_create(ot_world_comm(save->world),
                                                              words_needed(save), &exchange)));
  const ot_status status = save->stage == WRITE ? agree_after_writing(save, exchange)
                                                : agree_after_verifying(save, exchange);
  ot_host_allreduce_destroy(&exchange);
  return status;
}

// ---- a save ----

static void clear(ot_state_save *save) {
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++)
    ot_safetensors_writer_destroy(&save->writers[set]);
  ot_heap_release(&save->heap);
  save->heap = (ot_heap){0};
}

static void end(ot_state_save *save, ot_status status) {
  if (status != OT_OK && !save->committed && ot_world_is_leader(save->world))
    ot_checkpoint_abandon(&save->plan);
  clear(save);
  save->stage = IDLE;
  save->saved.seconds = ot_clock_s() - save->start_s;
}

static ot_status create_writers(ot_state_save *save) {
  const ot_checkpoint_plan *const plan = &save->plan;
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    OT_TRY(ot_safetensors_writer_create(plan->partial, &plan->layout[set], &save->writers[set]));
    if (save->access.server < 0) continue;
    save->redirected[set] = (redirected_set){save->relay, set};
    ot_safetensors_writer_redirect(save->writers[set],
                                   (ot_safetensors_sink){send_run, &save->redirected[set]});
  }
  return OT_OK;
}

// The leader's path is that of all.
static ot_status plan_save(ot_state_save *save, const ot_state_request *request, const char *path,
                           const char *algorithms) {
  ot_state_content *const content = &save->content;
  ot_arena *const arena = &save->arena;
  OT_TRY(ot_state_content_build(save->runtime, request, algorithms, arena, content));
  content->files.shard_bytes = request->shard_bytes > 0 ? request->shard_bytes : SHARD_BYTES;
  OT_TRY(ot_checkpoint_plan_build(arena, path, &content->files, &save->plan));
  save->mine = ot_arena_array(arena, save->plan.num_files, sizeof *save->mine);
  save->records = ot_arena_array(arena, save->plan.num_files, sizeof *save->records);
  save->saved.bytes = save->plan.bytes;
  return create_writers(save);
}

ot_status ot_state_save_start(ot_state_save *save, const ot_state_request *request) {
  char path[OT_WORLD_TEXT] = "";
  OT_ASSERT(save->stage == IDLE);
  save->start_s = ot_clock_s();
  save->saved = (ot_state_saved){.step = request->position.step};
  save->arena = ot_heap_arena_create(&save->heap);
  save->committed = false;
  save->failure.status = OT_OK;
  const double timeout_s = request->run->parallel.watchdog_seconds;
  save->wait_s = timeout_s > 0 && timeout_s < 4 ? timeout_s / 4 : 1;
  if (request->path) ot_text_format(path, sizeof path, "%s", request->path);
  const ot_executor *const executor = ot_runtime_executor(save->runtime);
  const char *table = NULL;
  ot_status status = ot_algorithm_table_gather(executor, save->world, &save->arena, &table);
  if (status == OT_OK) status = ot_world_broadcast(save->world, path);
  if (status == OT_OK) status = ot_world_agree(save->world, plan_save(save, request, path, table));
  if (status != OT_OK) {
    clear(save);
    return status;
  }
  ot_state_shares_take(save->shares);
  start_stage(save, BEGIN);
  save->saved.blocked_s = ot_clock_s() - save->start_s;
  return OT_OK;
}

bool ot_state_save_active(const ot_state_save *save) { return save->stage != IDLE; }

bool ot_state_save_busy(ot_state_save *save) {
  pthread_mutex_lock(&save->mutex);
  const bool running = save->running;
  pthread_mutex_unlock(&save->mutex);
  return running;
}

ot_status ot_state_save_advance(ot_state_save *save) {
  join(save);
  ot_status status = ot_world_agree(save->world, ot_failure_repeat(&save->failure));
  if (status == OT_OK) status = agree(save);
  if (status != OT_OK || save->stage == COMMIT)
    end(save, status);
  else
    start_stage(save, (stage)(save->stage + 1));
  return status;
}

// Until this rank's part of the stage is done, at most `seconds`.
static void rest(ot_state_save *save, double seconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
  until.tv_sec += nanoseconds / 1000000000;
  until.tv_nsec = nanoseconds % 1000000000;
  pthread_mutex_lock(&save->mutex);
  while (save->running && pthread_cond_timedwait(&save->ended, &save->mutex, &until) == 0) {
  }
  pthread_mutex_unlock(&save->mutex);
}

ot_status ot_state_save_wait(ot_state_save *save) {
  const double start_s = ot_clock_s();
  ot_status status = OT_OK;
  while (status == OT_OK && ot_state_save_active(save)) {
    rest(save, save->wait_s);
    double busy = ot_state_save_busy(save);
    status = ot_world_allreduce(save->world, &busy, 1);
    if (status == OT_OK && busy == 0) status = ot_state_save_advance(save);
  }
  save->saved.blocked_s += ot_clock_s() - start_s;
  return status;
}

ot_state_saved ot_state_save_last(const ot_state_save *save) { return save->saved; }

static ot_status allocate(ot_state_save *save, bool snapshot) {
  OT_TRY(ot_file_relay_create(save->world, &save->access, &save->relay));
  return ot_state_shares_create(save->runtime, snapshot, &save->shares);
}

ot_status ot_state_save_create(ot_runtime *runtime, ot_world *world, const ot_folder_access *access,
                               bool snapshot, ot_state_save **out) {
  ot_state_save *save = calloc(1, sizeof *save);
  *out = save;
  OT_CHECK(save != NULL, OT_ENVIRONMENT, "out of memory for saving");
  save->runtime = runtime;
  save->world = world;
  save->access = *access;
  save->stage = IDLE;
  save->joined = true;
  pthread_mutex_init(&save->mutex, NULL);
  pthread_cond_init(&save->ended, NULL);
  const ot_status status = allocate(save, snapshot);
  if (status != OT_OK) ot_state_save_destroy(out);
  return status;
}

void ot_state_save_destroy(ot_state_save **save) {
  ot_state_save *const s = *save;
  if (s == NULL) return;
  join(s);
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++)
    ot_safetensors_writer_destroy(&s->writers[set]);
  ot_state_shares_destroy(&s->shares);
  ot_file_relay_destroy(&s->relay);
  pthread_cond_destroy(&s->ended);
  pthread_mutex_destroy(&s->mutex);
  ot_heap_release(&s->heap);
  free(s);
  *save = NULL;
}
