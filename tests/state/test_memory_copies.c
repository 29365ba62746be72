// SPDX-License-Identifier: Apache-2.0
// Runs of four ranks with copies in memory: each run is a process of its own, which ends without
// notice after a step, as if it were killed. The next one has to go on from the copies, with the
// bits of a run that was never broken, or to say why it cannot.
#include <dirent.h>
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
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "state/memory_copies.h"
#include "state/memory_slot.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { RANKS = 4, STEPS = 8, SAID_BYTES = 1 << 14, KILLED = 9 };

// ---- the machine ----

static int hosts = 1;            // of the ranks, as many on each
static _Atomic int named;        // calls of gethostname
static int64_t free_bytes = -1;  // in memory; -1: what there is

int gethostname(char *name, size_t bytes) {
  const int rank = named++ % RANKS;
  snprintf(name, bytes, "host%d", rank / (RANKS / hosts));
  return 0;
}

int fstatvfs(int file, struct statvfs *found) {
  int (*real)(int, struct statvfs *);
  *(void **)&real = dlsym(RTLD_NEXT, "fstatvfs");
  const int result = real(file, found);
  if (free_bytes >= 0) found->f_bavail = (fsblkcnt_t)free_bytes / found->f_frsize;
  return result;
}

// ---- a run ----

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char memory[SCRATCH_BYTES + 8];
  ot_heap heap;
  ot_arena arena;
  ot_config config;
  const char *more;  // a setting besides those of all runs
  int last;          // the process ends in the step after it; 0: at its end
  char *said;        // of the last process
} fixture;

static void hear(void *context, const ot_loop_event *event) {
  (void)context;
  if (event->kind == OT_LOOP_NOTE) fprintf(stderr, "%s\n", event->text);
}

static bool is_named(const char *task) {
  char path[300], name[32] = "";
  snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
  FILE *const file = fopen(path, "r");
  if (!file) return false;
  if (!fgets(name, sizeof name, file)) name[0] = '\0';
  (void)fclose(file);
  return strncmp(name, OT_MEMORY_THREAD, strlen(OT_MEMORY_THREAD)) == 0;
}

static bool any_copies(void) {
  bool any = false;
  DIR *const tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (struct dirent *task; (task = readdir(tasks));) any |= is_named(task->d_name);
  closedir(tasks);
  return any;
}

// Every rank waits in each step until the copies of the one before are complete, so that none is
// left out.
static void end_in_step(ot_trainer *trainer, void *context) {
  const fixture *const f = context;
  // A thread that ends may hide another from one look at them.
  for (int i = 0, clear = 0; i < 10000 && clear < 4; i++) {
    clear = any_copies() ? 0 : clear + 1;
    usleep(500);
  }
  if (!ot_world_is_leader(ot_trainer_world(trainer))) return;
  if (f->last > 0 && ot_trainer_position(trainer).step == f->last) _exit(KILLED);
}

static ot_status run_rank(ot_comm *comm, void *context) {
  fixture *const f = context;
  const ot_trainer_hooks hooks = {.after = end_in_step, .context = f};
  ot_loop_request request = {.run = &f->config.run,
                             .settings = f->config.settings,
                             .hooks = &hooks,
                             .sink = hear,
                             .context = f};
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  const ot_status status = ot_loop_run(&request);
  ot_world_destroy(&request.world);
  return status;
}

static const char *format(fixture *f, const char *text, const char *value) {
  return ot_arena_format(&f->arena, "%s%s", text, value);
}

static void load_config(fixture *f, const char *output, const char *checkpoint) {
  const char *const sets[] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, "
      "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, "
      "max_position_embeddings: 64}",
      format(f, "output=", scratch_path(f->directory, output)),
      "data.sequence_length=16",
      "batch={global_batch_size: 4, micro_batch_size: 1}",
      "steps=8",
      "threads=1",
      "parallel={tp: 2, zero: 1}",
      ot_arena_format(&f->arena, "checkpoint={keep: 0, memory_path: %s, %s}", f->memory,
                      checkpoint),
      f->more,
  };
  const char *const file = scratch_path(f->directory, "run.yaml");
  scratch_write(file, "data: {train: train}\n", 21);
  const ot_config_request request = {.path = file, .sets = sets, .num_sets = OT_COUNT(sets)};
  if (ot_config_load(&request, &f->arena, &f->config) != OT_OK) fail_msg("%s", ot_fail_message());
}

