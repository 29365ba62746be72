// SPDX-License-Identifier: Apache-2.0
// Operators as data: kinds, attributes, tensor types, and the catalog entry of each kind (shapes,
// cost, in-place outputs, and its vector-Jacobian product as a table of steps). Pure. Kernels are
// separate (kernel.h), so that the planner links without them.
//
// An op reads up to OT_MAX_INPUTS tensors and writes up to OT_MAX_OUTPUTS. It is one of:
//   pure    may be emitted again (recompute)
//   saved   its outputs are kept and it is never emitted again (routing, head loss)
//   effect  adds to a step-level buffer (reported losses, maxima); dropped when F is emitted again
// Effect outputs of a pure op (attention's max_logit) are always optional for the same reason.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/dtype.h"
#include "base/status.h"

enum { OT_MAX_INPUTS = 11, OT_MAX_OUTPUTS = 5, OT_MAX_DIMS = 4, OT_MAX_VJP_STEPS = 4 };

// One line each: inputs -> outputs. `?` marks an optional operand. Shapes: R rows (tokens of the
// micro-batch = B*T), C hidden, O outputs, H heads, G kv heads, D head_dim, F ffn, V vocabulary.
// Q = (H + 2G)*D is the packed q|k|v width. "acc" outputs are gradient accumulators: they are
// overwritten when attributes.accumulate is false and added to when it is true.
typedef enum ot_op_kind {
  // embedding.h
  OT_OP_EMBEDDING,       // tokens[R] i32, table[V,C], positions?[R] i32, position_table?[P,C]
                         // -> y[R,C]
  OT_OP_EMBEDDING_GRAD,  // dy[R,C], tokens[R] -> acc dtable[V,C]
  OT_OP_POSITION_GRAD,   // dy[R,C], positions[R] -> acc dposition_table[P,C]
  // linear.h
  OT_OP_LINEAR,     // x[R,C], w[O,C], bias?[O], residual?[R,O] -> y[R,O] = x w^T + bias + residual
  OT_OP_LINEAR_DX,  // dy[R,O], w[O,C], partial?[R,C] -> dx[R,C] = dy w + partial
  OT_OP_LINEAR_DW,  // dy[R,O], x[R,C] -> acc dw[O,C], acc? dbias[O]
  OT_OP_LINEAR_WIDE,     // x[R,C], w[O,C], bias?[O] -> y[R,O] compute dtype = x w^T + bias (router
                         // logits)
  OT_OP_LINEAR_WIDE_DX,  // dy[R,O] compute dtype, w[O,C], partial?[R,C] -> dx[R,C] stored like w
  // norm.h: R rows of width C
  OT_OP_RMSNORM,         // x[R,C], w[C] -> y[R,C], rstd[R]    y = x * rstd * (w + norm_offset)
  OT_OP_RMSNORM_GRAD,    // dy[R,C], x[R,C], w[C], rstd[R], partial?[R,C]
                         // -> dx[R,C], acc dw[C], y?[R,C] again        (y may be in place of dy)
  OT_OP_LAYERNORM,       // x[R,C], w[C], b?[C] -> y[R,C], mean[R], rstd[R]
  OT_OP_LAYERNORM_GRAD,  // dy, x, w, mean, rstd, partial?[R,C], b?[C]
                         // -> dx[R,C], acc dw[C], acc? db[C], y?[R,C] again
                         // (y may be in place of dy)
  // head_norm.h: RMSNorm of the q and k parts of packed q|k|v, v copied. norm_width is D (per head,
  // weights [D]; then rotated as by rope) or 0 (whole q and k rows, weights [H*D] and [G*D])
  OT_OP_HEAD_NORM,       // qkv[R,Q], wq, wk, means?, positions?[R], table? -> y[R,Q], rstd[R,H+G]
  OT_OP_HEAD_NORM_GRAD,  // dy[R,Q], qkv[R,Q], wq, wk, rstd, means?[R,2], positions?[R], table?
                         // -> dx[R,Q], acc dwq, acc dwk
  OT_OP_HEAD_MEANS,      // qkv[R,Q], dy?[R,Q], wq?, wk?, rstd?[R,2] -> means[R,2]: this rank's
                         // contribution to the means over the whole q and k of a row
  // rope.h: rotate-half rotation of the first rotary_dim of each q and k head, in place
  OT_OP_ROPE_TABLE,  // -> table[P, rotary_dim/2, 2] compute dtype: cos, sin of position * frequency
  OT_OP_ROPE,        // qkv[R,Q], positions[R] i32, table[P,rotary_dim/2,2] -> y[R,Q]
  OT_OP_ROPE_GRAD,   // dy[R,Q], positions[R], table -> dx[R,Q]
  // attention.h: causal, grouped queries, sliding window, documents; online softmax, no T x T
  // tensor
  OT_OP_ATTENTION,             // qkv[R,Q], doc_start[R] i32, sample_ids[B] i64, sinks?[h]
                               // -> o[R,H*D], lse[R,H], effect max_logit[1] f64
  OT_OP_ATTENTION_GRAD,        // do[R,H*D], qkv, doc_start, sample_ids, o, lse -> dqkv[R,Q]
  OT_OP_ATTENTION_SINKS_GRAD,  // do[R,H*D], o[R,H*D], lse[R,H], sinks[h] -> acc dsinks[h]
  // activation.h
  OT_OP_ACTIVATION,       // x[R,F] -> y[R,F]
  OT_OP_ACTIVATION_GRAD,  // dy[R,F], x[R,F] -> dx[R,F] (may be in place of dy), y?[R,F] again
  OT_OP_GLU,              // x[R,2F] gate|up, scale?[R], offsets?[E+1] i32
                          // -> y[R,F] = activation(gate) * up * scale, 0 from offsets[E] on
                          // (clamped form: activation.h)
  OT_OP_GLU_GRAD,         // dy[R,F], x[R,2F], scale?[R], offsets?[E+1] i32
                          // -> dx[R,2F], dscale[R] if there is a scale, y?[R,F] again
                          // (y may be in place of dy)
  // elementwise.h
  OT_OP_ADD,           // a, b -> y = a + b, any equal shapes              (in place of a)
  OT_OP_BIAS,          // x[R,C], bias?[C], residual?[R,C] -> y[R,C] = x + (residual + bias)
                       // (in place of x)
  OT_OP_GATE,          // x[R,C], logits[R,1] compute dtype, residual?[R,C]
                       // -> y[R,C] = residual + sigmoid(logit) * x        (in place of x)
  OT_OP_GATE_GRAD,     // dy[R,C], x[R,C], logits[R,1] -> dx[R,C] (in place of dy), dlogits[R,1]
  OT_OP_DROPOUT,       // x[R,C], positions_in_batch: none, sample_ids[B] i64 -> y[R,C]   (in place)
  OT_OP_DROPOUT_GRAD,  // dy[R,C], sample_ids[B] -> dx[R,C]                (in place)
  OT_OP_ABSMAX,        // x[R,C] -> effect m[1] f64 = max(m, max|x|), NaN counts as infinity
  OT_OP_CAST,          // x -> y of another dtype
  OT_OP_ZERO,          // -> y = 0
  OT_OP_INVERSE,       // n[1] f64 -> y[1] f64 = n > 0 ? 1/n : 0
  // head.h: final projection and cross-entropy, chunked over rows; logits never exist whole
  OT_OP_HEAD_LOSS,      // x[R,C], w[V,C], targets[R] i32, inverse_tokens[1] f64, ids?[R,K] i32,
                        // weights?[R,K] f32
                        // -> dx[R,C], acc dw[V,C], effect loss[1] f64, effect data_loss?[1] f64
  OT_OP_HEAD_EVALUATE,  // x[R,C], w[V,C], targets[R]
                        // -> effect loss_sum[1] f64, effect token_count[1] f64
  OT_OP_HEAD_SCORE,     // x[R,C], w[V,C], targets[R]
                        // -> logprob[R] f64, greedy[R] i32 (argmax id), best?[R] f64, sum?[R] f64
                        // (tp)
  OT_OP_HEAD_LOGITS,    // x[R,C], w[V,C] -> logits[R,V] compute dtype
  OT_OP_HEAD_DRAW,      // x[R,C], w[V,C], targets[R], keys[R] i64
                        // -> ids[R,K] i32, weights[R,K] f32, logprob[R] f64, entropy[R] f64
  // head_parts.h: head_loss and head_evaluate on rows [first_row, first_row + chunk_rows = r) with
  // the rows [first_vocab, first_vocab + V) of w, one of k = group_size shards
  OT_OP_HEAD_STATISTICS,     // x[R,C], w[V,C], targets[R], ids?[R,K], weights?[R,K]
                             // -> e[r,V] compute dtype = exp(logit - max), statistics[r,S] f64,
                             // pulls?[r,K] compute dtype; S = 3, with weights 4
  OT_OP_HEAD_DLOGITS,        // e[r,V], all_statistics[k*r,S] f64, targets[R], inverse_tokens[1]
                             // f64, ids?[R,K], weights?[R,K], pulls?[r,K]
                             // -> dlogits[r,V] (in place), effect loss[1] f64, effect data_loss?[1]
  OT_OP_HEAD_GRADIENT,       // dx_before?[R,C], dlogits[r,V], x[R,C], w[V,C]
                             // -> dx[R,C] (in place), acc? dw[V,C]
  OT_OP_HEAD_GRADIENT_LAST,  // as head_gradient, for the last chunk: dx is the gradient of x
  OT_OP_HEAD_COUNT,          // all_statistics[k*r,3] f64, targets[R]
                             // -> effect loss_sum[1] f64, effect token_count[1] f64
  // decode.h: tokens of S sequences against a cache of N pages of 16; sequences, positions [R] i32
  OT_OP_APPEND_KV,         // qkv[R,Q], sequences, positions, pages[S,M] i32
                           // -> acc cache[N,16,2*G*D]: the slot of each token
  OT_OP_ATTENTION_DECODE,  // qkv[R,Q], cache[N,16,2*G*D], sequences, positions, pages[S,M],
                           // sinks?[H]
                           // -> o[R,H*D]: over slots 0 .. positions[r] of its sequence
  // optimizer.h: n elements, flat
  OT_OP_SUM_SQUARES,  // g[n] -> acc s[1] f64 = sum of (scale g)^2
  OT_OP_CLIP_FACTOR,  // s[k] f64
                      // -> norm[1] f64, factor[1] f64 = clip > 0 ? min(1, clip/(norm+1e-6)) : 1
  OT_OP_ADAMW,        // g[n], scalars[OT_STEP_SCALARS] f64
                      // -> p[n] (read too), m[n], v[n], master?[n], stats[2] f64
  OT_OP_MUON,         // g[O,C], scalars -> p[O,C] (read too), m[O,C], master?[O,C], stats[2] f64
  // checksum.h
  OT_OP_CHECKSUM,  // x any shape -> acc s[1] i64 = hash of its bits
  // attention.h: one step of a ring over the ranks of attributes.context_size; R tokens per rank
  OT_OP_ATTENTION_BLOCK,       // qkv[R,Q], kv[R,2*G*D], doc_start?[R], sample_ids?[B],
                               // o_before?[R,H*D], lse_before?[R,H], sinks?[h]
                               // -> o[R,H*D] compute dtype, lse[R,H], effect max_logit[1] f64
  OT_OP_ATTENTION_BLOCK_GRAD,  // do[R,H*D], qkv, kv, doc_start?, sample_ids?, o, lse,
                               // dq_before?[R,H*D], dkv_before?[R,2*G*D]
                               // -> dq[R,H*D], dkv[R,2*G*D] compute dtype
  // context.h: copies between the layouts of context parallelism, c = context_size
  OT_OP_KV_SLICE,        // qkv[R,Q] -> kv[R,2*G*D]: its k|v part
  OT_OP_QKV_JOIN,        // dq[R,H*D], dkv[R,2*G*D] -> dqkv[R,Q], narrowed
  OT_OP_HEADS_SCATTER,   // x[R,W] -> y[c*R,W/c]: block j = the heads of rank j
  OT_OP_HEADS_GATHER,    // y[c*R,W/c] -> x[R,W]
  OT_OP_SEQUENCE_JOIN,   // z[c*R,...] rows rank by rank -> y[c*R,...] sequence by sequence
  OT_OP_SEQUENCE_SPLIT,  // y[c*R,...] -> z[c*R,...]
  // route.h: the routing of tokens to E experts; S slots per token, P destinations per slot
  // (expert_copies), N rows sorted by expert
  OT_OP_ROUTE,       // logits[R,E], bias?[E], whole?[n*R,E] -> gates[R,S] compute, experts[R,S] i32
                     // (saved)
  OT_OP_ROUTE_GRAD,  // dgates[R,S], logits[R,E], experts[R,S], partial?[R,E] -> dlogits[R,E]
  OT_OP_SORT_BY_EXPERT,  // experts[R,S] -> place[R,S*P] i32: row of the slot or -1, offsets[E+1]
                         // i32:
                         // first row of each expert, then the number of rows in use (saved)
  // route_balance.h: load balancing; B sequences, counts over all ranks of a sequence
  OT_OP_ROUTE_COUNT,      // experts[R,S] -> counts[B,E] compute dtype
  OT_OP_ROUTE_LOSS,       // logits[R,E], experts[R,S], counts[B,E], inverse_sequences[1] f64,
                          // rounds?[1] i32 -> effect sums[OT_EXPERT_SUMS] f64
  OT_OP_ROUTE_LOSS_GRAD,  // logits[R,E], counts[B,E], inverse_sequences[1] f64, partial?[R,E]
                          // -> dlogits[R,E]
  OT_OP_ROUTE_LOAD,       // experts[R,S] -> acc load[E]: slots that chose each expert
  OT_OP_ROUTE_BIAS,       // load[n], scalars -> bias[n] (read too), master?[n], stats[2] f64
  // dispatch.h: permutation between tokens and rows sorted by expert
  OT_OP_DISPATCH,  // x[R,C], gates?[R,S], place[R,S*P], offsets?[E+1]
                   // -> rows[N,C], row_gates[N] if there are gates; rows not in use are zero
  OT_OP_COMBINE,   // rows[N,C], row_gates?[N], place[R,S*P], offsets[E+1], addend?[R,C]
                   // -> y[R,C] = addend + the sum of the token's rows, gates[R,S] with row_gates
  // expert_bias.h: biases of the experts' down projection, added at the token
  OT_OP_EXPERT_BIAS,     // gates[R,S], experts[R,S], bias[E*C], addend?[R,C]
                         // -> y[R,C] = addend + sum over slots of gate * bias of the expert
  OT_OP_EXPERT_BIAS_DX,  // dy[R,C], experts[R,S], bias[E*C], partial?[R,S] -> dgates[R,S]
  OT_OP_EXPERT_BIAS_DW,  // dy[R,C], gates[R,S], experts[R,S] -> acc dbias[E*C]
  // expert_exchange.h: all-to-all-v of tokens to the ranks of their experts; n = group_size ranks
  // with H = held_experts each, B = exchange_rows received rows per pass
  OT_OP_ALL_TO_ALL_V_PLAN,  // counts[n*(E+1)] i32: offsets of all ranks, round?[1] i32
                            // -> home[n,1,2] i32 (send splits), here[n,H,2] i32 (recv splits):
                            // first row and rows of each run; offsets[H+1] i32, rounds[1] i32 if
                            // there is no round (saved)
  // expert_rounds.h: composites for the overflow passes
  OT_OP_OVERFLOW_PASSES,  // rows[N,C], row_gates[N], counts[n*(E+1)], rounds[1], gate_up[H*2F,C],
                          // down[H*C,F], x[R,C], gates[R,S], place[R,S*P], bias?[H*2F] -> home[N,C]
  OT_OP_OVERFLOW_PASSES_DX,  // partial_rows[N,C], partial_row_gates[N], dhome[N,C], counts, rounds,
                             // gate_up, down, x, gates, place, bias? -> drows[N,C], drow_gates[N]
  OT_OP_OVERFLOW_PASSES_DW,  // dhome[N,C], counts, rounds, gate_up, down, x, gates, place, bias?
                             // -> acc dgate_up, acc ddown, acc? dbias
  // grouped.h: grouped GEMM, one matrix per expert, w stored as [E*O, C]
  OT_OP_GROUPED_LINEAR,     // x[N,C], w[E*O,C], offsets[E+1], bias?[E*O] -> y[N,O]
  OT_OP_GROUPED_LINEAR_DX,  // dy[N,O], w[E*O,C], offsets[E+1] -> dx[N,C]
  OT_OP_GROUPED_LINEAR_DW,  // dy[N,O], x[N,C], offsets[E+1] -> acc dw[E*O,C], acc? dbias[E*O]
  // latent.h: multi-head latent attention; K latent dims per token, per head P rotated and N other
  // dims, D = N + P, V value dims; Q3 = 3*H*D
  OT_OP_LATENT_SPLIT,       // x[R,K+P] -> latent[R,K], rotary[R,P]
  OT_OP_LATENT_JOIN,        // latent[R,K], rotary[R,P] -> x[R,K+P]
  OT_OP_LATENT_HEADS,       // q[R,H*D], kv[R,H*(N+V)], rotary[R,P], positions[R] i32, table
                            // -> qkv[R,Q3]: rotated, values filled up with zeros
  OT_OP_LATENT_HEADS_GRAD,  // dqkv[R,Q3], positions[R], table -> dq, dkv, drotary
  OT_OP_VALUE_TRIM,         // o[R,H*D] -> y[R,H*V]: the first V of each head
  OT_OP_VALUE_PAD,          // y[R,H*V] -> o[R,H*D]: filled up with zeros
  OT_OP_APPEND_LATENT,      // latent[R,K], rotary[R,P], positions[R], table, sequences, pages[S,M]
                            // -> acc cache[N,16,K+P]: the slot of each token; rotated
  OT_OP_LATENT_DECODE,  // q[R,H*D], w[H*(N+V),K], cache[N,16,K+P], positions[R], table, sequences,
                        // pages[S,M] -> o[R,H*V]
  // residual.h: a mix of earlier block outputs; n of them on the stack, N = n + 1 with `last`
  OT_OP_RESIDUAL_ATTENTION,       // stack[n,R,C], last?[R,C], query?[C]
                                  // -> y[R,C], weights[R,N], rstd[R,N]
  OT_OP_RESIDUAL_ATTENTION_GRAD,  // partial_stack?[n,R,C], dy[R,C], stack, last?, query?, weights,
                                  // rstd, partial_last?[R,C]
                                  // -> dstack[n,R,C] (in place of partial_stack), dlast[R,C] if
                                  // there is a last, acc? dquery[C]
  // repeat.h: the one loop construct; its body is the next attributes.repeated ops
  OT_OP_REPEAT,  // carried_a?, carried_b?, rounds[1] i32
                 // -> a?, b? (in place of the carried inputs), round[1] i32; the body
                 // runs for round = 1 .. rounds-1 (saved)
  // collective.h: among the ranks of attributes.group; n elements of one rank, k = group_size
  OT_OP_ALL_GATHER,         // x[r,...] -> y[k*r,...]: x of all ranks in rank order
  OT_OP_REDUCE_SCATTER,     // x[k*r,...] -> acc y[r,...]: block group_index of the sum over ranks
  OT_OP_ALL_REDUCE,         // x -> y: the sum over ranks                     (in place)
  OT_OP_ALL_TO_ALL,         // x[k,...] -> y[k,...]: y[j] = block group_index of rank j's x
  OT_OP_SHIFT,              // x -> y: x of the previous rank, cyclic
  OT_OP_ALL_TO_ALL_V,       // rows[N,...], home[n,1,2], here[n,H,2] -> y[B,...]: all-to-all-v, from
                            // the runs `home` of all ranks to this rank's runs `here`
  OT_OP_ALL_TO_ALL_V_BACK,  // before?[N,...], rows[B,...], home, here -> acc y[N,...]: its reverse;
                            // rows in no run keep their value               (in place of before)
  OT_OP_SEND,               // x ->    to rank `peer` of the group
  OT_OP_RECEIVE,            // -> y    from rank `peer` of the group
  OT_OP_PUBLISH,            // x? ->   weights of a block, of which x is this rank's share, to
                            //         `generators` processes that are no ranks
  OT_OP_COUNT,
} ot_op_kind;

