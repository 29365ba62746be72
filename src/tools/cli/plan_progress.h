// SPDX-License-Identifier: Apache-2.0
// Answers a request and shows on standard error how far a search of more than two seconds is.
#pragma once

#include "answer/question.h"

// ot_plan_page_build of `build`, without its progress.
ot_status ot_plan_answer(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out);