// Runs a process until it has done step `last` and is in the next one, or, with 0, to the end.
// Returns its exit code; f->said is what it said.
static int run_until(fixture *f, const char *output, const char *checkpoint, int last) {
  const char *const said = scratch_path(f->directory, "said");
  int status;
  load_config(f, output, checkpoint);
  f->last = last;
  named = 0;
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

static void assert_said(const fixture *f, const char *text) {
  if (!strstr(f->said, text)) fail_msg("not said: %s\nsaid:\n%s", text, f->said);
}

static void set_up(fixture *f) {
  static const int32_t lengths[] = {120, 80};
  *f = (fixture){.more = "seed=1"};
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  shard_write(f->directory, "train", lengths, 2, 0);
  snprintf(f->memory, sizeof f->memory, "%s", scratch_path(f->directory, "memory"));
  assert_int_equal(mkdir(f->memory, 0700), 0);
  hosts = 1;
  free_bytes = -1;
}

static void tear_down(fixture *f) {
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
}

// ---- what runs leave ----

static void assert_same_state(fixture *f, const char *a, const char *b) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  const char *const form = "%s/%s/checkpoints/step-00000008/%s";
  for (int i = 0; i < 2; i++)
    assert_files_equal(ot_arena_format(&f->arena, form, f->directory, a, names[i]),
                       ot_arena_format(&f->arena, form, f->directory, b, names[i]));
}

static int count_events(fixture *f, const char *output, const char *text) {
  int64_t bytes;
  int count = 0;
  char *const log =
      scratch_read(ot_arena_format(&f->arena, "%s/%s/events.jsonl", f->directory, output), &bytes);
  log[bytes - 1] = '\0';
  for (const char *at = log; (at = strstr(at, text)) != NULL; at++) count++;
  free(log);
  return count;
}

// The folders of the hosts, in the order of their ranks: [return value].
static int list_folders(fixture *f, const char *folders[RANKS]) {
  ot_disk_names names;
  int count = 0;
  assert_int_equal(ot_disk_list(&f->arena, f->memory, &names), OT_OK);
  for (int64_t i = 0; i < names.count; i++)
    folders[count++] = ot_disk_join(&f->arena, f->memory, names.name[i]);
  return count;
}

static const char *copy_path(fixture *f, int rank, int index) {
  const char *folders[RANKS];
  char name[OT_MEMORY_NAME_BYTES];
  assert_int_equal(list_folders(f, folders), 1);
  ot_memory_slot_name(rank, index, name);
  return ot_disk_join(&f->arena, folders[0], name);
}

static int64_t step_of(const char *path) {
  ot_memory_head head;
  const int file = open(path, O_RDONLY);
  assert_true(file >= 0);
  assert_int_equal(read(file, &head, sizeof head), sizeof head);
  close(file);
  return head.step;
}

// A bit of the copy of `step` of `rank`, after its head, changes.
static void damage(fixture *f, int rank, int64_t step) {
  char byte;
  const char *path = copy_path(f, rank, 0);
  if (step_of(path) != step) path = copy_path(f, rank, 1);
  assert_int_equal(step_of(path), step);
  const int file = open(path, O_RDWR);
  assert_int_equal(pread(file, &byte, 1, OT_MEMORY_HEAD_BYTES + 1000), 1);
  byte ^= 1;
  assert_int_equal(pwrite(file, &byte, 1, OT_MEMORY_HEAD_BYTES + 1000), 1);
  close(file);
}

// ---- tests ----

static const char often[] = "every: 100, memory: 1";

