// SPDX-License-Identifier: Apache-2.0
// Assigns each layer to the least loaded rank that has room: for equal items with limits this
// minimises the sum of squares. The limits come first: the least cost of the most expensive rank,
// found without any, and then the least of the largest chunk that leaves room for all layers.
#include "pipeline/even_partition.h"

#include <stdbool.h>
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

// How many layers a chunk or rank of this cost has room for below `limit`.
static int64_t room_of(const cutter *c, int64_t cost, int64_t limit) {
  const ot_even_partition_request *const r = c->request;
  const int64_t room = r->layer > 0 ? (limit - cost) / r->layer : r->num_layers;
  return room < r->num_layers ? room : r->num_layers;
}

// The cheapest chunk of `rank` with room below `limit`, or -1.
static int cheapest_chunk(const cutter *c, int rank, int64_t limit) {
  int best = -1;
  for (int k = 0; k < c->request->num_chunks; k++) {
    if (c->request->rank_of[k] != rank || room_of(c, c->chunk_cost[k], limit) < 1) continue;
    if (best < 0 || c->chunk_cost[k] < c->chunk_cost[best]) best = k;
  }
  return best;
}

// The cheapest rank one of whose chunks has room below `limit`.
static int cheapest_rank(const cutter *c, int64_t limit) {
  int best = -1;
  for (int r = 0; r < c->request->num_ranks; r++) {
    if (best >= 0 && c->rank_cost[r] >= c->rank_cost[best]) continue;
    if (cheapest_chunk(c, r, limit) >= 0) best = r;
  }
  return best;
}

static int64_t largest(const int64_t *cost, int count) {
  int64_t most = 0;
  for (int i = 0; i < count; i++) most = cost[i] > most ? cost[i] : most;
  return most;
}

// Distributes all layers over chunks of at most `limit`.
static void fill(cutter *c, int64_t limit) {
  for (int left = begin_chunks(c); left > 0; left--) {
    add_layers(c, cheapest_chunk(c, cheapest_rank(c, limit), limit), 1);
  }
}

// Whether chunks of at most `limit` on ranks of at most `rank_limit` hold all layers; chunks as
// begin_chunks leaves them.
static bool holds(const cutter *c, int64_t left, int64_t limit, int64_t rank_limit) {
  const ot_even_partition_request *const r = c->request;
  for (int rank = 0; rank < r->num_ranks; rank++) {
    int64_t room = 0;
    for (int k = 0; k < r->num_chunks; k++) {
      if (r->rank_of[k] == rank) room += room_of(c, c->chunk_cost[k], limit);
    }
    const int64_t most = room_of(c, c->rank_cost[rank], rank_limit);
    left -= room < most ? room : most;
  }
  return left <= 0;
}

// The least cost above `limit` that a chunk can have.
static int64_t next_limit(const cutter *c, int64_t limit) {
  int64_t least = INT64_MAX;
  for (int k = 0; k < c->request->num_chunks; k++) {
    const int64_t cost = c->chunk_cost[k], layer = c->request->layer;
    const int64_t next = cost + ((limit - cost) / layer + 1) * layer;
    if (next < least) least = next;
  }
  return least;
}

void ot_even_partition(const ot_even_partition_request *request, ot_arena *arena, int *begin) {
  const int chunks = request->num_chunks;
  cutter c = {.request = request,
              .layers = ot_arena_array(arena, chunks, sizeof(int)),
              .chunk_cost = ot_arena_array(arena, chunks, sizeof(int64_t)),
              .rank_cost = ot_arena_array(arena, request->num_ranks, sizeof(int64_t))};
  fill(&c, INT64_MAX);
  const int64_t rank_limit = largest(c.rank_cost, request->num_ranks);
  const int left = begin_chunks(&c);
  int64_t limit = largest(c.chunk_cost, chunks);
  while (!holds(&c, left, limit, rank_limit)) limit = next_limit(&c, limit);
  fill(&c, limit);
  begin[0] = 0;
  for (int k = 0; k < chunks; k++) begin[k + 1] = begin[k] + c.layers[k] + (k == 0);
  begin[chunks]++;
}
