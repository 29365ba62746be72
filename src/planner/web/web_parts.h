// SPDX-License-Identifier: Apache-2.0
// The declarations that the files of web/ share. Private to web/.
#pragma once

#include "answer/question.h"
#include "base/json_writer.h"
#include "base/tree.h"
#include "web/web.h"

struct ot_web {
  ot_web_memory plan_memory, call_memory;
  ot_arena plan, call;
  bool asked;  // request and page are those of a question
  ot_plan_request request;
  ot_plan_page page;
};

// One operation: reads `request`, appends the members of its answer to the open object.
typedef ot_status ot_web_operation(ot_web *web, const ot_node *request, ot_json_writer *w);

ot_web_operation ot_web_stages, ot_web_timeline, ot_web_devices, ot_web_crossover, ot_web_pareto,
    ot_web_remedies, ot_web_calibrate, ot_web_emit;

// Parses the lines of a request. Each line is a node in preorder, with its fields separated by
// tabs: depth, kind (m map, l list, t text, w word, n null), key, text; \ t n stand for backslash,
// tab and line feed after a backslash. OT_USAGE for anything else.
ot_status ot_web_tree_read(const char *text, int64_t length, ot_arena *arena, ot_node **out);

// A new question replaces the old one, whose memory is released with that of the call: reads its
// tree into web->plan.
ot_status ot_web_begin(ot_web *web, const char *request, int64_t length, ot_node **tree);

// Answers the question of `request` with web->page; `brief`: its best plan alone.
ot_status ot_web_ask(ot_web *web, ot_node *request, bool brief);

// The rows of a sweep: its grid, and the point whose question `request` has.
ot_web_operation ot_web_sweep;
ot_status ot_web_point(ot_web *web, ot_node *request, ot_json_writer *w);

// The fewest devices that end the run in time; `tree`: of the request, read again for each trial.
// `w` begins anew after the last.
ot_status ot_web_deadline(ot_web *web, const ot_node *tree, const char *request, int64_t length,
                          ot_json_writer *w);

// "interval80": [low, high], the seconds of the step of an estimate.
void ot_web_put_range(const ot_job *job, const ot_estimate *estimate, ot_json_writer *w);
