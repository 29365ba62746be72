// SPDX-License-Identifier: Apache-2.0
// Which copies may be loaded. Every rank reads the files that it owns (ot_memory_owns): of the
// ranks of its host its own, and a part of those of other hosts' ranks. All ranks draw the same
// conclusions from what they tell each other.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "state/memory_parts.h"

// A complete copy in a file of this host that this rank owns.
typedef struct copy_file {
  int index;  // of the rank's two files
  ot_memory_slot slot;
  ot_memory_head head;
} copy_file;

typedef struct search {
  ot_memory_copies *c;
  ot_memory_search wanted;
  int count;
  copy_file *files;       // [count]
  int64_t step, attempt;  // the generation that is looked at
  bool *has;              // [size] of that generation, with the bytes that were written
  int64_t *source;        // [size] rank that has the copy of a rank; -1: none
  char *note;             // [OT_MEMORY_NOTE_BYTES] why a newer generation is not used
} search;

// ---- files ----

static bool is_wanted(search *s, const ot_memory_head *head) {
  if (head->history != s->wanted.history || head->step < s->wanted.disk_step) return false;
  if (head->layout != s->c->layout) {
    ot_text_format(s->note, OT_MEMORY_NOTE_BYTES,
                   "the copies in memory of step %lld are of another layout, on %lld rank%s: they "
                   "cannot be used here",
                   (long long)head->step, (long long)head->ranks, ot_text_plural(head->ranks, "s"));
    return false;
  }
  return head->rank < s->c->size && head->bytes == s->c->bytes[head->rank];
}

static ot_status list_files(search *s) {
  ot_memory_copies *const c = s->c;
  ot_disk_names names;
  OT_TRY(ot_disk_list(&c->arena, c->path, &names));
  s->files = ot_arena_array(&c->arena, names.count + 1, sizeof *s->files);
  for (int64_t i = 0; i < names.count; i++) {
    copy_file file = {0};
    int rank;
    if (!ot_memory_slot_parse(names.name[i], &rank, &file.index)) continue;
    if (!ot_memory_owns(c, rank)) continue;
    ot_memory_slot_open(c->folder, names.name[i], &file.slot);
    const bool sealed = ot_memory_slot_head(&file.slot, &file.head);
    if (sealed && file.head.rank == rank && is_wanted(s, &file.head))
      s->files[s->count++] = file;
    else
      ot_memory_slot_close(&file.slot);
  }
  return OT_OK;
}

static bool is_of(const search *s, const copy_file *file) {
  return file->head.step == s->step && (int64_t)file->head.attempt == s->attempt;
}

static void check_file(search *s, const copy_file *file) {
  char hex[OT_CONTENT_HASH_BYTES] = "";
  const int rank = (int)file->head.rank;
  if (rank == s->c->rank) ot_memory_slot_touch(&file->slot);
  if (ot_memory_slot_hash(&file->slot, &file->head, hex) == OT_OK &&
      ot_text_equal(hex, file->head.hash)) {
    s->has[rank] = true;
    return;
  }
  ot_text_format(s->note, OT_MEMORY_NOTE_BYTES,
                 "the copy in memory of step %lld of rank %d is damaged (%s/rank-%06d.%d)",
                 (long long)s->step, rank, s->c->path, rank, file->index);
}

// ---- generations ----

// The newest one before s->step, s->attempt that any rank has a copy of; *found: there is one.
static ot_status next_generation(search *s, bool *found) {
  ot_memory_copies *const c = s->c;
  int64_t step = -1, attempt = INT64_MIN;
  int64_t *const steps = ot_arena_array(&c->arena, c->size, sizeof *steps);
  int64_t *const attempts = ot_arena_array(&c->arena, c->size, sizeof *attempts);
  for (int i = 0; i < s->count; i++) {
    const ot_memory_head *const head = &s->files[i].head;
    const int64_t named = (int64_t)head->attempt;
    const bool before = head->step < s->step || (head->step == s->step && named < s->attempt);
    if (!before || head->step < step || (head->step == step && named < attempt)) continue;
    step = head->step;
    attempt = named;
  }
  OT_TRY(ot_world_allgather(c->request.world, step, steps));
  OT_TRY(ot_world_allgather(c->request.world, attempt, attempts));
  s->step = -1;
  for (int rank = 0; rank < c->size; rank++) {
    const bool better = steps[rank] > s->step ||
                        (steps[rank] == s->step && steps[rank] >= 0 && attempts[rank] > s->attempt);
    if (!better) continue;
    s->step = steps[rank];
    s->attempt = attempts[rank];
  }
  *found = s->step >= 0;
  return OT_OK;
}

