// SPDX-License-Identifier: Apache-2.0
// Splits files into blocks. Text read beyond the end of a block is kept in `rest` and starts the
// next one.
#include "data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "data/text_file.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/heap.h"

// ---- files: a recursive walk in order of names ----

typedef struct file {
  const char *path;
  bool given;  // by name, not found in a folder
} file;

typedef struct file_list {
  file *files;  // [count]
  int64_t count, capacity;
} file_list;

static void add_file(file_list *list, file added, ot_arena *arena) {
  list->files =
      ot_arena_grow(arena, list->files, list->count, &list->capacity, sizeof *list->files);
  list->files[list->count++] = added;
}

// Links could form a cycle; no real tree is this deep.
enum { MAX_DEPTH = 64 };

static int compare_names(const void *a, const void *b) {
  return strcmp(((const file *)a)->path, ((const file *)b)->path);
}

static ot_status read_names(const char *path, file_list *names, ot_arena *arena) {
  DIR *const directory = opendir(path);
  if (!directory) return ot_disk_fail("read directory", path, errno);
  errno = 0;
  for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    add_file(names, (file){.path = ot_arena_format(arena, "%s", entry->d_name)}, arena);
  }
  const int error = errno;
  closedir(directory);
  if (error) return ot_disk_fail("read directory", path, error);
  if (names->count > 0) {
    qsort(names->files, (size_t)names->count, sizeof *names->files, compare_names);
  }
  return OT_OK;
}

// Appends the file `path`, or every regular file below the directory `path` in byte order of names,
// recursively; names that begin with a dot are skipped there. Links are followed; a directory that
// contains itself is an error.
static ot_status add_files(file_list *list, const char *path, int depth, ot_arena *arena) {
  struct stat about;
  if (stat(path, &about) != 0) return ot_disk_fail("read", path, errno);
  if (!S_ISDIR(about.st_mode)) {
    // Below a directory, sockets and devices are skipped; a pipe given by name is read.
    if (depth > 0 && !S_ISREG(about.st_mode)) return OT_OK;
    add_file(list, (file){.path = path, .given = depth == 0}, arena);
    return OT_OK;
  }
  OT_CHECK(depth < MAX_DEPTH, OT_ENVIRONMENT, "directories are nested deeper than %d (%s)",
           MAX_DEPTH, path);
  file_list names = {0};
  OT_TRY(read_names(path, &names, arena));
  for (int64_t i = 0; i < names.count; i++) {
    OT_TRY(add_files(list, ot_disk_join(arena, path, names.files[i].path), depth + 1, arena));
  }
  return OT_OK;
}

static const int64_t document_bytes_max = INT64_C(1) << 32;

enum { WINDOW_BYTES = 1 << 20, LOOK_AHEAD_BYTES = 4096, READ_BYTES = 1 << 16 };

// To decide what a file is: of any, and of one whose first line is longer.
enum { HEAD_BYTES = 1 << 16, LONG_HEAD_BYTES = 1 << 22 };

struct ot_corpus {
  ot_heap heap;
  file_list files;
  const char *key;
  ot_corpus_format format;
  bool splittable;
  int64_t window_bytes;
  int64_t document_bytes_max;
  int64_t next_file;
  int64_t next_index;
  int64_t next_line;
  ot_text_file *file;  // null between files
  const char *path;    // of `file`
  bool lines;          // of JSON are in `file`; else text
  bool at_end;         // all of `file` is read
  ot_buffer rest;      // read from `file`, not yet in a block
  ot_corpus_skipped skipped;
};

static ot_status fill(ot_corpus *corpus, const ot_corpus_request *request) {
  ot_arena arena = ot_heap_arena_create(&corpus->heap);
  corpus->key = ot_arena_format(&arena, "%s", request->key ? request->key : "text");
  corpus->format = request->format;
  corpus->splittable = request->splittable;
  corpus->window_bytes = request->window_bytes > 0 ? request->window_bytes : WINDOW_BYTES;
  corpus->document_bytes_max =
      request->document_bytes_max > 0 ? request->document_bytes_max : document_bytes_max;
  for (int64_t i = 0; i < request->num_paths; i++) {
    OT_TRY(add_files(&corpus->files, ot_arena_format(&arena, "%s", request->paths[i]), 0, &arena));
  }
  OT_CHECK(corpus->files.count > 0, OT_ENVIRONMENT, "no files to read (%s)",
           request->num_paths > 0 ? request->paths[0] : "none given");
  return OT_OK;
}

