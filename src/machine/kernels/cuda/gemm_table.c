// SPDX-License-Identifier: Apache-2.0
// The algorithms of plans as text: a line for the library and the GPU that they are for, then a
// line for each plan, its key and the words of its algorithm.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "kernels/cuda/gemm_plan.h"

// Plans are a list that each row searches.
enum { ROWS_MAX = 1 << 14 };

static const char title[] = "orthant gemm.table 1\n";
static const char own_kernel[] = " own";

typedef struct row {
  ot_gemm_key key;
  bool own;  // by the kernel of our own: the library has no algorithm
  ot_lt_algorithm algorithm;
} row;

static const char *place_of(const ot_cuda_matmul *m, ot_arena *arena) {
  const size_t version = m->api.library ? m->api.version() : 0;
  return ot_arena_format(arena, "cuBLASLt %zu on %s", version, m->device);
}

// ---- print ----

static void print_plan(const ot_gemm_plan *p, ot_text_builder *text) {
  for (int i = 0; i < OT_GEMM_FIELDS; i++) {
    ot_text_appendf(text, "%s%lld", i > 0 ? " " : "", (long long)p->key.of[i]);
  }
  ot_text_put(text, " :");
  if (p->failure != 0) ot_text_put(text, own_kernel);
  for (int i = 0; i < OT_COUNT(p->algorithm.words) && p->failure == 0; i++) {
    ot_text_appendf(text, " %llu", (unsigned long long)p->algorithm.words[i]);
  }
  ot_text_put(text, "\n");
}

const char *ot_cuda_matmul_print(const ot_cuda_matmul *m, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "%s%s\n", title, place_of(m, arena));
  for (const ot_gemm_plan *p = m->plans; p; p = p->next) print_plan(p, &text);
  return ot_text_builder_text(&text);
}

void ot_cuda_matmul_refusals(const ot_cuda_matmul *m, int *own, int *replaced) {
  *own = 0;
  for (const ot_gemm_plan *p = m->plans; p; p = p->next) *own += p->failure != 0;
  *replaced = m->replaced;
}

// ---- read ----

// Each moves *at past what it reads; false if the text is another.
static bool read_text(const char **at, const char *text) {
  if (!ot_text_starts_with(*at, text)) return false;
  *at += ot_text_length(text);
  return true;
}

static bool read_number(const char **at, uint64_t *number) {
  char *end = NULL;
  const char *const digits = **at == ' ' ? *at + 1 : *at;
  if (*digits < '0' || *digits > '9') return false;
  *number = strtoull(digits, &end, 10);
  *at = end;
  return true;
}

// The largest value of a field: what the library is called with must be a product; whether it has
// it, it says itself.
static uint64_t most_of(int field) {
  switch (field) {
    case OT_GEMM_OPERAND_TYPE:
    case OT_GEMM_RESULT_TYPE:
      return OT_LT_R_16BF;
    case OT_GEMM_COMPUTE:
      return OT_LT_COMPUTE_64F;
    case OT_GEMM_A_TRANSPOSED:
    case OT_GEMM_B_TRANSPOSED:
      return 1;
    case OT_GEMM_ADDEND:
      return 2;
    default:
      return field < OT_GEMM_A_ALIGNMENT ? UINT64_C(1) << 53 : OT_GEMM_ALIGNMENT;
  }
}

static bool read_row(const char **at, row *r) {
  uint64_t number = 0;
  memset(r, 0, sizeof *r);
  for (int i = 0; i < OT_GEMM_FIELDS; i++) {
    if (!read_number(at, &number) || number > most_of(i)) return false;
    r->key.of[i] = (int64_t)number;
  }
  if (!read_text(at, " :")) return false;
  r->own = read_text(at, own_kernel);
  for (int i = 0; i < OT_COUNT(r->algorithm.words) && !r->own; i++) {
    if (!read_number(at, &r->algorithm.words[i])) return false;
  }
  return read_text(at, "\n");
}

// False if the product has another algorithm than that of the row.
static bool use_row(ot_cuda_matmul *m, const row *r) {
  ot_gemm_plan *p = ot_gemm_plan_find(m, &r->key);
  if (!p) p = ot_gemm_plan_create(m, &r->key);
  if (!p) return false;
  if (r->own) p->failure = OT_LT_NOT_SUPPORTED;
  if (r->own || ot_gemm_plan_use(m, p, &r->algorithm)) return true;
  ot_gemm_plan_choose(m, p);
  return false;
}

static const char *note_of(ot_arena *arena, const char *reason) {
  char *const note =
      ot_arena_format(arena, "note: matrix products may have other bits than before: %s", reason);
  ot_text_make_printable(note);
  return note;
}

static const char *read_rows(ot_cuda_matmul *m, const char *at, ot_arena *arena) {
  int rows = 0, refused = 0;
  for (; *at != '\0'; rows++) {
    row r;
    if (rows == ROWS_MAX || !read_row(&at, &r))
      return note_of(arena, "the checkpoint's gemm.table cannot be read");
    if (!use_row(m, &r)) refused++;
  }
  m->replaced += refused;
  if (refused == 0) return NULL;
  return note_of(arena, ot_arena_format(arena,
                                        "cuBLASLt refuses %d of %d algorithms of the "
                                        "checkpoint's gemm.table",
                                        refused, rows));
}

const char *ot_cuda_matmul_read(ot_cuda_matmul *m, const char *text, ot_arena *arena) {
  const char *const place = place_of(m, arena);
  const char *at = text;
  if (!read_text(&at, title)) return note_of(arena, "the checkpoint's gemm.table cannot be read");
  const char *const end = ot_text_find(at, "\n");
  const char *const stated = ot_arena_text(arena, at, end ? end - at : ot_text_length(at));
  if (!end || !ot_text_equal(stated, place)) {
    for (const char *line = end; line && line[1] != '\0'; line = ot_text_find(line + 1, "\n"))
      m->replaced++;
    return note_of(arena,
                   ot_arena_format(arena, "they were by %s, and are now by %s", stated, place));
  }
  return read_rows(m, end + 1, arena);
}
