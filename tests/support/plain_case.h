// SPDX-License-Identifier: Apache-2.0
// Steps of the plain model: of a parity fixture (tests/fixtures/parity/README.md), with the errors
// of its gradients, or of any model with random weights.
#pragma once

#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "host/heap.h"
#include "judge/plain.h"

typedef struct plain_case {
  ot_heap heap;
  ot_arena arena;
  const char *name;
  ot_model model;
  ot_graph graph;
  ot_weight_map map;
  ot_safetensors *reference;
  ot_plain_batch batch;     // balanced by sequence
  double **weights;         // [num_parameters][elements]; tied: those of the embedding
  int32_t **choices;        // [num_layers][R, k] of the last step
  double loss, balance, z;  // of the last step; the latter are sums over layers
  double **gradients;       // [num_parameters][elements] of the last step
} plain_case;

typedef struct plain_variant {
  ot_plain_type type;
  bool reversed;
  unsigned losses;
  int threads;
} plain_variant;

// Fails the test on an error. The coefficients of router losses are those of the reference.
void plain_case_create(const char *name, plain_case *c);
// `model` with random weights and `rows` random tokens in one document.
void plain_case_make(const ot_model *model, int64_t rows, plain_case *c);
void plain_case_destroy(plain_case *c);

// A step: all blocks forward, then backward. The arrays of the batch may be replaced before it.
void plain_case_run(plain_case *c, const plain_variant *variant);

// Largest error of a gradient of the last step against grad.SUFFIX.*, its tensor in `worst`.
double plain_case_error(plain_case *c, const char *suffix, const char **worst);

double plain_case_reference_loss(plain_case *c, const char *suffix);
