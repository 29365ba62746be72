// SPDX-License-Identifier: Apache-2.0
// A teacher of `orthant serve --teach`, asked over HTTP (distill.server). Its answers are those of
// the same teacher in this process, bit for bit. A server that is away for a while is waited for.
#pragma once

#include "distill/lesson.h"

typedef struct ot_remote_teacher ot_remote_teacher;

// Asks the server of `run`, which is kept, who it is. OT_USAGE if it cannot teach the run.
ot_status ot_remote_teacher_create(const ot_run *run, const ot_tokenizer *tokenizer,
                                   ot_remote_teacher **out);
void ot_remote_teacher_destroy(ot_remote_teacher **teacher);

// See ot_teacher_ask. Blocks, for distill.server_timeout at most; then OT_ENVIRONMENT.
ot_status ot_remote_teacher_ask(ot_remote_teacher *teacher, const ot_micro_batch *rows,
                                const int64_t *keys, const ot_lesson_places *to);