ot_status ot_corpus_create(const ot_corpus_request *request, ot_corpus **out) {
  *out = NULL;
  ot_corpus *corpus = calloc(1, sizeof *corpus);
  OT_CHECK(corpus, OT_ENVIRONMENT, "out of memory (corpus)");
  const ot_status status = fill(corpus, request);
  if (status != OT_OK) ot_corpus_destroy(&corpus);
  *out = corpus;
  return status;
}

void ot_corpus_destroy(ot_corpus **corpus) {
  if (!*corpus) return;
  ot_text_file_destroy(&(*corpus)->file);
  ot_buffer_release(&(*corpus)->rest);
  ot_heap_release(&(*corpus)->heap);
  free(*corpus);
  *corpus = NULL;
}

void ot_corpus_block_release(ot_corpus_block *block) {
  ot_buffer_release(&block->text);
  free(block->ends);
  free(block->paths);
  *block = (ot_corpus_block){0};
}

int64_t ot_corpus_num_files(const ot_corpus *corpus) { return corpus->files.count; }

ot_corpus_skipped ot_corpus_skipped_files(const ot_corpus *corpus) { return corpus->skipped; }

const char *ot_corpus_key(const ot_corpus *corpus) { return corpus->key; }

// Reads the open file until `text` has `target` bytes or the file ends.
static ot_status read_up_to(ot_corpus *corpus, ot_buffer *text, int64_t target) {
  while (!corpus->at_end && text->length < target) {
    OT_TRY(ot_buffer_reserve(text, READ_BYTES));
    int64_t n = 0;
    OT_TRY(ot_text_file_read(corpus->file, text->data + text->length, READ_BYTES, &n));
    text->length += n;
    corpus->at_end = n == 0;
    OT_CHECK(text->length <= corpus->document_bytes_max, OT_ENVIRONMENT,
             "%s: a document or line of more than %lld bytes; split it", corpus->path,
             (long long)corpus->document_bytes_max);
  }
  return OT_OK;
}

// Decides what the open file is; one that is not text is closed.
static ot_status decide(ot_corpus *corpus, bool given) {
  ot_file_kind kind = OT_FILE_TEXT;
  corpus->lines = corpus->format == OT_CORPUS_AS_LINES;
  if (corpus->format != OT_CORPUS_AUTO) return OT_OK;
  ot_file_head head = {.path = corpus->path, .key = corpus->key};
  for (int64_t target = HEAD_BYTES; target <= LONG_HEAD_BYTES; target *= 2) {
    OT_TRY(read_up_to(corpus, &corpus->rest, target));
    head.text = (const char *)corpus->rest.data;
    head.length = corpus->rest.length;
    if (corpus->at_end || !ot_file_head_is_short(&head)) break;
  }
  OT_TRY(ot_file_kind_find(&head, &kind));
  corpus->lines = kind == OT_FILE_LINES;
  if (kind != OT_FILE_BINARY) return OT_OK;
  if (given) {
    ot_fail(OT_ENVIRONMENT, "%s is not text: it has many control characters", corpus->path);
    return ot_fail_hint(OT_ENVIRONMENT, "--format text takes its bytes as text");
  }
  if (corpus->skipped.count++ == 0) corpus->skipped.first = corpus->path;
  corpus->rest.length = 0;
  ot_text_file_destroy(&corpus->file);
  return OT_OK;
}

static ot_status open_next(ot_corpus *corpus) {
  const file *const next = &corpus->files.files[corpus->next_file++];
  corpus->path = next->path;
  corpus->at_end = false;
  corpus->next_line = 1;
  OT_TRY(ot_text_file_create(corpus->path, &corpus->file));
  return decide(corpus, next->given);
}

