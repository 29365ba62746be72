// SPDX-License-Identifier: Apache-2.0
// The plain model in double: its files once more. Their own compilation is the one in float.
#define OT_REAL_BITS 64
#include "judge/plain_attention.c"
#include "judge/plain_ends.c"
#include "judge/plain_experts.c"
#include "judge/plain_heads.c"
#include "judge/plain_layer.c"
#include "judge/plain_linear.c"
#include "judge/plain_mlp.c"
#include "judge/plain_norm.c"
#include "judge/plain_residual.c"
#include "judge/plain_rope.c"
#include "judge/plain_router.c"
#include "judge/plain_tape.c"
