// SPDX-License-Identifier: Apache-2.0
// The local shapes of one rank of a model that is sharded over tp (Shoeybi et al. 2019; sequence
// parallelism between the regions: Korthikanti et al. 2022) and cp: heads, MLP columns, vocabulary
// and tokens. Only this file divides them; builders read the result.
#pragma once

#include "graph/graph_request.h"

typedef struct ot_local_shape {
  int tp, tp_index, cp, cp_index;   // degrees >= 1
  bool ulysses;                     // cp > 1, and attention sees whole sequences
  int64_t length;                   // t: tokens of each sequence on this rank of cp
  int64_t rows;                     // R = B * t
  int64_t own_rows, first_row;      // of the R, those between tensor-parallel regions: R / tp
  int64_t heads, first_head;        // of H
  int64_t kv_heads, first_kv_head;  // of G
  int kv_copies;                    // consecutive ranks of tp with the same kv head
  int64_t columns, first_column;    // of the MLP's F
  int64_t shared_columns, first_shared_column;  // of the MLP of shared experts
  int64_t vocab, first_vocab;                   // of V: [V*i/tp, V*(i+1)/tp)
  int64_t widest_vocab;                         // the largest `vocab` of all ranks of tp
  int expert_ranks, expert_index;               // ep x etp, etp fastest
  int64_t experts, first_expert;                // of E: E / ep
  int64_t expert_columns, first_expert_column;  // of an expert's MLP
  int sequence_ranks, sequence_index;           // ranks with shards of the same sequences: tp x cp
  bool expert_view;                             // as ot_local_shape_of_experts
} ot_local_shape;

// The local shapes of a block in the expert view: the rank's own tokens (still a block of each
// sequence); only the experts are sharded.
ot_local_shape ot_local_shape_of_experts(const ot_local_shape *share, const ot_model *model);

// Computes the shapes. OT_USAGE with the value that cannot be divided and the degrees that work;
// OT_ENVIRONMENT for a mode that runs on one rank only.
ot_status ot_local_shape_build(const ot_graph_request *request, ot_local_shape *share);
