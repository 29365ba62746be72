// SPDX-License-Identifier: Apache-2.0
// Fills the weighted targets of a run's micro-batches (run->distill): from the stores of its
// training sets, or from a teacher that reads the same micro-batch. Sampled ids and
// weights are the same of both, bit for bit, for they are drawn by the same keys; what is drawn
// depends on the tokens, not on ranks or steps.
#pragma once

#include "data/data_loader.h"
#include "distill/teacher.h"

typedef struct ot_distiller ot_distiller;

// Opens stores or teacher. `loads` is false on ranks whose weighted targets nothing reads: those
// without the head. `threads`: of a teacher. Keeps `run` and `loader` until destroy. OT_USAGE,
// saying what differs, if a store was made for other data, another tokenizer, teacher, sequence
// length or mask.
ot_status ot_distiller_create(const ot_run *run, ot_data_loader *loader, bool loads, int threads,
                              ot_distiller **out);
void ot_distiller_destroy(ot_distiller **distiller);

// Before each step: forgets sums, and takes the weights of `student` where it writes the text that
// is learned from. Collective over its world.
ot_status ot_distiller_renew(ot_distiller *distiller, ot_runtime *student);

// What the teacher said of the rows filled since then, sums over unmasked targets of this
// rank: their number, and of sampled its entropy, of reverse_kl log p - log t; in nats.
typedef struct ot_distiller_sums {
  double targets, nats;
} ot_distiller_sums;
ot_distiller_sums ot_distiller_get_sums(const ot_distiller *distiller);

// Fills rows->ids and rows->weights, with rows->K as ot_run_weighted_targets says, from the other
// fields; with reverse_kl it replaces these (rollouts.h). OT_USAGE if a store was made for other
// tokens than these.
ot_status ot_distiller_fill(ot_distiller *distiller, ot_micro_batch *rows);
