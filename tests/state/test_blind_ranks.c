// SPDX-License-Identifier: Apache-2.0
// ctest: waits
// Runs of four ranks of which two do not see the folder of the checkpoints, as on a host of its
// own: what they save and load goes through the others, and has the bytes of a run whose ranks all
// see it. And a folder with the ways of NFS. Each run is a process of its own.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { RANKS = 4, FIRST_BLIND = 2, STEPS = 12, KILLED = 9 };

// ---- what a rank sees ----

static _Thread_local bool blind;  // in the main thread of a rank
static int late;                  // how many more times an existing file is reported as missing
static _Atomic int looks;
static bool disk_is_full;  // for tensors of step 2

static bool hides(const char *path, int flags) {
  if (!blind || (flags & O_DIRECTORY) || !strstr(path, "/checkpoints/")) return false;
  return late == 0 || ++looks <= late;
}

int open(const char *path, int flags, ...) {
  int (*real)(const char *, int, ...);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  *(void **)&real = dlsym(RTLD_NEXT, "open");
  if (!hides(path, flags)) return real(path, flags, mode);
  errno = ENOENT;
  return -1;
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  ssize_t (*real)(int, const void *, size_t, off_t);
  char link[64], path[512];
  *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = disk_is_full ? readlink(link, path, sizeof path - 1) : 0;
  path[length > 0 ? length : 0] = '\0';
  if (!strstr(path, "/.step-00000002.partial/")) return real(file, data, bytes, offset);
  errno = ENOSPC;
  return -1;
}

// ---- a file system like NFS ----

static bool is_nfs;
static _Atomic int refused;  // calls of rmdir

int fsync(int file) {
  int (*real)(int);
  struct stat info;
  *(void **)&real = dlsym(RTLD_NEXT, "fsync");
  if (!is_nfs || fstat(file, &info) != 0 || !S_ISDIR(info.st_mode)) return real(file);
  errno = EINVAL;
  return -1;
}

// Another program has a file open of the first checkpoint that is removed.
int rmdir(const char *path) {
  int (*real)(const char *);
  *(void **)&real = dlsym(RTLD_NEXT, "rmdir");
  if (!is_nfs || !strstr(path, ".deleting") || refused++ > 0) return real(path);
  errno = ENOTEMPTY;
  return -1;
}

// ---- a run ----

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_config config;
  int blind_from;  // ranks from here on do not see the folder
  int last;        // the process ends once the checkpoint of this step is there; 0: at its end
  char *said;      // of the last process
} fixture;

static void hear(void *context, const ot_loop_event *event) {
  (void)context;
  if (event->kind == OT_LOOP_NOTE) fprintf(stderr, "%s\n", event->text);
}

// How many steps a save takes that runs while training goes on depends on the machine.
static void end_once_saved(ot_trainer *trainer, void *context) {
  const fixture *const f = context;
  if (f->last == 0 || !ot_world_is_leader(ot_trainer_world(trainer))) return;
  char path[OT_PATH_BYTES];
  snprintf(path, sizeof path, "%s/checkpoints/step-%08d", f->config.run.output, f->last);
  if (ot_disk_is_directory(path)) _exit(KILLED);
  if (ot_trainer_position(trainer).step > f->last) usleep(100000);
}

static ot_status run_rank(ot_comm *comm, void *context) {
  fixture *const f = context;
  const ot_trainer_hooks hooks = {.after = end_once_saved, .context = f};
  ot_loop_request request = {.run = &f->config.run,
                             .settings = f->config.settings,
                             .hooks = &hooks,
                             .sink = hear,
                             .context = f};
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  blind = ot_comm_rank(comm) >= f->blind_from;
  const ot_status status = ot_loop_run(&request);
  if (blind)
    fprintf(stderr, "rank %d sent %.0f bytes\n", ot_comm_rank(comm),
            ot_comm_sent_bytes(comm, OT_GROUP_WORLD, OT_COMM_SEND));
  blind = false;
  ot_world_destroy(&request.world);
  return status;
}

static void load_config(fixture *f, const char *output, const char *more) {
  const char *const sets[] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, "
      "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, "
      "max_position_embeddings: 64}",
      ot_arena_format(&f->arena, "data.train=%s", scratch_path(f->directory, "train")),
      ot_arena_format(&f->arena, "output=%s", scratch_path(f->directory, output)),
      "data.sequence_length=16",
      "batch={global_batch_size: 4, micro_batch_size: 1}",
      "steps=12",
      "threads=1",
      "log.tensorboard=false",
      "parallel={tp: 2, pp: 2}",
      "checkpoint={every: 2, keep: 0}",
      more,
  };
  const ot_config_request request = {.sets = sets, .num_sets = OT_COUNT(sets)};
  if (ot_config_load(&request, &f->arena, &f->config) != OT_OK) fail_msg("%s", ot_fail_message());
}

// Runs a process until it has saved step `last`, or, with 0, to the end. Returns its exit code;
// f->said is what it said.
static int run_until(fixture *f, const char *output, const char *more, int last) {
  const char *const said = scratch_path(f->directory, "said");
  int status;
  load_config(f, output, more);
  f->last = last;
  looks = 0;
  const pid_t child = fork();
  if (child == 0) {
    if (!freopen(said, "w", stderr)) _exit(1);
    setvbuf(stderr, NULL, _IONBF, 0);
    const ot_status ended = ot_comm_run_threads(RANKS, run_rank, f);
    if (ended != OT_OK) fprintf(stderr, "%s\n", ot_fail_message());
    _exit(ended);
  }
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  int64_t bytes;
  char *const text = scratch_read(said, &bytes);
  f->said = ot_arena_text(&f->arena, text, bytes);
  free(text);
  return WEXITSTATUS(status);
}