static void a_restart_from_memory_has_the_bits_of_an_unbroken_run(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run_until(&f, "whole", "every: 100", 0), 0);
  assert_int_equal(run_until(&f, "run", often, 5), KILLED);
  assert_int_equal(count_events(&f, "run", "\"from\":\"nothing\""), 1);
  struct stat found;
  assert_int_equal(stat(copy_path(&f, 3, 1), &found), 0);
  assert_int_equal(found.st_mode & 0777, 0600);
  assert_int_equal(run_until(&f, "run", often, 0), 0);
  assert_said(&f, "resuming from the copies in memory of step 5");
  assert_null(strstr(f.said, "has no checkpoint yet"));
  assert_int_equal(
      count_events(&f, "run", "\"step\":5,\"attempt\":2,\"ranks\":4,\"from\":\"memory\""), 1);
  assert_int_equal(count_events(&f, "run", "\"fallback\""), 0);
  assert_same_state(&f, "whole", "run");
  const char *folders[RANKS];
  assert_int_equal(list_folders(&f, folders), 0);
  tear_down(&f);
}

static void copies_of_other_data_are_refused(void **state) {
  static const int32_t lengths[] = {120, 80};
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run_until(&f, "run", often, 5), KILLED);
  shard_write(f.directory, "train", lengths, 2, 1);
  assert_int_equal(run_until(&f, "run", often, 0), OT_ENVIRONMENT);
  assert_said(&f, "train.bin changed since the copies in memory");
  tear_down(&f);
}

// A second failure before the next copies leaves those that were loaded.
static void copies_may_be_loaded_again(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run_until(&f, "whole", "every: 100", 0), 0);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 3", 5), KILLED);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 3", 0), 0);
  assert_said(&f, "checkpoints/step-00000004");  // newer than the copies of step 3
  assert_int_equal(run_until(&f, "again", "every: 100, memory: 3", 4), KILLED);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(run_until(&f, "again", "every: 100, memory: 3", 4), KILLED);
    assert_said(&f, "resuming from the copies in memory of step 3");
  }
  assert_int_equal(run_until(&f, "again", "every: 100, memory: 3", 0), 0);
  assert_same_state(&f, "whole", "run");
  assert_same_state(&f, "whole", "again");
  tear_down(&f);
}

static void a_damaged_copy_falls_back_to_the_one_before_and_to_the_disk(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run_until(&f, "whole", "every: 100", 0), 0);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 5), KILLED);
  damage(&f, 2, 5);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 7), KILLED);
  assert_said(&f, "the copy in memory of step 5 of rank 2 is damaged (");
  assert_said(&f, "resuming from the copies in memory of step 4");
  assert_int_equal(count_events(&f, "run", "\"event\":\"fallback\""), 1);
  damage(&f, 0, 7);
  damage(&f, 1, 6);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 0), 0);
  assert_said(&f, "step 7 of rank 0 is damaged (");
  assert_said(&f, "checkpoints/step-00000006");
  assert_same_state(&f, "whole", "run");
  tear_down(&f);
}

// The user removes checkpoints to go back; a run that began elsewhere has other copies.
static void copies_of_another_history_are_never_loaded(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run_until(&f, "whole", "every: 2", 0), 0);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 7), KILLED);
  const char *const newest = scratch_path(f.directory, "run/checkpoints/step-00000006");
  assert_int_equal(ot_disk_remove(newest), OT_OK);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 5), KILLED);
  assert_said(&f, "the checkpoint of step 6, which the run has saved, is gone");
  assert_said(&f, "checkpoints/step-00000004");
  // Without copies the run goes on from the disk: those of step 5 are then of its past.
  assert_int_equal(run_until(&f, "run", "every: 100", 6), KILLED);
  assert_int_equal(run_until(&f, "run", "every: 100, memory: 1", 5), KILLED);
  assert_said(&f, "checkpoints/step-00000004");
  // Copies that were left in another place while the run went back to the disk.
  assert_int_equal(run_until(&f, "moved", "every: 2, memory: 1", 7), KILLED);
  f.more = ot_arena_format(&f.arena, "checkpoint.memory_path=%s", f.directory);
  assert_int_equal(run_until(&f, "moved", "every: 100, memory: 100", 6), KILLED);
  assert_said(&f, "checkpoints/step-00000006");
  f.more = "seed=1";
  assert_int_equal(run_until(&f, "moved", "every: 100, memory: 100", 6), KILLED);
  assert_said(&f, "checkpoints/step-00000006");
  // Another run begins in the directory.
  assert_int_equal(ot_disk_remove(scratch_path(f.directory, "run")), OT_OK);
  assert_int_equal(run_until(&f, "run", often, 3), KILLED);
  assert_int_equal(count_events(&f, "run", "\"from\":\"nothing\""), 1);
  tear_down(&f);
}

