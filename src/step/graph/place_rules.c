// SPDX-License-Identifier: Apache-2.0
// One rule set per op kind; ops outside blocks (tables of constants, optimizers) have none. Typical
// rules: V, samples of this rank (data parallel); 0, tokens of this rank (sequence or context
// parallel), both with parameters R, whose gradients are P; 1, heads or columns of this rank
// (tensor parallel).
#include "graph/place_rules.h"

#include <assert.h>

static const ot_place_rule rules[] = {
    // A table sharded by rows outputs its own rows and zeros for the others.
    [OT_OP_EMBEDDING] = {.rows = {"VRVR>V", "0R0R>0", "I0..>P", "VV..>V", "IR..>R"}},
    [OT_OP_EMBEDDING_GRAD] = {.rows = {"VV>P", "00>P", "RI>0", "VV>V", "PI>P"}},
    [OT_OP_POSITION_GRAD] = {.rows = {"VV>P", "00>P"}},
    // Column-parallel: sharded outputs. Row-parallel: partial sums, to which nothing else is added.
    [OT_OP_LINEAR] = {.rows = {"VRRV>V", "0RR0>0", "R001>1", "11.P>P"}},
    [OT_OP_LINEAR_DX] = {.rows = {"VRV>V", "0R0>0", "10P>P", "R11>1"}},
    [OT_OP_LINEAR_DW] = {.rows = {"VV>PP", "00>PP", "1R>00", "R1>1."}},
    [OT_OP_LINEAR_WIDE] = {.rows = {"VRR>V", "0RR>0"}},
    [OT_OP_LINEAR_WIDE_DX] = {.rows = {"VRV>V", "0R0>0"}},
    [OT_OP_RMSNORM] = {.rows = {"VR>VV", "0R>00"}},
    [OT_OP_RMSNORM_GRAD] = {.rows = {"VVRVV>VPV", "00R00>0P0"}},
    [OT_OP_LAYERNORM] = {.rows = {"VRR>VVV", "0RR>000"}},
    [OT_OP_LAYERNORM_GRAD] = {.rows = {"VVRVVVR>VPPV", "00R000R>0PP0"}},
    // Per-head norms share their weights; norms over whole rows with sharded heads shard them.
    [OT_OP_HEAD_NORM] = {.rows = {"VRRVVI>VV", "0RR00I>00", "1RR.II>11", "100R..>1R"},
                         .own = {"100...>1R"}},
    [OT_OP_HEAD_NORM_GRAD] = {.rows = {"VVRRVVVI>VPP", "00RR000I>0PP", "11RR1.II>1PP",
                                       "1100RR..>100"},
                              .own = {"1100R...>100"}},
    [OT_OP_HEAD_MEANS] = {.rows = {"VVRRV>V", "00RR0>0"}, .own = {"1100R>P"}},
    [OT_OP_ROPE] = {.rows = {"VVI>V", "00I>0", "1II>1"}},
    [OT_OP_ROPE_GRAD] = {.rows = {"VVI>V", "00I>0", "1II>1"}},
    // A single rank needs whole sequences; over the ranks of cp it is a ring (expand.h). Sinks are
    // sharded like heads, unless an all_to_all has distributed the heads (Ulysses).
    [OT_OP_ATTENTION] = {.rows = {"VVVR>VVV", "1II0>11V", "1IIR>11V"}, .own = {"00IR>00V"}},
    [OT_OP_ATTENTION_GRAD] = {.rows = {"VVVVVV>V", "11II11>1"}, .own = {"000I00>0"}},
    [OT_OP_ATTENTION_SINKS_GRAD] = {.rows = {"VVVR>P", "1110>0", "111R>P", "000R>P"}},
    [OT_OP_ACTIVATION] = {.rows = {"V>V", "0>0", "1>1"}},
    [OT_OP_ACTIVATION_GRAD] = {.rows = {"VV>VV", "00>00", "11>11"}},
    [OT_OP_GLU] = {.rows = {"VVV>V", "00.>0", "1..>1"}},
    [OT_OP_GLU_GRAD] = {.rows = {"VVVV>VVV", "000.>000", "11..>1.1"}},
    [OT_OP_ADD] = {.rows = {"VV>V", "00>0", "11>1", "PP>P"}},
    [OT_OP_BIAS] = {.rows = {"VRV>V", "0R0>0"}},
    [OT_OP_GATE] = {.rows = {"VVV>V", "000>0"}},
    [OT_OP_GATE_GRAD] = {.rows = {"VVV>VV", "000>00"}},
    [OT_OP_DROPOUT] = {.rows = {"VV>V", "0I>0"}},
    [OT_OP_DROPOUT_GRAD] = {.rows = {"VV>V", "0I>0"}},
    [OT_OP_ABSMAX] = {.rows = {"V>V", "0>V", "1>V"}},
    [OT_OP_CAST] = {.rows = {"V>V", "0>0", "1>1"}},
    [OT_OP_HEAD_LOSS] = {.rows = {"VRVIVV>VPPP", "0R0I00>0PPP"}},
    [OT_OP_HEAD_EVALUATE] = {.rows = {"VRV>PP", "0R0>PP"}},
    [OT_OP_HEAD_SCORE] = {.rows = {"VRV>VVVV", "R0I>VVVV", "0R0>IIII"}},
    [OT_OP_HEAD_LOGITS] = {.rows = {"VR>V", "R0>V"}},
    [OT_OP_HEAD_DRAW] = {.rows = {"VRVV>VVVV"}},
    // Sharded vocabulary: logits are sharded, statistics one block per rank, dx partial. With the
    // all-gathered statistics every rank computes the same loss.
    [OT_OP_HEAD_STATISTICS] = {.rows = {"VRVVV>VVV", "0R000>000", "R0III>10V"}},
    [OT_OP_HEAD_DLOGITS] = {.rows = {"VVVIVVV>VPP", "000I000>0PP", "1RIIIIV>1II"}},
    [OT_OP_HEAD_GRADIENT] = {.rows = {"VVVR>VP", "000R>0P", "P1R0>P0"}},
    [OT_OP_HEAD_GRADIENT_LAST] = {.rows = {"VVVR>VP", "000R>0P", "P1R0>P0"}},
    [OT_OP_HEAD_COUNT] = {.rows = {"VV>PP", "00>PP", "RI>II"}},
    [OT_OP_APPEND_KV] = {.rows = {"VVVV>V", "1III>V"}},
    [OT_OP_ATTENTION_DECODE] = {.rows = {"VVVVVR>V", "1VIII0>1"}},
    // One step of a ring: V are the keys of some rank, place_ring.h checks which.
    [OT_OP_ATTENTION_BLOCK] = {.rows = {"VVVVVVR>VVV", "11II110>11V", "0V0I00R>00V"}},
    [OT_OP_ATTENTION_BLOCK_GRAD] = {.rows = {"VVVVVVVVV>VV", "111II1111>11", "00V0I000V>0V"}},
    [OT_OP_KV_SLICE] = {.rows = {"V>V", "1>1", "0>V"}},
    [OT_OP_QKV_JOIN] = {.rows = {"VV>V", "11>1", "0V>0"}},
    // An all_to_all converts between tokens with all heads and all tokens with some heads: 0
    // before, 1 after.
    [OT_OP_HEADS_SCATTER] = {.rows = {"V>V", "0>0", "1>1"}},
    [OT_OP_HEADS_GATHER] = {.rows = {"V>V", "0>0", "1>1"}},
    [OT_OP_SEQUENCE_JOIN] = {.rows = {"V>V", "1>1"}},
    [OT_OP_SEQUENCE_SPLIT] = {.rows = {"V>V", "1>1"}},
    // Each rank routes its own tokens, with statistics of whole sequences. The number of its tokens
    // that an expert gets is local.
    [OT_OP_ROUTE] = {.rows = {"VRV>VV", "0RR>00"}},
    [OT_OP_ROUTE_GRAD] = {.rows = {"VVVV>V", "0000>0"}},
    [OT_OP_SORT_BY_EXPERT] = {.rows = {"V>VV", "0>0V"}},
    // Counts are reduced over whole sequences before use; ranks of ep have whole sequences unless
    // they are ranks of tp or cp.
    [OT_OP_ROUTE_COUNT] = {.rows = {"V>V", "0>P"}, .own = {"0>V"}},
    [OT_OP_ROUTE_LOSS] = {.rows = {"VVVIV>P", "00RIR>P"}, .own = {"00VIR>P"}},
    [OT_OP_ROUTE_LOSS_GRAD] = {.rows = {"VVIV>V", "0RI0>0"}, .own = {"0VI0>0"}},
    [OT_OP_ROUTE_LOAD] = {.rows = {"V>P", "0>P"}},
    [OT_OP_DISPATCH] = {.rows = {"VVVV>VV", "000V>VV"}},
    [OT_OP_COMBINE] = {.rows = {"VVVVV>VV", "VV0V0>00"}},
    [OT_OP_EXPERT_BIAS] = {.rows = {"VVRV>V", "00R0>0"}},
    [OT_OP_EXPERT_BIAS_DX] = {.rows = {"VVRV>V", "00R0>0"}},
    [OT_OP_EXPERT_BIAS_DW] = {.rows = {"VVV>P", "000>P"}},
    // Over ep every rank knows all send counts; the received rows are local.
    [OT_OP_ALL_TO_ALL_V_PLAN] = {.rows = {"VV>VVVV", "RR>VVVR"}},
    [OT_OP_OVERFLOW_PASSES] = {.rows = {"VVVVRRVVVR>V", "VVRR000000>V"}},
    [OT_OP_OVERFLOW_PASSES_DX] = {.rows = {"VVVVVRRVVVR>VV", "VVVRR000000>VV"}},
    [OT_OP_OVERFLOW_PASSES_DW] = {.rows = {"VVVRRVVVR>PPP", "VRR000000>000"}},
    [OT_OP_GROUPED_LINEAR] = {.rows = {"VRVR>V"}, .own = {"V0V0>V"}},
    [OT_OP_GROUPED_LINEAR_DX] = {.rows = {"VRV>V"}, .own = {"V0V>V"}},
    [OT_OP_GROUPED_LINEAR_DW] = {.rows = {"VVV>PP"}, .own = {"VVV>00"}},
    [OT_OP_LATENT_SPLIT] = {.rows = {"V>VV", "0>00"}},
    [OT_OP_LATENT_JOIN] = {.rows = {"VV>V", "00>0"}},
    [OT_OP_LATENT_HEADS] = {.rows = {"VVVVI>V", "0000I>0", "11RII>1"}},
    [OT_OP_LATENT_HEADS_GRAD] = {.rows = {"VVI>VVV", "00I>000", "1II>11P"}},
    [OT_OP_VALUE_TRIM] = {.rows = {"V>V", "0>0", "1>1"}},
    [OT_OP_VALUE_PAD] = {.rows = {"V>V", "0>0", "1>1"}},
    [OT_OP_APPEND_LATENT] = {.rows = {"VVVIVV>V", "RRIIII>V"}},
    [OT_OP_LATENT_DECODE] = {.rows = {"VRVVIVV>V", "10VIIII>1"}},
    // The tokens of a stack are its second dimension.
    [OT_OP_RESIDUAL_ATTENTION] = {.rows = {"VVR>VVV", "10R>000"}},
    [OT_OP_RESIDUAL_ATTENTION_GRAD] = {.rows = {"VVVVRVVV>VVP", "1010R000>10P"}},
    [OT_OP_REPEAT] = {.carries = true},
    [OT_OP_ALL_GATHER] = {.passes = true, .own = {"0>R", "V>R"}},
    [OT_OP_REDUCE_SCATTER] = {.passes = true, .own = {"P>0"}},
    [OT_OP_ALL_REDUCE] = {.passes = true, .own = {"P>R"}},
    [OT_OP_ALL_TO_ALL] = {.passes = true, .own = {"0>1", "1>0"}},
    [OT_OP_SHIFT] = {.passes = true, .own = {"V>V"}},
    [OT_OP_ALL_TO_ALL_V] = {.rows = {"VVV>V"}},
    [OT_OP_ALL_TO_ALL_V_BACK] = {.rows = {"VVVV>V"}},
    [OT_OP_SEND] = {.passes = true},
    [OT_OP_RECEIVE] = {.passes = true},
    [OT_OP_PUBLISH] = {.passes = true},
};
static_assert(sizeof rules / sizeof rules[0] == OT_OP_COUNT, "one row set for each op kind");

const ot_place_rule *ot_place_rule_of(ot_op_kind kind) {
  OT_ASSERT(kind >= 0 && kind < OT_OP_COUNT);
  return &rules[kind];
}

ot_placed_axis ot_place_own_axis(ot_op_kind kind, const ot_op_attributes *attributes) {
  if (rules[kind].own[0] == NULL || attributes->group_size < 2) return OT_PLACED_AXES;
  switch (attributes->group) {
    case OT_GROUP_TENSOR:
      return OT_PLACED_TP;
    case OT_GROUP_CONTEXT:
      return OT_PLACED_CP;
    case OT_GROUP_EXPERT:
    case OT_GROUP_SEQUENCE:  // in the expert view, where ranks of tp and cp are ranks of ep
      return OT_PLACED_EP;
    default:
      return OT_PLACED_AXES;
  }
}
