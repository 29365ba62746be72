// SPDX-License-Identifier: Apache-2.0
// The ranks' files, and how copies get into them. Which of the two files of a rank is next is the
// same on all ranks.
#include "state/memory_copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/quantity.h"
#include "base/text.h"
#include "data/data_record.h"
#include "files/disk.h"
#include "host/available.h"
#include "host/clock.h"
#include "state/memory_parts.h"
#include "state/state_content.h"

// ---- what is copied ----

typedef void (*segment_visitor)(ot_memory_copies *c, const ot_bucket_range *held, int64_t bytes,
                                int64_t at);

// Calls `visit` for each range of the arena that is copied, in order, `at` bytes into the copy.
// Returns the bytes of all.
static int64_t each_segment(ot_memory_copies *c, segment_visitor visit) {
  ot_runtime *const runtime = c->request.runtime;
  const int num_blocks = ot_runtime_schedule(runtime)->num_blocks;
  int64_t at = 0;
  for (int block = 0; block < num_blocks; block++) {
    for (int i = 0; i < OT_STATE_KINDS; i++) {
      const ot_parameter_copy copy = ot_state_kinds[i].copy;
      const ot_bucket_range held = ot_runtime_held_range(runtime, block, copy);
      const int64_t bytes = held.count * ot_dtype_bytes(ot_runtime_copy_dtype(runtime, copy));
      if (bytes == 0) continue;
      visit(c, &held, bytes, at);
      at += (bytes + 63) / 64 * 64;
    }
  }
  return at;
}

static void add_to_layout(ot_memory_copies *c, const ot_bucket_range *held, int64_t bytes,
                          int64_t at) {
  const int64_t words[] = {held->first, held->count, bytes, at};
  c->layout = ot_hash_bytes(c->layout, words, sizeof words);
}

static void copy_out(ot_memory_copies *c, const ot_bucket_range *held, int64_t bytes, int64_t at) {
  char *const to = ot_memory_slot_state(&c->slot[c->newest]);
  ot_executor_read(ot_runtime_executor(c->request.runtime), held->offset, to + at, bytes);
}

static void copy_in(ot_memory_copies *c, const ot_bucket_range *held, int64_t bytes, int64_t at) {
  const char *const from = ot_memory_slot_state(&c->slot[c->newest]);
  ot_executor_write(ot_runtime_executor(c->request.runtime), held->offset, from + at, bytes);
}

int64_t ot_memory_copied_bytes(const ot_schedule *schedule, const ot_run *run) {
  const ot_run_precision *const p = &run->precision;
  const int64_t size[OT_COPIES] = {[OT_COPY_WEIGHT] = ot_dtype_bytes(p->params),
                                   [OT_COPY_MOMENT_1] = ot_dtype_bytes(p->moments),
                                   [OT_COPY_MOMENT_2] = ot_dtype_bytes(p->moments),
                                   [OT_COPY_MASTER] = ot_dtype_bytes(p->master)};
  int64_t bytes = 0;
  for (int block = 0; block < schedule->num_blocks; block++) {
    for (int i = 0; i < OT_STATE_KINDS; i++) {
      const ot_parameter_copy copy = ot_state_kinds[i].copy;
      const int64_t count = schedule->buckets[block].copy[copy].count;
      bytes += (count * size[copy] + 63) / 64 * 64;
    }
  }
  return bytes;
}

int64_t ot_memory_reserved_bytes(int64_t copied_bytes, int hosts) {
  return 2 * ot_memory_slot_bytes(copied_bytes) * (hosts > 1 ? 2 : 1);
}

// ---- create ----

