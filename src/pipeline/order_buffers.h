// SPDX-License-Identifier: Apache-2.0
// How many buffers a stage needs for messages on their way: a stage may not go on while all of them
// wait to be taken, and the stage that is to take them may itself wait for this one. Folded orders
// (zb-v) do that with two buffers.
#pragma once

#include "pipeline/pipeline_order.h"

// The least number of send buffers for each direction, at least `least`, with which no stages wait
// in a circle, whatever the back end buffers by itself: a send lasts until its receive is started,
// and that is when the action before the one that reads it begins. `order` must have passed its
// check. O(actions) for each number that is tried.
int ot_order_send_buffers(const ot_pipeline_order *order, int least, ot_arena *arena);