// Elements of the `scalars` operand of the optimizer ops, float64. The loop writes them before a
// step, except CLIP_FACTOR, which OT_OP_CLIP_FACTOR writes.
typedef enum ot_step_scalar {
  OT_SCALAR_LEARNING_RATE,    // of this step, before a group's factor
  OT_SCALAR_CLIP_FACTOR,      // multiplies every gradient
  OT_SCALAR_CORRECTION_1,     // 1 / (1 - beta1^t), t counts applied steps
  OT_SCALAR_CORRECTION_2,     // 1 / (1 - beta2^t)
  OT_SCALAR_INVERSE_TOKENS,   // 1 / unmasked targets of the whole step
  OT_SCALAR_GRADIENT_NORM,    // before clipping
  OT_SCALAR_LOSS,             // mean nats per unmasked target of the step; weighted, if they are
  OT_SCALAR_EVALUATE_LOSS,    // sum of nats of the data's targets: evaluation, and training with
                              // weighted ones
  OT_SCALAR_EVALUATE_TOKENS,  // targets counted, evaluation
  OT_SCALAR_TARGETS,          // unmasked targets of this rank, then of the step
  OT_SCALAR_TARGET_SQUARES,   // squared target counts of the gradients that are reduced over ranks:
                              // of this rank, then of the step
  OT_SCALAR_LOCAL_SQUARES,    // squared norms of gradients before their reduction, summed over
                              // ranks and reductions, for the gradient noise scale
  OT_SCALAR_INVERSE_SEQUENCES,  // 1 / sequences of the whole step
  OT_STEP_SCALARS,
} ot_step_scalar;

