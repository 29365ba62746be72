// SPDX-License-Identifier: Apache-2.0
// Storage of the pre-token cache.
#include "tokenizer/pre_token_cache.h"

#include <stdlib.h>

ot_status ot_pre_token_cache_create(ot_pre_token_cache **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory (piece cache)");
  return OT_OK;
}

void ot_pre_token_cache_destroy(ot_pre_token_cache **cache) {
  free(*cache);
  *cache = NULL;
}
