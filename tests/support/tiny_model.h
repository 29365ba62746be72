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

// `model` with 8 experts of 24 columns and 3 per token. Tied: in all layers, without a balance
// loss. Untied: with a shared expert, a router bias, and no experts in layer 1.
ot_model tiny_experts(const ot_model *model, bool tied);

// AdamW with clipping, fp32, no recompute.
ot_run tiny_run(const ot_model *model);
