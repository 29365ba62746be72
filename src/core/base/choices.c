// SPDX-License-Identifier: Apache-2.0
// Names of the shared enumerations.
#include "base/choices.h"

#include <assert.h>

static const char *const group_names[] = {
    [OT_GROUP_WORLD] = "world",
    [OT_GROUP_TENSOR] = "tensor",
    [OT_GROUP_CONTEXT] = "context",
    [OT_GROUP_STAGES] = "stages",
    [OT_GROUP_GATHER] = "gather",
    [OT_GROUP_SHARD] = "shard",
    [OT_GROUP_CONTEXT_SUM] = "context_sum",
    [OT_GROUP_REPLICATE] = "replicate",
    [OT_GROUP_TENSOR_SUM] = "tensor_sum",
    [OT_GROUP_KV_SUM] = "kv_sum",
    [OT_GROUP_TIED] = "tied",
    [OT_GROUP_TOKENS] = "tokens",
    [OT_GROUP_EXPERT] = "expert",
    [OT_GROUP_EXPERT_GATHER] = "expert_gather",
    [OT_GROUP_EXPERT_SHARD] = "expert_shard",
    [OT_GROUP_EXPERT_REPLICATE] = "expert_replicate",
    [OT_GROUP_EXPERT_SUM] = "expert_sum",
    [OT_GROUP_SEQUENCE] = "sequence",
    [OT_GROUP_JOB] = "job",
};
static_assert(sizeof group_names / sizeof group_names[0] == OT_GROUP_KINDS, "one name each");

const char *ot_group_name(ot_group_kind kind) { return group_names[kind]; }