static void copies_of_another_layout_are_left(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 5), KILLED);
  f.more = "parallel.zero=3";
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 0), 0);
  assert_said(&f, "the copies in memory of step 5 are of another layout, on 4 ranks");
  assert_said(&f, "checkpoints/step-00000004");
  tear_down(&f);
}

static void without_room_a_run_goes_on(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  free_bytes = 1 << 20;
  assert_int_equal(run_until(&f, "run", often, 0), 0);
  assert_said(&f, "note: no copies in memory: ");
  assert_said(&f, "the copies of 4 ranks need ");
  assert_said(&f, "(checkpoint.memory)");
  f.more = ot_arena_format(&f.arena, "checkpoint.memory_path=%s/absent/folder", f.directory);
  assert_int_equal(run_until(&f, "other", often, 0), 0);
  assert_said(&f, "note: no copies in memory: ");
  assert_said(&f, "No such file or directory");
  tear_down(&f);
}

// What others could have put there is not used.
static void a_folder_of_others_is_not_used(void **state) {
  (void)state;
  fixture f;
  const char *folders[RANKS];
  set_up(&f);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 5), KILLED);
  assert_int_equal(list_folders(&f, folders), 1);
  assert_int_equal(chmod(folders[0], 0770), 0);
  assert_int_equal(run_until(&f, "run", "every: 2, memory: 1", 5), KILLED);
  assert_said(&f, "belongs to another user, or others may enter it");
  assert_said(&f, "checkpoints/step-00000004");
  tear_down(&f);
}

// Two hosts of two ranks: one loses what it has in memory.
static void a_lost_host_takes_its_copies_from_the_other(void **state) {
  (void)state;
  fixture f;
  const char *folders[RANKS];
  set_up(&f);
  hosts = 2;
  assert_int_equal(run_until(&f, "whole", "every: 100", 0), 0);
  for (int lost = 0; lost < 2; lost++) {
    const char *const output = ot_arena_format(&f.arena, "run%d", lost);
    assert_int_equal(run_until(&f, output, often, 5), KILLED);
    assert_int_equal(list_folders(&f, folders), 2);
    assert_int_equal(ot_disk_remove(folders[lost]), OT_OK);
    assert_int_equal(run_until(&f, output, often, 0), 0);
    assert_said(&f, "resuming from the copies in memory of step 5");
    assert_same_state(&f, "whole", output);
    assert_int_equal(list_folders(&f, folders), 0);
  }
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_restart_from_memory_has_the_bits_of_an_unbroken_run),
      cmocka_unit_test(copies_of_other_data_are_refused),
      cmocka_unit_test(copies_may_be_loaded_again),
      cmocka_unit_test(a_damaged_copy_falls_back_to_the_one_before_and_to_the_disk),
      cmocka_unit_test(copies_of_another_history_are_never_loaded),
      cmocka_unit_test(copies_of_another_layout_are_left),
      cmocka_unit_test(without_room_a_run_goes_on),
      cmocka_unit_test(a_folder_of_others_is_not_used),
      cmocka_unit_test(a_lost_host_takes_its_copies_from_the_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
