// SPDX-License-Identifier: Apache-2.0
// gemm.table of a checkpoint, with a library in place of cuBLASLt that refuses some algorithms and
// keeps what it is given, for the sanitizers.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fuzz/fuzz.h"
#include "kernels/cuda/gemm_plan.h"

enum { REFUSED = 13 };

static int describe(ot_lt_description **description, int compute, int scale) {
  fuzz_require(compute >= 0 && scale >= 0, "types are enumerators");
  *description = malloc(1);
  return 0;
}

static int set_description(ot_lt_description *description, int attribute, const void *value,
                           size_t bytes) {
  (void)description;
  (void)attribute;
  fuzz_require(value && bytes > 0, "an attribute has a value");
  return 0;
}

static int forget(ot_lt_description *description) {
  free(description);
  return 0;
}

static int lay_out(ot_lt_layout **layout, int type, uint64_t rows, uint64_t columns,
                   int64_t stride) {
  fuzz_require(type >= 0 && rows <= INT64_MAX && columns <= INT64_MAX && stride >= 0,
               "sizes are not negative");
  *layout = malloc(1);
  return 0;
}

static int free_layout(ot_lt_layout *layout) {
  free(layout);
  return 0;
}

static int prefer(ot_lt_preference **preference) {
  *preference = NULL;
  return OT_LT_NOT_SUPPORTED;
}

static int check(ot_lt_handle *handle, ot_lt_description *description, ot_lt_layout *a,
                 ot_lt_layout *b, ot_lt_layout *c, ot_lt_layout *d,
                 const ot_lt_algorithm *algorithm, ot_lt_choice *result) {
  (void)handle;
  fuzz_require(description && a && b && c && d, "a plan has all of its layouts");
  result->workspace_bytes = algorithm->words[1];
  return algorithm->words[0] == REFUSED ? OT_LT_NOT_SUPPORTED : 0;
}

static ot_cuda_matmul create(void *workspace) {
  return (ot_cuda_matmul){.api = {.describe = describe,
                                  .set_description = set_description,
                                  .forget = forget,
                                  .lay_out = lay_out,
                                  .free_layout = free_layout,
                                  .prefer = prefer,
                                  .check = check},
                          .workspace = workspace,
                          .device = "a GPU"};
}

static void destroy(ot_cuda_matmul *matmul) {
  while (matmul->plans) {
    ot_gemm_plan *const plan = matmul->plans;
    matmul->plans = plan->next;
    ot_gemm_plan_destroy(&matmul->api, plan);
  }
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  char workspace[OT_GEMM_ALIGNMENT + 1];
  ot_cuda_matmul matmul = create(workspace), again = create(workspace);
  const char *const text = ot_arena_text(arena, (const char *)data, (int64_t)size);
  const char *const note = ot_cuda_matmul_read(&matmul, text, arena);
  const char *const printed = ot_cuda_matmul_print(&matmul, arena);
  const bool same = !note && !ot_cuda_matmul_read(&again, printed, arena) &&
                    ot_text_equal(ot_cuda_matmul_print(&again, arena), printed);
  destroy(&matmul);
  destroy(&again);
  fuzz_require(note || same, "what is printed reads back as the same");
  if (!note) return OT_OK;
  for (const char *at = note; *at != '\0'; at++)
    fuzz_require((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t', "a note is printable");
  return ot_fail(OT_USAGE, "%s", note);
}