// Statistics of the experts of a block, each the mean over the tokens of a step.
typedef enum ot_expert_sum {
  OT_EXPERT_AUX_LOSS,      // load-balancing loss, 1 when loads are even; before its coefficient
  OT_EXPERT_Z_LOSS,        // squared log-sum-exp of router logits; before its coefficient
  OT_EXPERT_LOAD_MAX,      // largest over mean load of a micro-batch
  OT_EXPERT_LOAD_ENTROPY,  // of the loads of a micro-batch, over ln E
  OT_EXPERT_DROP_SHARE,    // slots dropped; for expert choice, tokens that no expert took
  OT_EXPERT_PASSES,        // passes of the all-to-all-v per micro-batch; 1 without overflow
  OT_EXPERT_SUMS,
} ot_expert_sum;

// All parameters of an op besides its operands. Flat plain data, so that a task can be printed,
// hashed and compared; an op reads the fields that its header names, the others are zero.
typedef struct ot_op_attributes {
  int threads;              // threads of the kernel on the CPU, part of the plan [1..]
  ot_backend backend;       // with compute: which kernel runs it
  ot_dtype compute;         // OT_F32 or OT_F64
  bool accumulate;          // acc outputs: add (true) or overwrite (false)
  bool independent_rows;    // the bits of a row do not depend on the number of rows (CPU)
  int64_t sequence_length;  // T: rows per sequence of the micro-batch
  int64_t num_heads;        // H
  int64_t num_kv_heads;     // G, divides H
  int64_t head_dim;         // D
  int64_t window;           // keys visible to a query including itself; 0 = all
  double scale;             // attention: multiplies q.k; embedding, sum_squares: y, g (0 means 1)
  double soft_cap;          // attention: of scores; head: of logits; 0 = none
  double epsilon;           // norms, adamw
  double norm_offset;       // added to norm weights (gemma: 1)
  int64_t norm_width;       // head_norm
  ot_activation activation;
  double glu_alpha, glu_limit;  // glu: of the clamped form; limit 0: the ordinary form
  double dropout;               // probability to drop [0, 1)
  uint64_t seed;                // with rng_stream keys the dropout mask
  uint64_t rng_stream;          // hash of the tensor's name
  int64_t chunk_rows;           // head ops: rows whose logits exist at once
  int64_t draw_ids;             // head_draw: K
  int64_t draws;                // head_draw: of each row; 0: its most probable ids
  int64_t rotary_dim;           // rope: leading dimensions of a head that rotate (even)
  ot_rope_type rope_type;
  double rope_theta, rope_factor, rope_low_frequency_factor, rope_high_frequency_factor;
  int64_t rope_original_positions;                                      // llama3, yarn
  double rope_beta_fast, rope_beta_slow, rope_mscale, rope_mscale_all;  // yarn
  bool rope_exact_ramp;         // yarn: the ends of the ramp are not rounded to whole pairs
  double learning_rate_factor;  // group: multiplies OT_SCALAR_LEARNING_RATE
  double weight_decay;          // decoupled, times the learning rate
  double beta1, beta2;          // adamw; muon: beta1 is its momentum
  double clip;                  // 0 = off
  // Communication: which group, how large, and where this rank is in it.
  ot_group_kind group;
  int group_size, group_index;
  int peer;                // send, receive: index in the group
  int tag;                 // send, receive: distinguishes messages between two ranks
  bool sum_on_wire;        // reductions round each partial sum to the dtype that is sent
  int generators;          // publish: processes that take the weights
  int64_t whole_elements;  // publish: of the block on all ranks, each once
  // The shard of this rank; zero on one rank.
  int context_size;     // cp: number of ranks that share the sequence (0 and 1: one)
  int context_index;    // sequence block of the queries, or of all tokens
  int key_index;        // attention_block: sequence block of the keys and values
  int64_t first_row;    // of x in the micro-batch of this rank of cp (dropout); of a chunk in x
                        // (head parts)
  int64_t first_head;   // of the query heads in all heads (attention dropout)
  int64_t first_sink;   // of the query heads in the sinks of this rank
  int64_t first_vocab;  // embedding, head: id of the first row of the table
  ot_context_parallel context;  // how the sequence is sharded over cp
  // Experts
  int64_t num_experts;        // E
  int64_t experts_per_token;  // k
  ot_moe_score score;
  bool renormalise;  // gates of a token sum to `scale`
  int64_t num_groups, groups_per_token;
  ot_moe_routing routing;
  int64_t capacity;       // of an expert, in tokens per sequence; all but dropless
  int64_t num_sequences;  // B of the micro-batch
  double aux_coefficient, z_coefficient;
  double bias_rate;
  int64_t held_experts;   // experts of this rank of ep; 0: all
  int64_t exchange_rows;  // B: rows that this rank receives per pass
  int64_t expert_copies;  // P: ranks that share the columns of an expert (0 and 1: one)
  int64_t copy_rows;      // N / P: rows that a rank sends to all experts, once per copy
  int64_t even_rows;      // of N, those in use when all experts have equal loads; 0: all
  // Latent attention
  int64_t value_dim;  // V, at most head_dim; 0 where values are as wide as keys
  bool interleaved;   // rotated pairs are (0, 1), (2, 3), ... of the input
  int repeated;       // repeat: ops of its body, which follow it
} ot_op_attributes;

