// SPDX-License-Identifier: Apache-2.0
// Small models for tests, filled by hand so that they need no file.
#pragma once

#include "describe/model.h"
#include "describe/run.h"

// Two GPT-2 layers: learned positions, biases, tied head, layer norms.
ot_model tiny_gpt2(void);

// Three llama layers: GQA 3:1, rope, RMSNorm, gated MLP, untied.
ot_model tiny_llama(void);

// tiny_llama with QK norms, norms around both branches, a window on all layers but the last.
ot_model tiny_gemma(void);

// AdamW with clipping, fp32, no recompute.
ot_run tiny_run(const ot_model *model);
