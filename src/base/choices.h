// SPDX-License-Identifier: Apache-2.0
// Enumerations that both the description of a model and the operators speak: kept here so that
// neither room includes the other.
#pragma once

typedef enum ot_activation {
  OT_ACTIVATION_GELU,       // x * Phi(x), erf form
  OT_ACTIVATION_GELU_TANH,  // HF gelu_new, gelu_pytorch_tanh
  OT_ACTIVATION_SILU,
  OT_ACTIVATION_RELU,
} ot_activation;

// How HF's rope_type turns head_dim and theta into frequencies.
typedef enum ot_rope_type { OT_ROPE_DEFAULT, OT_ROPE_LINEAR, OT_ROPE_LLAMA3 } ot_rope_type;