// Shape and type of one operand. rank 0 marks an absent optional operand.
typedef struct ot_tensor_type {
  ot_dtype dtype;
  int rank;
  int64_t dim[OT_MAX_DIMS];  // outermost first, contiguous
} ot_tensor_type;

// The types of one op's operands, in the order of the enumerator's comment.
typedef struct ot_op_types {
  ot_tensor_type in[OT_MAX_INPUTS];
  ot_tensor_type out[OT_MAX_OUTPUTS];
} ot_op_types;

// The cost of one execution, independent of the machine.
typedef struct ot_cost {
  double matrix_flops;  // multiply-adds count 2; causal and windowed attention counts visible keys
                        // only
  double other_flops;   // elementwise and reductions
  double bytes_read;
  double bytes_written;
  double repeated_flops;  // part of matrix_flops: forward GEMMs that a gradient recomputes
                          // (attention scores); executed, but not model FLOPs
  double padded_flops;    // in addition to matrix_flops: masked pairs in computed tiles
} ot_cost;

// ---- Vector-Jacobian products ----

// The part of the backward pass in which a step runs.
typedef enum ot_vjp_phase { OT_VJP_INPUT, OT_VJP_WEIGHT } ot_vjp_phase;

// The tensor that an operand of a VJP step refers to, seen from the forward op.
typedef enum ot_ref_kind {
  OT_REF_NONE,
  OT_REF_INPUT,        // forward input `index`
  OT_REF_OUTPUT,       // forward output `index`; as an output of the step: the same value, written
                       // again instead of by a recomputed forward op (graph/recompute.h)
  OT_REF_DOUTPUT,      // gradient of output `index`
  OT_REF_DINPUT,       // gradient of input `index`; written by the step
  OT_REF_PARTIAL,      // partial gradient of input `index` from its other uses, or absent
  OT_REF_ACCUMULATOR,  // gradient accumulator of the parameter at input `index`; written
} ot_ref_kind;