// Looks at the own copy, or at those of others.
static void check_files(search *s, bool own) {
  for (int i = 0; i < s->count; i++) {
    const bool is_own = s->files[i].head.rank == s->c->rank;
    if (is_own == own && is_of(s, &s->files[i])) check_file(s, &s->files[i]);
  }
}

// The ranks that have no copy of their own take that of the lowest rank that has one.
static ot_status find_others(search *s) {
  ot_memory_copies *const c = s->c;
  const int64_t words = (c->size + 63) / 64;
  uint64_t *const mine = ot_arena_array(&c->arena, words, sizeof *mine);
  uint64_t *const all = ot_arena_array(&c->arena, words * c->size, sizeof *all);
  check_files(s, false);
  for (int rank = 0; rank < c->size; rank++)
    if (s->has[rank]) mine[rank / 64] |= (uint64_t)1 << (rank % 64);
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .group = OT_GROUP_WORLD,
                             .send = mine,
                             .receive = all,
                             .count = words,
                             .dtype = OT_I64,
                             .sum = OT_I64,
                             .name = "the copies in memory"};
  if (c->size > 1) OT_TRY(ot_comm_run(ot_world_comm(c->request.world), &call));
  for (int rank = 0; rank < c->size; rank++) {
    for (int from = 0; s->source[rank] < 0 && from < c->size; from++)
      if (all[from * words + rank / 64] >> (rank % 64) & 1) s->source[rank] = from;
  }
  return OT_OK;
}

static ot_status find_sources(search *s, bool *complete) {
  ot_memory_copies *const c = s->c;
  memset(s->has, 0, (size_t)c->size * sizeof *s->has);
  check_files(s, true);
  OT_TRY(ot_world_allgather(c->request.world, s->has[c->rank], s->source));
  *complete = true;
  for (int rank = 0; rank < c->size; rank++) {
    s->source[rank] = s->source[rank] ? rank : -1;
    *complete &= s->source[rank] == rank;
  }
  if (*complete) return OT_OK;
  if (c->hosts > 1) OT_TRY(find_others(s));
  OT_TRY(ot_memory_share_text(c, s->note, OT_MEMORY_NOTE_BYTES));
  *complete = true;
  for (int rank = 0; rank < c->size; rank++) {
    if (s->source[rank] >= 0) continue;
    *complete = false;
    if (s->note[0]) continue;
    ot_text_format(s->note, OT_MEMORY_NOTE_BYTES,
                   "there is no copy in memory of step %lld of rank %d", (long long)s->step, rank);
  }
  return OT_OK;
}

static const copy_file *file_of(const search *s, int rank) {
  for (int i = 0; i < s->count; i++)
    if (s->files[i].head.rank == rank && is_of(s, &s->files[i])) return &s->files[i];
  return NULL;
}

// The file of the generation is the same of the two on all ranks.
static ot_status agree_on_index(search *s, int *index) {
  ot_memory_copies *const c = s->c;
  int64_t *const all = ot_arena_array(&c->arena, c->size, sizeof *all);
  int64_t mine = -1;
  for (int i = 0; i < s->count; i++)
    if (is_of(s, &s->files[i])) mine = s->files[i].index;
  OT_TRY(ot_world_allgather(c->request.world, mine, all));
  for (int rank = c->size - 1; rank >= 0; rank--)
    if (all[rank] >= 0) *index = (int)all[rank];
  return OT_OK;
}

