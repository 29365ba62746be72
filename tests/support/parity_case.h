// SPDX-License-Identifier: Apache-2.0
// Loads a parity fixture (tests/fixtures/parity/README.md) into a model runtime and compares every
// tensor with the reference.
#pragma once

#include "checkpoint/safetensors.h"
#include "runtime/model_runtime.h"
#include "support/tiny_model.h"

typedef struct parity_request {
  const char *name;    // directory of the case
  const char *config;  // "config.json" or "config_v4.json"
  ot_dtype compute;
  ot_dtype storage;
  ot_backend backend;
  ot_recompute recompute;
  ot_module_set modules;  // of those, what the model has
  bool split_backward, no_graphs;
  bool poison;           // with canaries of 64 bytes
  int micro_batch_size;  // 2 (the whole batch) or 1
  int threads;
  const char *mup;  // or null: file of fixtures/mup with settings and results of steps
  ot_optimizer_name optimizer;
  ot_parametrization (*parametrize)(const ot_model *model);  // or null
} parity_request;

typedef struct parity_case {
  ot_heap heap;
  ot_arena arena;
  parity_request request;
  ot_model model;
  ot_run run;
  ot_recompute recompute;
  ot_recompute_module modules[OT_RECOMPUTE_MODULES];
  int micro_batches;
  int64_t T, V;
  ot_safetensors *weights, *reference;
  ot_safetensors *steps;  // the file of `mup`, or null
  ot_runtime *runtime;
} parity_case;

enum { PARITY_BATCH = 2 };

// All cases, terminated by null.
extern const char *const parity_cases[];

// Fails the test on an error. Modes: train, evaluate, score, logits.
void parity_create(const parity_request *request, parity_case *c);
void parity_destroy(parity_case *c);

// Runs one training step with the current optimizer state; `step` counts from 1.
void parity_step(parity_case *c, int step);

// Largest error of a gradient against grad.<suffix>.*; name of the tensor in `worst`.
double parity_gradient_error(parity_case *c, const char *suffix, const char **worst);

// Error of the weights against after.*, of `mup` if given.
double parity_after_error(parity_case *c, const char **worst);

// Error of the logits after a forward pass only.
double parity_logits_error(parity_case *c, const char *suffix);

// Loss of the reference, and loss of the last step.
double parity_reference_loss(parity_case *c, const char *suffix);
double parity_loss(parity_case *c);
double parity_reference_norm(parity_case *c, int step);
// With `mup`: number of steps, and the loss before step `step`.
int parity_mup_steps(parity_case *c);
double parity_mup_loss(parity_case *c, int step);

// The largest difference of a gradient from that of `other`, the same case run elsewhere, over the
// largest element of the tensor or, where that is larger, 1e-3 x the rms of all gradients.
double parity_distance(parity_case *c, parity_case *other, const char **worst);

// Hash of all gradients and weights, bit by bit.
uint64_t parity_bits(parity_case *c);
