// SPDX-License-Identifier: Apache-2.0
// Files are opened relative to the folder's descriptor. A process that is killed leaves what it had
// stored; the fences keep the compiler and the processor from moving the seal.
#include "state/memory_slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"

static const char magic[] = "orthant state copy 2";
enum { RANK_DIGITS = 6 };

ot_status ot_memory_folder_open(const char *path, int *folder) {
  struct stat found;
  *folder = -1;
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return ot_disk_fail("create directory", path, errno);
  const int opened = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return ot_disk_fail("open", path, errno);
  const bool own = fstat(opened, &found) == 0 && found.st_uid == geteuid() &&
                   (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (own) {
    *folder = opened;
    return OT_OK;
  }
  close(opened);
  return ot_fail(OT_ENVIRONMENT, "%s belongs to another user, or others may enter it", path);
}

static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t ot_memory_slot_bytes(int64_t bytes) {
  return OT_MEMORY_HEAD_BYTES + padded(bytes) + OT_MEMORY_TEXT_BYTES;
}

void ot_memory_slot_name(int rank, int index, char name[OT_MEMORY_NAME_BYTES]) {
  ot_text_format(name, OT_MEMORY_NAME_BYTES, "rank-%0*d.%d", RANK_DIGITS, rank, index);
}

bool ot_memory_slot_parse(const char *name, int *rank, int *index) {
  char again[OT_MEMORY_NAME_BYTES];
  if (sscanf(name, "rank-%9d.%1d", rank, index) != 2 || *rank < 0) return false;
  ot_memory_slot_name(*rank, *index, again);
  return (*index == 0 || *index == 1) && ot_text_equal(name, again);
}

static bool is_own_file(int file, struct stat *found) {
  return fstat(file, found) == 0 && S_ISREG(found->st_mode) && found->st_uid == geteuid() &&
         found->st_nlink == 1 && (found->st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

static bool map(int file, int64_t bytes, ot_memory_slot *slot) {
  void *const at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  *slot = (ot_memory_slot){at == MAP_FAILED ? NULL : at, bytes};
  return slot->map != NULL;
}

void ot_memory_slot_open(int folder, const char *name, ot_memory_slot *slot) {
  struct stat found;
  *slot = (ot_memory_slot){0};
  const int file = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  if (is_own_file(file, &found) && found.st_size >= OT_MEMORY_HEAD_BYTES)
    (void)map(file, found.st_size, slot);
  close(file);
}

// Memory is reserved now: later a page without room would be a SIGBUS.
static ot_status reserve(int file, const char *name, int64_t bytes, ot_memory_slot *slot) {
  const int error = posix_fallocate(file, 0, bytes);
  if (error != 0) return ot_disk_fail("reserve memory", name, error);
  return map(file, bytes, slot) ? OT_OK : ot_disk_fail("map", name, errno);
}

ot_status ot_memory_slot_create(int folder, const char *name, int64_t bytes, ot_memory_slot *slot) {
  ot_memory_slot_open(folder, name, slot);
  if (slot->map && slot->bytes == bytes) return OT_OK;
  ot_memory_slot_close(slot);
  if (unlinkat(folder, name, 0) != 0 && errno != ENOENT) return ot_disk_fail("remove", name, errno);
  const int file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return ot_disk_fail("create", name, errno);
  const ot_status status = reserve(file, name, bytes, slot);
  close(file);
  if (status != OT_OK) (void)unlinkat(folder, name, 0);
  return status;
}

void ot_memory_slot_touch(const ot_memory_slot *slot) {
  (void)madvise(slot->map, (size_t)slot->bytes, MADV_POPULATE_WRITE);
}

void ot_memory_slot_close(ot_memory_slot *slot) {
  if (slot->map) munmap(slot->map, (size_t)slot->bytes);
  *slot = (ot_memory_slot){0};
}

// ---- the head ----

static uint64_t seal_of(const ot_memory_head *head) {
  return ot_content_hash_block(head, offsetof(ot_memory_head, seal));
}

bool ot_memory_slot_head(const ot_memory_slot *slot, ot_memory_head *head) {
  if (!slot->map) return false;
  memcpy(head, slot->map, sizeof *head);
  return memcmp(head->magic, magic, sizeof magic) == 0 && head->seal == seal_of(head) &&
         head->bytes >= 0 && head->bytes < slot->bytes &&
         ot_memory_slot_bytes(head->bytes) == slot->bytes && head->text_bytes >= 0 &&
         head->text_bytes < OT_MEMORY_TEXT_BYTES;
}

char *ot_memory_slot_state(const ot_memory_slot *slot) { return slot->map + OT_MEMORY_HEAD_BYTES; }

char *ot_memory_slot_text(const ot_memory_slot *slot) {
  return slot->map + slot->bytes - OT_MEMORY_TEXT_BYTES;
}

void ot_memory_slot_clear(ot_memory_slot *slot) {
  memset(slot->map, 0, sizeof(ot_memory_head));
  atomic_thread_fence(memory_order_seq_cst);
}

ot_status ot_memory_slot_hash(const ot_memory_slot *slot, const ot_memory_head *head,
                              char hex[OT_CONTENT_HASH_BYTES]) {
  ot_content_hash *hash = NULL;
  OT_TRY(ot_content_hash_create(&hash));
  ot_content_hash_update(hash, ot_memory_slot_state(slot), head->bytes);
  ot_content_hash_update(hash, ot_memory_slot_text(slot), head->text_bytes);
  ot_content_hash_print(hash, hex);
  ot_content_hash_destroy(&hash);
  return OT_OK;
}

void ot_memory_slot_put(ot_memory_slot *slot, const ot_memory_head *head) {
  atomic_thread_fence(memory_order_seq_cst);
  memcpy(slot->map, head, offsetof(ot_memory_head, seal));
  atomic_thread_fence(memory_order_seq_cst);
  memcpy(slot->map + offsetof(ot_memory_head, seal), &head->seal, sizeof head->seal);
}

void ot_memory_slot_seal(ot_memory_slot *slot, ot_memory_head *head) {
  memset(head->magic, 0, sizeof head->magic);
  memcpy(head->magic, magic, sizeof magic);
  head->seal = seal_of(head);
  ot_memory_slot_put(slot, head);
}
