// SPDX-License-Identifier: Apache-2.0
// Time to save and to load the state of a run on ranks of one thread, compared with the disk: the
// same bytes as plain writes with a sync, and as plain reads, by as many threads. They take turns;
// nothing is read from the page cache. Unless --disk, copies in memory (checkpoint.memory), and
// what an asynchronous save blocks (checkpoint.async), are compared with memcpy.
//   bench/checkpoint [--ranks N] [--layers L] [--tp T] [--repeats R] [--directory DIR] [--disk]
//     [--json]
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "host/clock.h"
#include "state/memory_copies.h"
#include "state/state_save.h"
#include "support/bench_program.h"
#include "support/bench_step.h"
#include "train/trainer.h"

enum { TOKENS = 1 << 16, HEADER_BYTES = 1024, BLOCK_BYTES = 4 << 20, HISTORY = 1 };

typedef enum turn { SAVE, WRITE, LOAD, READ, COPY, MEMCPY, RESTORE, BLOCK, TURNS } turn;

static const char *const turn_names[TURNS] = {"save", "write",  "load",    "read",
                                              "copy", "memcpy", "restore", "block"};

typedef struct settings {
  int ranks, layers, tp, repeats;
  const char *directory;
  turn turns;  // those before it are taken
  bool json;
} settings;

typedef struct timing {
  const settings *settings;
  ot_config config;
  const char *saved;  // directory of the checkpoint
  const char *later;  // of one that was saved asynchronously
  int64_t bytes;      // of its tensor files
  int64_t copied;     // bytes of copies in memory, of all ranks
  double seconds[TURNS][OT_BENCH_REPEATS];
} timing;

// What a rank needs for its turns.
typedef struct bench_rank {
  timing *t;
  ot_trainer *trainer;
  ot_world *world;
  ot_arena *arena;
  char *block;  // [BLOCK_BYTES]
  ot_memory_copies *memory;
  ot_state_save *save;  // asynchronous
  char *buffer;         // [copied]
  int64_t copied;       // bytes of the copies of this rank
} bench_rank;

static const char model[] =
    "{\"model\":{\"model_type\":\"llama\",\"vocab_size\":16384,\"hidden_size\":1024,"
    "\"intermediate_size\":2816,\"num_hidden_layers\":%d,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":64,\"tie_word_embeddings\":true},"
    "\"data\":{\"train\":\"%s\",\"sequence_length\":64,\"format\":\"llmc\"},"
    "\"batch\":{\"global_batch_size\":%d,\"micro_batch_size\":1},"
    "\"parallel\":{\"zero\":3,\"tp\":%d},\"steps\":1000,\"threads\":1,\"output\":\"unused\"}";

// A file in llm.c's format: 256 words of header, then 16-bit ids.
static ot_status write_tokens(const char *path) {
  static char bytes[HEADER_BYTES + 2 * TOKENS];
  const int32_t header[] = {20240520, 1, TOKENS};
  memcpy(bytes, header, sizeof header);
  return ot_disk_write(path, bytes, sizeof bytes);
}

// ---- the disk ----

static void forget(const char *path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

// This rank's share of the bytes, in a file of its own.
static ot_status write_share(const bench_rank *r, const char *path) {
  const int64_t bytes = r->t->bytes / r->t->settings->ranks;
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return ot_fail(OT_ENVIRONMENT, "cannot make %s", path);
  ot_status status = OT_OK;
  for (int64_t done = 0; done < bytes && status == OT_OK; done += BLOCK_BYTES) {
    const int64_t part = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
    status = ot_disk_write_at(file, path, done, r->block, part);
  }
  if (status == OT_OK) return ot_disk_sync_close(file, path);
  close(file);
  return status;
}

static ot_status read_share(const bench_rank *r, const char *path) {
  const int64_t bytes = r->t->bytes / r->t->settings->ranks;
  int file;
  OT_TRY(ot_disk_open(path, &file));
  ot_status status = OT_OK;
  for (int64_t done = 0; done < bytes && status == OT_OK; done += BLOCK_BYTES) {
    const int64_t part = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
    status = ot_disk_read_at(file, path, done, r->block, part);
  }
  close(file);
  return status;
}

// ---- memory ----

static ot_status open_memory(const bench_rank *r, ot_memory_copies **memory) {
  const ot_memory_request request = {.runtime = ot_trainer_runtime(r->trainer),
                                     .world = r->world,
                                     .run = &r->t->config.run,
                                     .config = "",
                                     .output = r->t->settings->directory};
  return ot_memory_copies_create(&request, memory);
}

static ot_status begin_memory(bench_rank *r) {
  const ot_folder_access access = ot_folder_access_all(r->world);
  char note[OT_MEMORY_NOTE_BYTES];
  bool on;
  OT_TRY(ot_state_save_create(ot_trainer_runtime(r->trainer), r->world, &access, true, &r->save));
  OT_TRY(open_memory(r, &r->memory));
  OT_TRY(ot_memory_copies_begin(r->memory, HISTORY, note, &on));
  OT_CHECK(on, OT_ENVIRONMENT, "%s", note);
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(r->trainer));
  r->copied = ot_memory_copied_bytes(schedule, &r->t->config.run);
  r->buffer = malloc((size_t)r->copied);
  OT_CHECK(r->buffer, OT_ENVIRONMENT, "out of memory");
  memset(r->buffer, 7, (size_t)r->copied);
  if (ot_world_is_leader(r->world)) r->t->copied = r->copied * r->t->settings->ranks;
  return OT_OK;
}