typedef struct ot_ref {
  ot_ref_kind kind;
  int index;
} ot_ref;

// One step: an op of kind `op` with the forward op's attributes. When `pass` is set there is no op:
// the gradient `out[0]` is the value `in[0]` itself (a residual branch). A step whose required
// operand is absent is skipped; an absent accumulator leaves that output absent.
typedef struct ot_vjp_step {
  bool pass;
  ot_op_kind op;
  ot_vjp_phase phase;
  ot_ref in[OT_MAX_INPUTS];
  ot_ref out[OT_MAX_OUTPUTS];
} ot_vjp_step;

// ---- The catalog row ----

typedef enum ot_op_purity { OT_PURITY_PURE, OT_PURITY_SAVED, OT_PURITY_EFFECT } ot_op_purity;

// The part of an op that dominates its time, for its price (simulate/price_kernel.c).
typedef enum ot_cost_kind {
  OT_COST_UNKNOWN,
  OT_COST_PASS,         // memory traffic
  OT_COST_EXPERT_PASS,  // the same, of the routing of experts
  OT_COST_LINEAR,
  OT_COST_GROUPED,
  OT_COST_ATTENTION,
  OT_COST_HEAD,
  OT_COST_COMMUNICATION,  // priced by links
} ot_cost_kind;