static ot_status grow_documents(ot_corpus_block *block) {
  if (block->num_documents < block->ends_capacity) return OT_OK;
  const int64_t larger = block->ends_capacity > 0 ? 2 * block->ends_capacity : 64;
  int64_t *const ends = realloc(block->ends, (size_t)larger * sizeof *ends);
  if (ends) block->ends = ends;
  const char **const paths = realloc(block->paths, (size_t)larger * sizeof *paths);
  if (paths) block->paths = paths;
  OT_CHECK(ends && paths, OT_ENVIRONMENT, "out of memory (%lld documents)", (long long)larger);
  block->ends_capacity = larger;
  return OT_OK;
}

static ot_status end_document(const ot_corpus *corpus, ot_corpus_block *block) {
  OT_TRY(grow_documents(block));
  block->paths[block->num_documents] = corpus->path;
  block->ends[block->num_documents++] = block->text.length;
  return OT_OK;
}

static bool is_letter(uint8_t byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// `limit`, or the start of the UTF-8 character that it would split.
static int64_t before_character(const uint8_t *text, int64_t limit) {
  enum { MOST_FOLLOWING = 3 };
  for (int64_t i = limit; i >= limit - MOST_FOLLOWING; i--) {
    if ((text[i] & 0xC0) != 0x80) return i;
  }
  return limit;
}

// A position near the end of text[0..limit) where a pre-token probably starts, so that windows can
// be encoded separately: a space between letters, else a letter after a newline, else a character.
// It need not be right: the code that joins the windows checks.
static int64_t choose_cut(const uint8_t *text, int64_t limit) {
  int64_t after_newline = -1;
  for (int64_t i = limit - 2; i > limit / 2; i--) {
    if (text[i] == ' ' && is_letter(text[i - 1]) && is_letter(text[i + 1])) return i;
    if (after_newline < 0 && text[i - 1] == '\n' && is_letter(text[i])) after_newline = i;
  }
  return after_newline >= 0 ? after_newline : before_character(text, limit);
}

// The next window of a large document, starting with the text in `rest`.
static ot_status next_window(ot_corpus *corpus, ot_corpus_block *block) {
  block->kind = OT_CORPUS_WINDOW;
  block->path = corpus->path;
  OT_TRY(ot_buffer_append(&block->text, corpus->rest.data, corpus->rest.length));
  corpus->rest.length = 0;
  OT_TRY(read_up_to(corpus, &block->text, corpus->window_bytes + LOOK_AHEAD_BYTES));
  block->final = corpus->at_end;
  if (block->final) {
    block->stop = block->text.length;
    ot_text_file_destroy(&corpus->file);
    return OT_OK;
  }
  block->stop = choose_cut(block->text.data, corpus->window_bytes);
  return ot_buffer_append(&corpus->rest, block->text.data + block->stop,
                          block->text.length - block->stop);
}

// Adds the open file to a block of documents; `full` if it no longer fits.
static ot_status add_document(ot_corpus *corpus, ot_corpus_block *block, bool *full) {
  const int64_t start = block->text.length;
  const int64_t large =
      corpus->splittable ? corpus->window_bytes + LOOK_AHEAD_BYTES : INT64_MAX / 4;
  OT_TRY(ot_buffer_append(&block->text, corpus->rest.data, corpus->rest.length));
  corpus->rest.length = 0;
  OT_TRY(read_up_to(corpus, &block->text, start + large));
  if (corpus->at_end) {
    ot_text_file_destroy(&corpus->file);
    *full = block->text.length >= corpus->window_bytes;
    return end_document(corpus, block);
  }
  OT_TRY(ot_buffer_append(&corpus->rest, block->text.data + start, block->text.length - start));
  block->text.length = start;
  *full = true;
  return OT_OK;
}

static int64_t count_newlines(const ot_buffer *text) {
  int64_t count = 0;
  for (int64_t i = 0; i < text->length; i++) count += text->data[i] == '\n';
  return count;
}

static ot_status next_lines(ot_corpus *corpus, ot_corpus_block *block) {
  block->kind = OT_CORPUS_LINES;
  block->path = corpus->path;
  block->first_line = corpus->next_line;
  OT_TRY(ot_buffer_append(&block->text, corpus->rest.data, corpus->rest.length));
  corpus->rest.length = 0;
  const uint8_t *newline = NULL;
  for (int64_t target = corpus->window_bytes; !newline && !corpus->at_end; target *= 2) {
    OT_TRY(read_up_to(corpus, &block->text, target));
    newline =
        block->text.length > 0 ? memrchr(block->text.data, '\n', (size_t)block->text.length) : NULL;
  }
  if (corpus->at_end) {
    ot_text_file_destroy(&corpus->file);
    return OT_OK;
  }
  const int64_t whole = newline + 1 - block->text.data;
  OT_TRY(ot_buffer_append(&corpus->rest, newline + 1, block->text.length - whole));
  block->text.length = whole;
  corpus->next_line += count_newlines(&block->text);
  return OT_OK;
}

ot_status ot_corpus_next(ot_corpus *corpus, ot_corpus_block *block, bool *more) {
  block->kind = OT_CORPUS_DOCUMENTS;
  block->text.length = 0;
  block->num_documents = 0;
  block->stop = 0;
  block->final = false;
  block->index = corpus->next_index;
  for (bool full = false; !full;) {
    const bool between = corpus->file == NULL;
    if (between && corpus->next_file == corpus->files.count) break;
    if (between) OT_TRY(open_next(corpus));
    if (!corpus->file) continue;
    if (corpus->lines) {
      if (block->num_documents == 0) OT_TRY(next_lines(corpus, block));
      full = true;
    } else if (between) {
      OT_TRY(add_document(corpus, block, &full));
    } else {
      OT_TRY(next_window(corpus, block));
      full = true;
    }
  }
  *more = block->num_documents > 0 || block->kind != OT_CORPUS_DOCUMENTS;
  // A large document alone leaves an empty block: continue with its first window.
  if (!*more && corpus->file) return ot_corpus_next(corpus, block, more);
  corpus->next_index += *more;
  return OT_OK;
}

typedef struct line {
  const ot_corpus_block *block;
  int64_t number;
  const char *text;
  int64_t length;
} line;

static bool is_blank(const line *l) {
  for (int64_t i = 0; i < l->length; i++) {
    if (!strchr(" \t\r", l->text[i]) || l->text[i] == '\0') return false;
  }
  return true;
}

// A line that is no text: fails, or counts it.
static ot_status end_bad_line(ot_corpus_bad_lines *bad) {
  if (!bad) return OT_ENVIRONMENT;
  if (bad->count++ == 0) ot_text_format(bad->first, sizeof bad->first, "%s", ot_fail_message());
  return OT_OK;
}

static ot_status read_text(const line *l, const json_t *root, const ot_corpus_line_sink *to) {
  const json_t *const text = json_object_get(root, to->key);
  if (json_is_string(text)) {
    return to->sink(to->context, json_string_value(text), (int64_t)json_string_length(text));
  }
  ot_fail(OT_ENVIRONMENT, "%s:%lld: no text under the key \"%s\"", l->block->path,
          (long long)l->number, to->key);
  ot_fail_hint(OT_ENVIRONMENT,
               "--key names the key that holds the text; --skip-bad-lines N skips and counts up "
               "to N such lines");
  return end_bad_line(to->bad);
}

// Numbers are read as reals: an integer of any size under another key is no fault.
static ot_status read_line(const line *l, const ot_corpus_line_sink *to) {
  json_error_t error;
  const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
  json_t *const root = json_loadb(l->text, (size_t)l->length, flags, &error);
  if (!root) {
    ot_fail(OT_ENVIRONMENT, "%s:%lld:%d: not valid JSON: %s", l->block->path, (long long)l->number,
            error.column, error.text);
    ot_fail_hint(OT_ENVIRONMENT,
                 "--skip-bad-lines N skips and counts up to N such lines; --format text takes the "
                 "file as one text");
    return end_bad_line(to->bad);
  }
  const ot_status status = read_text(l, root, to);
  json_decref(root);
  return status;
}

ot_status ot_corpus_read_lines(const ot_corpus_block *block, const ot_corpus_line_sink *to) {
  line l = {.block = block, .number = block->first_line};
  for (int64_t at = 0; at < block->text.length; l.number++) {
    l.text = (const char *)block->text.data + at;
    const int64_t left = block->text.length - at;
    const char *const newline = memchr(l.text, '\n', (size_t)left);
    l.length = newline ? newline - l.text : left;
    at += l.length + 1;
    if (!is_blank(&l)) OT_TRY(read_line(&l, to));
  }
  return OT_OK;
}
