// SPDX-License-Identifier: Apache-2.0
// Assigns each layer to the least loaded rank: for equal items this minimises both the largest load
// and the sum of squares (the result is majorised by every other). First over ranks, then over the
// chunks of each rank. The largest chunk is compared with the optimum over chunks alone, regardless
// of ranks.
#include "pipeline/even_partition.h"

#include <string.h>

typedef struct cutter {
  const ot_even_partition_request *request;
  int *layers;          // [num_chunks] per chunk
  int64_t *chunk_cost;  // [num_chunks]
  int64_t *rank_cost;   // [num_ranks]
} cutter;

static void add_layers(cutter *c, int chunk, int layers) {
  c->layers[chunk] += layers;
  c->chunk_cost[chunk] += layers * c->request->layer;
  c->rank_cost[c->request->rank_of[chunk]] += layers * c->request->layer;
}

// Assigns first and last block, and one layer to each otherwise empty chunk. Returns the layers
// left.
static int begin_chunks(cutter *c) {
  const ot_even_partition_request *const r = c->request;
  const int last = r->num_chunks - 1;
  memset(c->layers, 0, (size_t)r->num_chunks * sizeof *c->layers);
  memset(c->chunk_cost, 0, (size_t)r->num_chunks * sizeof *c->chunk_cost);
  memset(c->rank_cost, 0, (size_t)r->num_ranks * sizeof *c->rank_cost);
  c->chunk_cost[0] = r->first;
  c->chunk_cost[last] += r->last;
  c->rank_cost[r->rank_of[0]] += r->first;
  c->rank_cost[r->rank_of[last]] += r->last;
  for (int k = 1; k < last; k++) add_layers(c, k, 1);
  return r->num_layers - (r->num_chunks - 2);
}

// The cheapest chunk of `rank`, or of all ranks if `rank` is negative.
static int cheapest_chunk(const cutter *c, int rank) {
  int best = -1;
  for (int k = 0; k < c->request->num_chunks; k++) {
    if (rank >= 0 && c->request->rank_of[k] != rank) continue;
    if (best < 0 || c->chunk_cost[k] < c->chunk_cost[best]) best = k;
  }
  return best;
}

static int cheapest_rank(const cutter *c) {
  int best = 0;
  for (int r = 1; r < c->request->num_ranks; r++) {
    if (c->rank_cost[r] < c->rank_cost[best]) best = r;
  }
  return best;
}

static int64_t largest_chunk(const cutter *c) {
  int64_t most = 0;
  for (int k = 0; k < c->request->num_chunks; k++) {
    if (c->chunk_cost[k] > most) most = c->chunk_cost[k];
  }
  return most;
}

bool ot_even_partition(const ot_even_partition_request *request, ot_arena *arena, int *begin) {
  const int chunks = request->num_chunks;
  cutter c = {.request = request,
              .layers = ot_arena_array(arena, chunks, sizeof(int)),
              .chunk_cost = ot_arena_array(arena, chunks, sizeof(int64_t)),
              .rank_cost = ot_arena_array(arena, request->num_ranks, sizeof(int64_t))};
  int left = begin_chunks(&c);
  if (left < 0) return false;
  for (; left > 0; left--) add_layers(&c, cheapest_chunk(&c, -1), 1);
  const int64_t least = largest_chunk(&c);
  left = begin_chunks(&c);
  for (; left > 0; left--) add_layers(&c, cheapest_chunk(&c, cheapest_rank(&c)), 1);
  if (largest_chunk(&c) > least) return false;
  begin[0] = 0;
  for (int k = 0; k < chunks; k++) begin[k + 1] = begin[k] + c.layers[k] + (k == 0);
  begin[chunks]++;
  return true;
}