typedef struct ot_op_info {
  const char *name;  // printed in schedules, unique, lower case
  int num_inputs, num_outputs;
  uint32_t optional_inputs;  // bit i: input i may be absent
  uint32_t optional_outputs;
  uint32_t accumulated_outputs;  // bit i: output i is "acc" (see attributes.accumulate)
  uint32_t effect_outputs;       // bit i: output i is a step-level buffer
  ot_op_purity purity;           // whether it may be emitted again
  ot_cost_kind cost_kind;
  uint32_t in_place;    // bit i: output i may share the storage of input i. For communication and
                        // repeat ops it must when input i is optional and present
  uint32_t over_first;  // bit i: output i may share the storage of input 0
  bool cheap;           // elementwise or norm: selective recompute re-emits it

  // Fills the output types from the inputs; checks that the inputs fit each other. Types of
  // statistics (rstd, lse, ...) are attributes.compute. Null for ops whose outputs the builder
  // provides (acc, effect).
  ot_status (*infer)(const ot_op_attributes *attributes, ot_op_types *types);
  ot_cost (*cost)(const ot_op_attributes *attributes, const ot_op_types *types);

  int num_vjp_steps;
  ot_vjp_step vjp[OT_MAX_VJP_STEPS];
} ot_op_info;

static inline int64_t ot_type_elements(const ot_tensor_type *type) {
  int64_t n = type->rank > 0 ? 1 : 0;
  for (int i = 0; i < type->rank; i++) n *= type->dim[i];
  return n;
}

static inline int64_t ot_type_bytes(const ot_tensor_type *type) {
  return ot_type_elements(type) * ot_dtype_bytes(type->dtype);
}

// The input whose storage output `output` may share, or -1.
static inline int ot_op_shared_input(const ot_op_info *info, int output) {
  if (info->in_place >> output & 1u) return output;
  return info->over_first >> output & 1u ? 0 : -1;
}

static inline bool ot_type_present(const ot_tensor_type *type) { return type->rank > 0; }
