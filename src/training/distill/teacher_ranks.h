// SPDX-License-Identifier: Apache-2.0
// A teacher on ranks of its own (distill.teacher_ranks): the last ones of the job, in the second
// part of its divided world. Each serves some ranks of data parallelism: rank 0 of the students
// says which samples a step needs, and the teachers send what is learned from them to the ranks
// with the head. The next step's are asked for before this one runs, so that the teachers read them
// meanwhile. Ids and weights are those of a teacher in the students' ranks, bit for bit.
#pragma once

#include "comm/comm.h"
#include "data/data_loader.h"
#include "distill/distiller.h"
#include "execute/execute.h"

// Runs a teacher's rank until it is dismissed. `comm`: divided; this rank is in its second part.
// `leave` is called after each micro-batch and may ask the job to stop (ot_comm_ask): the students
// do, and dismiss it. Collective over that part. Blocks.
ot_status ot_teacher_rank_run(const ot_run *run, ot_comm *comm, const ot_executor_leave *leave);

// On a student's rank, at the end of a run that did not fail: rank 0 lets the teachers go.
ot_status ot_teacher_ranks_dismiss(ot_comm *comm);

// ---- a student's end ----

typedef struct ot_teacher_link ot_teacher_link;

// See ot_distiller_request, which is kept by value. OT_RANKS if a teacher sees other data.
// Collective over the job. Blocks.
ot_status ot_teacher_link_create(const ot_distiller_request *request, ot_teacher_link **out);
void ot_teacher_link_destroy(ot_teacher_link **link);

// The micro-batches of ot_teacher_link_receive from now on. Drops those that were asked for before
// and not received, unless they are these. Collective over the students.
ot_status ot_teacher_link_ask(ot_teacher_link *link, const ot_target_samples *samples);

// Fills ids and weights of the next one, and its sums. Blocks.
ot_status ot_teacher_link_receive(ot_teacher_link *link, ot_micro_batch *rows,
                                  ot_distiller_sums *sums);