static void copy_memory(const bench_rank *r) {
  const char *const arena =
      ot_executor_host_memory(ot_runtime_executor(ot_trainer_runtime(r->trainer)));
  memcpy(r->buffer, arena, (size_t)r->copied);
}

static ot_status restore_memory(const bench_rank *r) {
  ot_memory_copies *memory = NULL;
  ot_memory_found found;
  const char *note;
  OT_TRY(open_memory(r, &memory));
  ot_status status = ot_memory_copies_find(memory, &(ot_memory_search){HISTORY, -1}, &found);
  if (status == OT_OK && !found.found) status = ot_fail(OT_ENVIRONMENT, "%s", found.note);
  if (status == OT_OK) status = ot_memory_copies_load(memory, r->arena, &note);
  ot_memory_copies_destroy(&memory);
  return status;
}

static ot_status start_saving(const bench_rank *r) {
  const ot_state_request request = ot_trainer_state(r->trainer, r->t->later);
  return ot_state_save_start(r->save, &request);
}

static ot_status end_saving(const bench_rank *r) {
  OT_TRY(ot_state_save_wait(r->save));
  return ot_world_is_leader(r->world) ? ot_disk_remove(r->t->later) : OT_OK;
}

// ---- turns ----

static ot_status take_turn(const bench_rank *r, turn what, const char *share) {
  switch (what) {
    case SAVE:
      return ot_trainer_save(r->trainer, r->t->saved);
    case WRITE:
      return write_share(r, share);
    case LOAD:
      return ot_trainer_resume(r->trainer, r->t->saved);
    case READ:
      return read_share(r, share);
    case COPY:
      ot_memory_copies_take(r->memory, &(ot_position){.step = 1});
      return OT_OK;
    case MEMCPY:
      copy_memory(r);
      return OT_OK;
    case RESTORE:
      return restore_memory(r);
    case BLOCK:
      return start_saving(r);
    case TURNS:
      break;
  }
  OT_UNREACHABLE();
}

// The tensor files of the checkpoint leave the page cache; their bytes are counted.
static ot_status forget_saved(const bench_rank *r) {
  ot_disk_names names;
  ot_checkpoint *checkpoint = NULL;
  OT_TRY(ot_disk_list(r->arena, r->t->saved, &names));
  for (int64_t i = 0; i < names.count; i++)
    forget(ot_disk_join(r->arena, r->t->saved, names.name[i]));
  OT_TRY(ot_checkpoint_create(r->t->saved, &checkpoint));
  const ot_manifest *const manifest = ot_checkpoint_manifest(checkpoint);
  r->t->bytes = 0;
  for (int i = 0; i < manifest->num_files; i++) r->t->bytes += manifest->files[i].bytes;
  ot_checkpoint_destroy(&checkpoint);
  return OT_OK;
}

static ot_status take_turns(const bench_rank *r, int repeat) {
  const bool leads = ot_world_is_leader(r->world);
  const char *const share =
      ot_arena_format(r->arena, "%s/share-%d", r->t->settings->directory, ot_world_rank(r->world));
  for (turn what = SAVE; what < r->t->settings->turns; what++) {
    OT_TRY(ot_world_agree(r->world, OT_OK));
    const double start_s = ot_clock_s();
    OT_TRY(ot_world_agree(r->world, take_turn(r, what, share)));
    if (leads) r->t->seconds[what][repeat] = ot_clock_s() - start_s;
    if (what == WRITE) forget(share);
    while (r->memory && ot_memory_copies_busy(r->memory)) usleep(1000);
    OT_TRY(ot_world_agree(r->world, what == BLOCK ? end_saving(r) : OT_OK));
    OT_TRY(ot_world_agree(r->world, what == SAVE && leads ? forget_saved(r) : OT_OK));
  }
  unlink(share);
  return ot_world_agree(r->world, leads ? ot_disk_remove(r->t->saved) : OT_OK);
}

static ot_status time_trainer(bench_rank *r) {
  r->block = malloc(BLOCK_BYTES);
  OT_CHECK(r->block, OT_ENVIRONMENT, "out of memory");
  memset(r->block, 7, BLOCK_BYTES);
  ot_status status =
      ot_trainer_create(&r->t->config.run, r->t->config.settings, r->world, &r->trainer);
  const bool memory = r->t->settings->turns == TURNS;
  if (status == OT_OK && memory) status = begin_memory(r);
  for (int i = 0; i < r->t->settings->repeats && status == OT_OK; i++) status = take_turns(r, i);
  if (status == OT_OK && memory) status = ot_memory_copies_remove(r->memory);
  ot_memory_copies_destroy(&r->memory);
  ot_state_save_destroy(&r->save);
  free(r->buffer);
  ot_trainer_destroy(&r->trainer);
  free(r->block);
  return status;
}