static void set_up(fixture *f) {
  static const int32_t lengths[] = {120, 80};
  *f = (fixture){.blind_from = RANKS};
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  shard_write(f->directory, "train", lengths, 2, 0);
  late = 0;
  disk_is_full = is_nfs = false;
  assert_int_equal(run_until(f, "whole", "seed=1", 0), 0);
  f->blind_from = FIRST_BLIND;
}

static void tear_down(fixture *f) {
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
}

static void assert_said(const fixture *f, const char *text) {
  if (!strstr(f->said, text)) fail_msg("not said: %s\nsaid:\n%s", text, f->said);
}

static const char *file_of(fixture *f, const char *output, int step, const char *name) {
  return ot_arena_format(&f->arena, "%s/%s/checkpoints/step-%08d/%s", f->directory, output, step,
                         name);
}

static void assert_same_state(fixture *f, const char *output, int step) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  for (int i = 0; i < OT_COUNT(names); i++)
    assert_files_equal(file_of(f, output, step, names[i]), file_of(f, "whole", step, names[i]));
}

// ---- tests ----

static const char note[] = "2 of 4 ranks do not see ";

static void ranks_without_the_folder_save_and_load_through_others(void **state) {
  (void)state;
  static const char *const ways[] = {"checkpoint.async=false", "checkpoint.async=true"};
  fixture f;
  set_up(&f);
  for (int i = 0; i < OT_COUNT(ways); i++) {
    const char *const output = ot_arena_format(&f.arena, "run%d", i);
    assert_int_equal(run_until(&f, output, ways[i], 2), KILLED);
    assert_said(&f, note);
    assert_same_state(&f, output, 2);
    assert_int_equal(run_until(&f, output, ways[i], 0), 0);
    assert_said(&f, "resuming from ");
    assert_same_state(&f, output, STEPS);
    assert_false(ot_disk_is_file(
        ot_arena_format(&f.arena, "%s/%s/checkpoints/.sight", f.directory, output)));
    // Both stages of the pipeline have messages; what rank 3 has saved is more than these.
    assert_said(&f, "rank 3 sent ");
  }
  tear_down(&f);
}

// As a client of NFS may see a file that another one has just made.
static void a_folder_that_is_seen_late_is_seen(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  late = 3;
  assert_int_equal(run_until(&f, "run", "seed=1", 0), 0);
  if (strstr(f.said, note)) fail_msg("taken for blind:\n%s", f.said);
  assert_same_state(&f, "run", STEPS);
  tear_down(&f);
}

static void a_failure_to_write_for_others_is_one_of_the_save(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  disk_is_full = true;
  assert_int_equal(run_until(&f, "run", "seed=1", 0), 0);
  disk_is_full = false;
  assert_said(&f, "warning: step 2 was not saved: ");
  assert_said(&f, "No space left on device");
  assert_same_state(&f, "run", 4);
  assert_same_state(&f, "run", STEPS);
  tear_down(&f);
}

static void what_nfs_refuses_fails_no_save(void **state) {
  (void)state;
  ot_disk_names names;
  fixture f;
  set_up(&f);
  is_nfs = true;
  f.blind_from = RANKS;
  assert_int_equal(run_until(&f, "run", "checkpoint={every: 1, keep: 1}", 0), 0);
  if (strstr(f.said, "warning")) fail_msg("said:\n%s", f.said);
  assert_same_state(&f, "run", STEPS);
  assert_int_equal(ot_disk_list(&f.arena, scratch_path(f.directory, "run/checkpoints"), &names),
                   OT_OK);
  assert_int_equal(names.count, 1);
  tear_down(&f);
}

// The end of a file belongs to the second stage of the pipeline, whose ranks are blind.
static void damage_that_a_blind_rank_finds_leads_to_the_checkpoint_before(void **state) {
  (void)state;
  fixture f;
  char byte;
  set_up(&f);
  assert_int_equal(run_until(&f, "run", "seed=1", 4), KILLED);
  const int file = open(file_of(&f, "run", 4, "optimizer.safetensors"), O_RDWR);
  assert_true(file >= 0);
  const off_t end = lseek(file, -64, SEEK_END);
  assert_int_equal(pread(file, &byte, 1, end), 1);
  byte ^= 1;
  assert_int_equal(pwrite(file, &byte, 1, end), 1);
  (void)ot_disk_close(file, "optimizer.safetensors");
  assert_int_equal(run_until(&f, "run", "seed=1", 0), 0);
  assert_said(&f, "skipping 1 damaged checkpoint");
  assert_said(&f, "checkpoints/step-00000002");
  assert_same_state(&f, "run", STEPS);
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_without_the_folder_save_and_load_through_others),
      cmocka_unit_test(a_folder_that_is_seen_late_is_seen),
      cmocka_unit_test(a_failure_to_write_for_others_is_one_of_the_save),
      cmocka_unit_test(what_nfs_refuses_fails_no_save),
      cmocka_unit_test(damage_that_a_blind_rank_finds_leads_to_the_checkpoint_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
