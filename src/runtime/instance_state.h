// SPDX-License-Identifier: Apache-2.0
// What an instance is made of. Private to instance.c and instance_parameters.c.
#pragma once

#include "runtime/exchange.h"
#include "runtime/instance.h"

struct ot_instance {
  ot_model model;
  unsigned modes;
  ot_heap heap;
  ot_graph graphs[OT_MODES];
  const ot_graph *shape;  // one of them
  const ot_graph *whole;  // shape, or whole_graph where this rank has a part of each block
  ot_graph whole_graph;
  ot_schedule schedule;
  bool counts_pieces;     // first of the ranks that hold the same piece of buckets
  bool counts_buckets;    // first of the ranks that hold the same buckets whole
  ot_exchange *exchange;  // null: one rank
  ot_executor *executor;
};
