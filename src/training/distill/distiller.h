// SPDX-License-Identifier: Apache-2.0
// Fills the weighted targets of a run's micro-batches (run->distill): from the stores of its
// training sets, or from a teacher that reads the same micro-batch, here or on ranks of its own
// (teacher_ranks.h). Sampled ids and weights are the same of both, bit for bit, for they are drawn
// by the same keys; what is drawn depends on the tokens, not on ranks or steps.
#pragma once

#include "comm/comm.h"
#include "data/data_loader.h"
#include "distill/teacher.h"
#include "runtime/target_source.h"

typedef struct ot_distiller ot_distiller;

typedef struct ot_distiller_request {
  const ot_run *run;  // kept until destroy, as `loader` and `comm`
  ot_data_loader *loader;
  bool loads;   // false on ranks whose weighted targets nothing reads: those without the head
  int threads;  // of a teacher here, and its device
  ot_backend backend;
  int ordinal;
  ot_comm *comm;   // null, or with ranks for the teacher if it is divided; then:
  int data_index;  // of this rank in data parallelism
} ot_distiller_request;

// Opens stores or teacher. OT_USAGE, saying what differs, if a store was made for other data,
// another tokenizer, teacher, sequence length or mask. Collective over the job with ranks for the
// teacher.
ot_status ot_distiller_create(const ot_distiller_request *request, ot_distiller **out);
void ot_distiller_destroy(ot_distiller **distiller);

// Before each step: forgets sums, and takes the weights of `student` where it writes the text that
// is learned from (else it may be null). Collective over its world.
ot_status ot_distiller_renew(ot_distiller *distiller, ot_runtime *student);

// Sums over unmasked targets of this rank, of the rows filled since then: their number, and the
// teacher's entropy (sampled) or log p - log t (reverse_kl), in nats.
typedef struct ot_distiller_sums {
  double targets, nats;
} ot_distiller_sums;
ot_distiller_sums ot_distiller_get_sums(const ot_distiller *distiller);

// The micro-batches that are filled next, in this order; a teacher on ranks of its own begins with
// them. Collective over the world.
ot_status ot_distiller_ask(ot_distiller *distiller, const ot_target_samples *samples);

// Fills rows->ids and rows->weights, with rows->K as ot_run_weighted_targets says, from the other
// fields; with reverse_kl it replaces these (rollouts.h). OT_USAGE if a store was made for other
// tokens than these.
ot_status ot_distiller_fill(ot_distiller *distiller, ot_micro_batch *rows);