// The same on all ranks; differs if anything lies elsewhere on any of them.
static ot_status find_layout(ot_memory_copies *c) {
  const ot_graph *const graph = ot_runtime_whole_graph(c->request.runtime);
  const ot_mesh *const mesh = ot_world_mesh(c->request.world);
  const uint64_t shape = mesh ? ot_mesh_hash(mesh) : 0;
  int64_t *const all = ot_arena_array(&c->arena, c->size, sizeof *all);
  c->layout = ot_hash_bytes(OT_HASH_START, &shape, sizeof shape);
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const parameter = &graph->parameters[i];
    const int64_t words[] = {parameter->block, parameter->offset, parameter->rows, parameter->cols};
    c->layout = ot_hash_text(ot_hash_bytes(c->layout, words, sizeof words), parameter->name);
  }
  const int64_t bytes = each_segment(c, add_to_layout);
  OT_TRY(ot_world_allgather(c->request.world, bytes, c->bytes));
  OT_TRY(ot_world_allgather(c->request.world, (int64_t)c->layout, all));
  c->layout = ot_hash_bytes(OT_HASH_START, all, (int64_t)sizeof *all * c->size);
  return OT_OK;
}

static bool share_host(const ot_memory_copies *c, int a, int b) {
  return c->machine[a] == c->machine[b];
}

// Fills in c->partners. Hosts are in the order of their first ranks; a rank's partner is at its
// place of the next host, or, if that has fewer, at the one that is left over.
static void list_partners(ot_memory_copies *c) {
  int *const host = ot_arena_array(&c->arena, c->size, sizeof *host);
  int *const place = ot_arena_array(&c->arena, c->size, sizeof *place);
  int *const count = ot_arena_array(&c->arena, c->size, sizeof *count);
  int *const ranks = ot_arena_array(&c->arena, c->size, sizeof *ranks);  // host by host
  for (int rank = 0; rank < c->size; rank++) {
    int first = 0;
    while (!share_host(c, first, rank)) first++;
    host[rank] = first == rank ? c->hosts++ : host[first];
    place[rank] = count[host[rank]]++;
  }
  int at = 0;
  for (int h = 0; h < c->hosts; h++)
    for (int rank = 0; rank < c->size; rank++)
      if (host[rank] == h) ranks[at++] = rank;
  int *const begins = ot_arena_array(&c->arena, c->hosts, sizeof *begins);
  for (int h = 1; h < c->hosts; h++) begins[h] = begins[h - 1] + count[h - 1];
  for (int rank = 0; rank < c->size; rank++) {
    const int next = (host[rank] + 1) % c->hosts;
    c->partners[rank] = c->hosts > 1 ? ranks[begins[next] + place[rank] % count[next]] : -1;
  }
  c->local_rank = place[c->rank];
  c->local_size = count[host[c->rank]];
}

static ot_status find_partners(ot_memory_copies *c) {
  OT_TRY(ot_world_allgather(c->request.world, ot_world_machine(c->request.world), c->machine));
  list_partners(c);
  c->partner = c->partners[c->rank];
  c->replicas = ot_arena_array(&c->arena, c->size, sizeof *c->replicas);
  for (int rank = 0; rank < c->size; rank++)
    if (c->partners[rank] == c->rank) c->replicas[c->num_replicas++].rank = rank;
  return OT_OK;
}

// The rank of this host that keeps copies of `rank`; -1: none.
static int keeper_of(const ot_memory_copies *c, int rank) {
  if (rank >= c->size) return -1;
  if (share_host(c, rank, c->rank)) return rank;
  const int partner = c->partners[rank];
  return partner >= 0 && share_host(c, partner, c->rank) ? partner : -1;
}

bool ot_memory_is_kept(const ot_memory_copies *c, int rank) { return keeper_of(c, rank) >= 0; }

bool ot_memory_owns(const ot_memory_copies *c, int rank) {
  const int keeper = keeper_of(c, rank);
  return keeper >= 0 ? keeper == c->rank : rank % c->local_size == c->local_rank;
}

// A folder for each run directory, user and host: hosts may share what is at the path.
static ot_status open_folder(ot_memory_copies *c, const char *output) {
  const int64_t words[] = {ot_world_machine(c->request.world), (int64_t)geteuid()};
  const uint64_t hash = ot_hash_bytes(ot_hash_text(OT_HASH_START, output), words, sizeof words);
  ot_text_format(c->path, sizeof c->path, "%s/orthant-%016llx",
                 c->request.run->checkpoint.memory_path, (unsigned long long)hash);
  return ot_memory_folder_open(c->path, &c->folder);
}

