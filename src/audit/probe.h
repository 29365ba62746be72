// SPDX-License-Identifier: Apache-2.0
// A model on one rank, asked for logits: of whole sequences, as training runs them, and of one
// token after the other against a key-value cache, as inference does. Audits compare the answers:
// to the same question asked in two ways, and to questions that differ where it must not matter.
#pragma once

#include "data/rows.h"
#include "runtime/instance.h"
#include "train/team.h"

// Weights of a whole model on the host, by the names of its parameters.
typedef struct ot_probe_weights {
  const ot_graph *graph;  // of the whole model, whose parameters they are; owned by the instance
  ot_dtype dtype;
  void **values;  // [graph->num_parameters] row-major; null for tied uses and on other ranks
  ot_heap heap;   // that they are in
} ot_probe_weights;

// Reads all weights of `instance` (its full-precision copies where it has them) to the leader of
// `team`; they are used no longer than `instance`, and to be released, failed or not. Collective
// over the world. Blocks.
ot_status ot_probe_weights_read(ot_instance *instance, ot_team *team, ot_probe_weights *out);
void ot_probe_weights_release(ot_probe_weights *weights);

// Writes them into `instance`, of the same model or its first layers, rounded to its storage type,
// and resets its optimizer.
ot_status ot_probe_weights_load(const ot_probe_weights *weights, ot_instance *instance);

typedef struct ot_probe_request {
  const ot_model *model;  // with the layers that are probed, at most those of the weights; of
                          // files, only the vocabulary counts
  int64_t sequences;      // of a forward
  int64_t tokens;         // of each; most that are decoded
  ot_dtype compute;       // OT_F32 or OT_F64
  ot_dtype storage;       // of weights and activations: compute, or OT_BF16
  int threads;            // 0 = all cores
  bool decodes;           // ot_probe_decode will be called
  const ot_probe_weights *weights;
  const char *files;  // HF directory that model and weights are read from instead; null: weights
} ot_probe_request;

typedef struct ot_probe ot_probe;

// Takes the memory and loads the weights, rounded to `storage`. Layers behind those of
// request->model are left out, so that its head reads what enters them.
ot_status ot_probe_create(const ot_probe_request *request, ot_probe **out);
void ot_probe_destroy(ot_probe **probe);

// Other values of the same weights, for the forward; the decoder keeps what it has.
ot_status ot_probe_reload(ot_probe *probe, const ot_probe_weights *weights);

//   rows    [sequences, tokens], targets are not looked at
//   logits  [sequences * tokens, V]
ot_status ot_probe_forward(ot_probe *probe, const ot_rows *rows, double *logits);

// Of the last forward: ot_instance_expert_sums. Of a model with experts.
void ot_probe_expert_sums(const ot_probe *probe, double sums[OT_EXPERT_SUMS]);

// One document of `count` tokens, each decoded with the cache that those before it left.
//   logits  [count, V]
ot_status ot_probe_decode(ot_probe *probe, const int32_t *tokens, int64_t count, double *logits);