static ot_status time_rank(ot_comm *comm, void *context) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  bench_rank r = {.t = context, .arena = &arena};
  ot_status status = ot_world_create(&r.t->config.run.parallel, comm, &r.world);
  if (status == OT_OK) status = time_trainer(&r);
  ot_world_destroy(&r.world);
  ot_heap_release(&heap);
  return status;
}

// ---- report ----

static void report_json(const timing *t, const double median[TURNS]) {
  printf("{\"ranks\": %d, \"bytes\": %lld", t->settings->ranks, (long long)t->bytes);
  for (turn i = SAVE; i < t->settings->turns; i++)
    printf(", \"%s_seconds\": %.6g", turn_names[i], median[i]);
  printf(", \"save_ratio\": %.4g, \"load_ratio\": %.4g", median[WRITE] / median[SAVE],
         median[READ] / median[LOAD]);
  if (t->settings->turns == TURNS)
    printf(", \"copied_bytes\": %lld, \"copy_ratio\": %.4g, \"block_ratio\": %.4g",
           (long long)t->copied, median[MEMCPY] / median[COPY], median[MEMCPY] / median[BLOCK]);
  puts("}");
}

static void report(const timing *t) {
  const settings *const s = t->settings;
  double median[TURNS];
  for (turn i = SAVE; i < s->turns; i++) median[i] = ot_bench_median(t->seconds[i], s->repeats);
  if (s->json) {
    report_json(t, median);
    return;
  }
  printf("%d ranks, %.3f GB, medians of %d\n", s->ranks, (double)t->bytes / 1e9, s->repeats);
  for (turn i = SAVE; i < s->turns; i++) {
    const double bytes = (double)(i < COPY ? t->bytes : t->copied);
    printf("%-7s %8.3f s  %7.3f GB/s\n", turn_names[i], median[i], bytes / 1e9 / median[i]);
  }
  printf("saving at %.0f %% of the disk's rate, loading at %.0f %%\n",
         100 * median[WRITE] / median[SAVE], 100 * median[READ] / median[LOAD]);
  if (s->turns < TURNS) return;
  printf(
      "a copy in memory takes %.2f times as long as memcpy; a restart from it takes %.2f of one "
      "from the disk\nan asynchronous save blocks %.2f times as long as memcpy\n",
      median[COPY] / median[MEMCPY], median[RESTORE] / median[LOAD],
      median[BLOCK] / median[MEMCPY]);
}

static ot_status run_in(const settings *s, ot_arena *arena) {
  timing *const t = ot_arena_take(arena, sizeof *t);
  const char *const tokens = ot_arena_format(arena, "%s/tokens.bin", s->directory);
  *t = (timing){.settings = s,
                .saved = ot_arena_format(arena, "%s/step", s->directory),
                .later = ot_arena_format(arena, "%s/later", s->directory)};
  OT_TRY(ot_disk_make_directory(s->directory));
  OT_TRY(write_tokens(tokens));
  const ot_config_request request = {
      .path = "bench", .text = ot_arena_format(arena, model, s->layers, tokens, s->ranks, s->tp)};
  OT_TRY(ot_config_load(&request, arena, &t->config));
  OT_TRY(ot_comm_run_threads(s->ranks, time_rank, t));
  report(t);
  unlink(tokens);
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  const settings s = {.ranks = (int)ot_options_integer(options, "ranks"),
                      .layers = (int)ot_options_integer(options, "layers"),
                      .tp = (int)ot_options_integer(options, "tp"),
                      .repeats = (int)ot_options_integer(options, "repeats"),
                      .directory = ot_options_text(options, "directory"),
                      .turns = ot_options_flag(options, "disk") ? COPY : TURNS,
                      .json = ot_options_json(options)};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = run_in(&s, &arena);
  ot_heap_release(&heap);
  return status;
}

static const ot_option options[] = {
    {"ranks", OT_OPTION_INTEGER, "N", "4", 1, 256, .help = "ranks of one thread"},
    {"layers", OT_OPTION_INTEGER, "L", "13", 1, 1000,
     .help = "layers of the model: 155 MB of state each"},
    {"tp", OT_OPTION_INTEGER, "T", "1", 1, 16, .help = "tensor parallelism"},
    {"repeats", OT_OPTION_INTEGER, "R", "3", 1, OT_BENCH_REPEATS, .help = "repetitions per median"},
    {"directory", OT_OPTION_TEXT, "DIR", "checkpoint-bench", .help = "directory on the disk"},
    {"disk", OT_OPTION_FLAG,
     .help = "no copies in memory, which need three times the memory of the state"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "checkpoint",
    .summary = "saving and loading a run compared with the disk",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