static ot_status create(ot_memory_copies *c) {
  char output[OT_WORLD_TEXT] = "";
  if (c->request.output) ot_text_format(output, sizeof output, "%s", c->request.output);
  OT_TRY(ot_world_broadcast(c->request.world, output));
  OT_TRY(find_partners(c));
  OT_TRY(find_layout(c));
  return ot_world_agree(c->request.world, open_folder(c, output));
}

ot_status ot_memory_copies_create(const ot_memory_request *request, ot_memory_copies **out) {
  ot_memory_copies *const c = calloc(1, sizeof *c);
  *out = c;
  OT_TRY(ot_world_agree(request->world, c ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory")));
  c->request = *request;
  c->arena = ot_heap_arena_create(&c->heap);
  c->folder = c->newest = -1;
  c->joined = true;
  c->rank = ot_world_rank(request->world);
  c->size = ot_world_size(request->world);
  c->machine = ot_arena_array(&c->arena, c->size, sizeof *c->machine);
  c->bytes = ot_arena_array(&c->arena, c->size, sizeof *c->bytes);
  c->partners = ot_arena_array(&c->arena, c->size, sizeof *c->partners);
  const bool fits = ot_text_length(request->config) < OT_MEMORY_TEXT_BYTES / 2;
  const ot_status status = fits ? create(c)
                                : ot_fail(OT_ENVIRONMENT, "the settings have more than %d bytes",
                                          OT_MEMORY_TEXT_BYTES / 2);
  if (status != OT_OK) ot_memory_copies_destroy(out);
  return status;
}

static void join(ot_memory_copies *c) {
  if (!c->joined) pthread_join(c->thread, NULL);
  c->joined = true;
}

void ot_memory_copies_destroy(ot_memory_copies **copies) {
  ot_memory_copies *const c = *copies;
  if (!c) return;
  join(c);
  for (int i = 0; i < 2; i++) {
    ot_memory_slot_close(&c->slot[i]);
    for (int w = 0; w < c->num_replicas; w++) ot_memory_slot_close(&c->replicas[w].slot[i]);
  }
  if (c->folder >= 0) close(c->folder);
  ot_heap_release(&c->heap);
  free(c);
  *copies = NULL;
}

ot_status ot_memory_copies_load(ot_memory_copies *c, ot_arena *arena, const char **note) {
  (void)each_segment(c, copy_in);
  const char *const config = ot_memory_slot_text(&c->slot[c->newest]);
  const char *const record = config + ot_text_length(config) + 1;
  const char *const table = record + ot_text_length(record) + 1;
  *note = NULL;
  if (table[0] == '\0') return OT_OK;
  *note = ot_executor_read_algorithms(ot_runtime_executor(c->request.runtime), table, arena);
  return OT_OK;
}

// ---- begin ----

ot_status ot_memory_reserve(ot_memory_copies *c, int rank, ot_memory_slot slot[2]) {
  for (int i = 0; i < 2; i++) {
    char name[OT_MEMORY_NAME_BYTES];
    if (slot[i].map) continue;
    ot_memory_slot_name(rank, i, name);
    OT_TRY(ot_memory_slot_create(c->folder, name, ot_memory_slot_bytes(c->bytes[rank]), &slot[i]));
  }
  return OT_OK;
}

// Removes files that this rank owns: all, or those that no rank of its host keeps any more.
static ot_status remove_files(ot_memory_copies *c, bool all) {
  ot_disk_names names;
  OT_TRY(ot_disk_list(&c->arena, c->path, &names));
  for (int64_t i = 0; i < names.count; i++) {
    int rank, index;
    if (!ot_memory_slot_parse(names.name[i], &rank, &index)) continue;
    if (!ot_memory_owns(c, rank)) continue;
    if (all || !ot_memory_is_kept(c, rank)) (void)unlinkat(c->folder, names.name[i], 0);
  }
  return OT_OK;
}

// Opens what there is already of the files of `rank`; returns the bytes that are missing.
static int64_t open_files(ot_memory_copies *c, int rank, ot_memory_slot slot[2]) {
  const int64_t bytes = ot_memory_slot_bytes(c->bytes[rank]);
  int64_t missing = 0;
  for (int i = 0; i < 2; i++) {
    char name[OT_MEMORY_NAME_BYTES];
    ot_memory_slot_name(rank, i, name);
    if (!slot[i].map) ot_memory_slot_open(c->folder, name, &slot[i]);
    if (slot[i].map && slot[i].bytes == bytes) continue;
    ot_memory_slot_close(&slot[i]);
    (void)unlinkat(c->folder, name, 0);
    missing += bytes;
  }
  return missing;
}

// The free bytes of the folder, limited by those of the host, which may have fewer than its file
// systems.
static int64_t free_bytes(const ot_memory_copies *c) {
  struct statvfs there;
  if (fstatvfs(c->folder, &there) != 0) return 0;
  const int64_t room = (int64_t)there.f_bavail * (int64_t)there.f_frsize;
  const int64_t available = ot_host_available_bytes();
  return available < room ? available : room;
}

// Every rank opens its files and removes others before any looks how much is free, and looks before
// any reserves memory.
static ot_status check_room(ot_memory_copies *c, char *note, bool *fits) {
  int64_t *const missing = ot_arena_array(&c->arena, c->size, sizeof *missing);
  int64_t mine = open_files(c, c->rank, c->slot), need = 0;
  for (int w = 0; w < c->num_replicas; w++)
    mine += open_files(c, c->replicas[w].rank, c->replicas[w].slot);
  OT_TRY(ot_world_allgather(c->request.world, mine, missing));
  for (int rank = 0; rank < c->size; rank++)
    if (c->machine[rank] == c->machine[c->rank]) need += missing[rank];
  const int64_t there = free_bytes(c);
  if (need > there) {
    ot_comm *const comm = ot_world_comm(c->request.world);
    ot_text_format(note, OT_MEMORY_NOTE_BYTES,
                   "the copies of %d rank%s need %s in %s%s%s, where %s are free", c->local_size,
                   ot_text_plural(c->local_size, "s"), ot_figure_bytes(&c->arena, need),
                   c->request.run->checkpoint.memory_path, comm ? " on " : "",
                   comm ? ot_comm_host(comm) : "", ot_figure_bytes(&c->arena, there));
  }
  return ot_memory_all(c, need <= there, fits);
}

static ot_status reserve_all(ot_memory_copies *c) {
  OT_TRY(ot_memory_reserve(c, c->rank, c->slot));
  for (int w = 0; w < c->num_replicas; w++)
    OT_TRY(ot_memory_reserve(c, c->replicas[w].rank, c->replicas[w].slot));
  for (int i = 0; i < 2; i++) ot_memory_slot_touch(&c->slot[i]);
  return OT_OK;
}

// Copies of another generation than the one that was loaded must never count again.
static void clear_others(ot_memory_copies *c, ot_memory_slot slot[2]) {
  ot_memory_head head;
  for (int i = 0; i < 2; i++) {
    const bool loaded = i == c->newest && ot_memory_slot_head(&slot[i], &head) &&
                        head.history == c->head.history && head.attempt == c->head.attempt &&
                        head.step == c->head.step;
    if (!loaded) ot_memory_slot_clear(&slot[i]);
  }
}

static ot_status share_names(ot_memory_copies *c, uint64_t history) {
  char text[OT_WORLD_TEXT] = "";
  unsigned long long names[2] = {history, 0};
  if (getrandom(&names[1], sizeof names[1], 0) != (ssize_t)sizeof names[1])
    names[1] = (unsigned long long)(ot_clock_unix_s() * 1e9);
  ot_text_format(text, sizeof text, "%llx %llx", names[0], names[1]);
  OT_TRY(ot_world_broadcast(c->request.world, text));
  (void)sscanf(text, "%llx %llx", &names[0], &names[1]);
  c->history = names[0];
  c->attempt = names[1];
  return OT_OK;
}

static ot_status begin(ot_memory_copies *c, char *note, bool *on) {
  OT_TRY(remove_files(c, false));
  OT_TRY(check_room(c, note, on));
  if (!*on) return OT_OK;
  const ot_status status = reserve_all(c);
  if (status != OT_OK) ot_text_format(note, OT_MEMORY_NOTE_BYTES, "%s", ot_fail_message());
  return ot_memory_all(c, status == OT_OK, on);
}

ot_status ot_memory_copies_begin(ot_memory_copies *c, uint64_t history, char *note, bool *on) {
  note[0] = '\0';
  *on = false;
  OT_TRY(share_names(c, history));
  OT_TRY(begin(c, note, on));
  if (!*on) OT_TRY(ot_memory_share_text(c, note, OT_MEMORY_NOTE_BYTES));
  if (!*on) return OT_OK;
  clear_others(c, c->slot);
  for (int w = 0; w < c->num_replicas; w++) clear_others(c, c->replicas[w].slot);
  return OT_OK;
}

ot_status ot_memory_copies_turn(ot_memory_copies *c, uint64_t history) {
  join(c);
  return share_names(c, history);
}

// ---- copies ----

static ot_status close_copy(ot_memory_copies *c) {
  ot_memory_slot *const slot = &c->slot[c->newest];
  OT_TRY(ot_memory_slot_hash(slot, &c->head, c->head.hash));
  ot_memory_slot_seal(slot, &c->head);
  return ot_memory_exchange(c, c->newest);
}

// A failure to send is one of the ranks, which the steps meet, too.
static void *run_thread(void *context) {
  ot_memory_copies *const c = context;
  ot_comm *const comm = ot_world_comm(c->request.world);
  (void)close_copy(c);
  c->account.seconds += ot_clock_s() - c->take_s;
  if (comm) ot_comm_add_thread(comm, false);
  atomic_store(&c->running, false);
  return NULL;
}

// Appends `text` with its zero to `bytes` bytes of texts at `to`; "" if it is null or too long.
static int64_t append_text(char *to, int64_t bytes, const char *text) {
  const bool fits = text && bytes + ot_text_length(text) + 3 < OT_MEMORY_TEXT_BYTES;
  const char *const written = fits ? text : "";
  const int64_t length = ot_text_length(written) + 1;
  memcpy(to + bytes, written, (size_t)length);
  return bytes + length;
}

// Settings, the record of the data, and, on a GPU, the algorithms of products: three texts with
// their zeros.
static int64_t write_text(ot_memory_copies *c, const ot_position *position) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char *const to = ot_memory_slot_text(&c->slot[c->newest]);
  const char *const record = ot_data_record_print(c->request.loader, position->next_sample, &arena);
  int64_t bytes = append_text(to, 0, c->request.config);
  bytes = append_text(to, bytes, record);
  bytes = append_text(
      to, bytes, ot_executor_print_algorithms(ot_runtime_executor(c->request.runtime), &arena));
  ot_heap_release(&heap);
  return bytes;
}

void ot_memory_copies_take(ot_memory_copies *c, const ot_position *position) {
  ot_comm *const comm = ot_world_comm(c->request.world);
  join(c);
  c->take_s = ot_clock_s();
  c->newest = c->newest == 0;
  ot_memory_slot_clear(&c->slot[c->newest]);
  memset(&c->head, 0, sizeof c->head);
  c->head.history = c->history;
  c->head.attempt = c->attempt;
  c->head.layout = c->layout;
  c->head.rank = c->rank;
  c->head.ranks = c->size;
  c->head.step = position->step;
  c->head.next_sample = position->next_sample;
  c->head.tokens = position->tokens;
  c->head.bytes = each_segment(c, copy_out);
  c->head.text_bytes = write_text(c, position);
  c->account.blocked_s += ot_clock_s() - c->take_s;
  c->account.count++;
  c->account.bytes = c->head.bytes;
  atomic_store(&c->running, true);
  if (comm) ot_comm_add_thread(comm, true);
  c->joined = pthread_create(&c->thread, NULL, run_thread, c) != 0;
  if (c->joined)
    run_thread(c);
  else
    (void)pthread_setname_np(c->thread, OT_MEMORY_THREAD);
}

bool ot_memory_copies_busy(const ot_memory_copies *c) { return atomic_load(&c->running); }

ot_memory_account ot_memory_copies_account(const ot_memory_copies *c) { return c->account; }

ot_status ot_memory_copies_remove(ot_memory_copies *c) {
  join(c);
  OT_TRY(ot_world_agree(c->request.world, remove_files(c, true)));
  (void)rmdir(c->path);
  return OT_OK;
}
