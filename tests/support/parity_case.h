// SPDX-License-Identifier: Apache-2.0
// A parity fixture (tests/fixtures/parity/README.md) loaded into an instance, and the comparison of
// every tensor with the reference.
#pragma once

#include "checkpoint/safetensors.h"
#include "runtime/instance.h"
#include "support/tiny_model.h"

typedef struct parity_request {
  const char *name;    // directory of the case
  const char *config;  // "config.json" or "config_v4.json"
  ot_dtype compute;
  ot_dtype storage;
  ot_recompute recompute;
  bool split_backward;
  bool poison;           // with canaries of 64 bytes
  int micro_batch_size;  // 2 (the whole batch) or 1
  int threads;
} parity_request;

typedef struct parity_case {
  ot_heap heap;
  ot_arena arena;
  parity_request request;
  ot_model model;
  ot_run run;
  ot_recompute recompute;
  int micro_batches;
  int64_t T, V;
  ot_safetensors *weights, *reference;
  ot_instance *instance;
} parity_case;

enum { PARITY_BATCH = 2 };

// All cases, ended by null.
extern const char *const parity_cases[];

// Fails the test when something is wrong. Modes: train, evaluate, score, logits.
void parity_create(const parity_request *request, parity_case *c);
void parity_destroy(parity_case *c);

// One training step with the optimizer state as it is; `step` counted from 1.
void parity_step(parity_case *c, int step);

// Largest error of a gradient against grad.<suffix>.*, with the name of the tensor.
double parity_gradient_error(parity_case *c, const char *suffix, const char **worst);

// Error of the weights against after.*
double parity_after_error(parity_case *c, const char **worst);

// Error of the logits of the forward alone.
double parity_logits_error(parity_case *c, const char *suffix);

// The loss of the reference, and that of the last step.
double parity_reference_loss(parity_case *c, const char *suffix);
double parity_loss(parity_case *c);
double parity_reference_norm(parity_case *c, int step);

// Hash of all gradients and weights, bit by bit.
uint64_t parity_bits(parity_case *c);