// In the order of the receivers, so that of the transfers under way the first can always proceed.
static ot_status bring(search *s, int index) {
  ot_memory_copies *const c = s->c;
  for (int rank = 0; rank < c->size; rank++) {
    const int from = (int)s->source[rank];
    if (from == rank) continue;
    if (c->rank == from) OT_TRY(ot_memory_send(c, &file_of(s, rank)->slot, rank));
    if (c->rank == rank) OT_TRY(ot_memory_receive(c, &c->slot[index], from));
  }
  return OT_OK;
}

// The mapping of the own file is that of later copies.
static void keep_own_file(search *s, int index) {
  for (int i = 0; i < s->count; i++) {
    copy_file *const file = &s->files[i];
    if (file->head.rank != s->c->rank || file->index != index || s->c->slot[index].map) continue;
    s->c->slot[index] = file->slot;
    file->slot = (ot_memory_slot){0};
  }
}

// After this the generation is in the ranks' own files; *loadable: with the bytes written.
static ot_status adopt(search *s, bool *loadable) {
  ot_memory_copies *const c = s->c;
  char hex[OT_CONTENT_HASH_BYTES] = "";
  int index = 0;
  OT_TRY(agree_on_index(s, &index));
  const bool absent = s->source[c->rank] != c->rank;
  const ot_status reserved = absent ? ot_memory_reserve(c, c->rank, c->slot) : OT_OK;
  if (reserved != OT_OK) ot_text_format(s->note, OT_MEMORY_NOTE_BYTES, "%s", ot_fail_message());
  OT_TRY(ot_memory_all(c, reserved == OT_OK, loadable));
  if (!*loadable) return OT_OK;
  OT_TRY(bring(s, index));
  keep_own_file(s, index);
  bool right = ot_memory_slot_head(&c->slot[index], &c->head) && c->head.step == s->step;
  if (absent && right)
    right = ot_memory_slot_hash(&c->slot[index], &c->head, hex) == OT_OK &&
            ot_text_equal(hex, c->head.hash);
  c->newest = index;
  return ot_memory_all(c, right, loadable);
}

static ot_status find_loadable(search *s, bool *found) {
  bool more = true;
  *found = false;
  s->step = INT64_MAX;
  while (more && !*found) {
    bool complete = false;
    OT_TRY(next_generation(s, &more));
    if (more) OT_TRY(find_sources(s, &complete));
    if (complete) OT_TRY(adopt(s, found));
  }
  if (!*found) s->c->newest = -1;
  return ot_memory_share_text(s->c, s->note, OT_MEMORY_NOTE_BYTES);
}

static ot_status share_search(ot_memory_copies *c, ot_memory_search *wanted) {
  char text[OT_WORLD_TEXT] = "";
  unsigned long long history = wanted->history;
  long long disk_step = wanted->disk_step;
  ot_text_format(text, sizeof text, "%llx %lld", history, disk_step);
  OT_TRY(ot_world_broadcast(c->request.world, text));
  (void)sscanf(text, "%llx %lld", &history, &disk_step);
  *wanted = (ot_memory_search){history, disk_step};
  return OT_OK;
}

ot_status ot_memory_copies_find(ot_memory_copies *c, const ot_memory_search *wanted,
                                ot_memory_found *found) {
  *found = (ot_memory_found){0};
  search s = {.c = c, .wanted = *wanted, .note = found->note};
  OT_TRY(share_search(c, &s.wanted));
  s.has = ot_arena_array(&c->arena, c->size, sizeof *s.has);
  s.source = ot_arena_array(&c->arena, c->size, sizeof *s.source);
  OT_TRY(ot_world_agree(c->request.world, s.wanted.history ? list_files(&s) : OT_OK));
  const ot_status status = find_loadable(&s, &found->found);
  for (int i = 0; i < s.count; i++) ot_memory_slot_close(&s.files[i].slot);
  if (status != OT_OK || !found->found) return status;
  found->disk_step = s.wanted.disk_step;
  found->position = (ot_position){c->head.step, c->head.next_sample, c->head.tokens};
  char *const text = ot_memory_slot_text(&c->slot[c->newest]);
  text[c->head.text_bytes] = '\0';
  found->config = text;
  found->record = text + ot_text_length(text) + 1;
  return OT_OK;
}
