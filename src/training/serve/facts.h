// SPDX-License-Identifier: Apache-2.0
// The answers of a server that need no run of the model: tokens of a text and back, the model, its
// tokenizer, whether it works, and figures for Prometheus.
#pragma once

#include "serve/service.h"

typedef enum ot_fact {
  OT_FACT_TOKENIZE,
  OT_FACT_DETOKENIZE,
  OT_FACT_MODELS,
  OT_FACT_TOKENIZER,
  OT_FACT_TEACHER,
  OT_FACT_HEALTH,
  OT_FACT_METRICS,
} ot_fact;

typedef struct ot_facts ot_facts;

// `step`: of the checkpoint. Keeps `service`.
ot_status ot_facts_create(ot_service *service, int64_t step, ot_facts **out);
void ot_facts_destroy(ot_facts **facts);

// The answer in `arena` to a request with `body`: JSON, or text for Prometheus.
ot_status ot_facts_write(ot_facts *facts, ot_fact fact, const ot_request_body *body,
                         ot_arena *arena, const char **answer);
