// SPDX-License-Identifier: Apache-2.0
// Communication as operators: shapes, transposes and staging memory. They have no kernels: the
// executor passes them to comm/ (comm/comm.h has the semantics), the simulator derives their cost
// from their bytes on links. With k = attributes.group_size:
//
//   all_gather      x [r, ...] -> y [k*r, ...]      transpose: reduce_scatter
//   reduce_scatter  x [k*r, ...] -> acc y [r, ...]  transpose: all_gather; y may be wider:
//                   reduced in y's type, in rank order, unless attributes.sum_on_wire
//   all_reduce      x -> y, equal types             the transpose of P -> I is a retype
//   all_to_all      x [k*r, ...] -> y [k*r, ...]    its own transpose
//   shift           x -> y                          transposed by the composite that uses it
//   all_to_all_v, all_to_all_v_back                 each other's (expert_exchange.h)
//   send, receive   between pipeline stages
//   publish         of all ranks, to processes that are no ranks: generators of responses
#pragma once

#include "ops/op.h"

extern const ot_op_info ot_all_gather_info;
extern const ot_op_info ot_reduce_scatter_info;
extern const ot_op_info ot_all_reduce_info;
extern const ot_op_info ot_all_to_all_info;
extern const ot_op_info ot_shift_info;
extern const ot_op_info ot_send_info;
extern const ot_op_info ot_receive_info;
extern const ot_op_info ot_publish_info;

// The ops that send their input to other ranks and have no kernel, and the index of `kind` among
// them, -1 for any other.
enum { OT_COMMUNICATIONS = 10 };
extern const ot_op_kind ot_communications[OT_COMMUNICATIONS];
int ot_communication_index(ot_op_kind kind);
bool ot_op_communicates(ot_op_kind kind);

// The input that is sent. For all_to_all_v_back the destination is a separate input.
int ot_op_sent_input(ot_op_kind kind);

// True for all_to_all_v and all_to_all_v_back.
bool ot_op_is_all_to_all_v(ot_op_kind kind);

// Bytes of the whole tensor: the output of all_gather, otherwise this rank's input; for
// all_to_all_v and all_to_all_v_back, the rows of even loads; for publish, the whole block.
double ot_collective_bytes(ot_op_kind kind, const ot_op_attributes *attributes,
                           const ot_op_types *types);

// Bytes that this rank sends: (k-1)/k of the whole for all_gather, reduce_scatter, all_to_all and
// exchanges, twice that for all_reduce, the whole for shift and send, 0 for receive; of publish,
// what the first rank sends to generators.
double ot_collective_sent_bytes(ot_op_kind kind, const ot_op_attributes *attributes,
                                const ot_op_types *types);
