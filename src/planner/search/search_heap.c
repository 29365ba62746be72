// SPDX-License-Identifier: Apache-2.0
// A binary heap in a list whose elements do not move when it grows.
#include "search/search_heap.h"

#include "search/space.h"

typedef ot_search_node node;

static int64_t order_of(const node *n) {
  return (((int64_t)n->group * INT16_MAX + n->order) * INT16_MAX + n->shard) * OT_MAX_RECOMPUTES +
         n->recompute;
}

// Lower bound of the objective: seconds, or bytes.
static double key_of(const ot_search_heap *h, const node *n) {
  return h->by_memory ? (double)n->peak : n->step_s;
}

static bool is_before(const ot_search_heap *h, const node *a, const node *b) {
  const double first = key_of(h, a), second = key_of(h, b);
  if (first != second) return first < second;
  if (a->kind != b->kind) return a->kind > b->kind;
  return order_of(a) < order_of(b);
}

static node *node_at(const ot_search_heap *h, int64_t i) { return ot_stable_list_at(&h->nodes, i); }

const ot_search_node *ot_search_heap_first(const ot_search_heap *heap) { return node_at(heap, 0); }

void ot_search_heap_push(ot_search_heap *heap, const ot_search_node *n) {
  ot_stable_list_add(heap->arena, &heap->nodes);
  int64_t i = heap->nodes.count - 1;
  for (; i > 0 && is_before(heap, n, node_at(heap, (i - 1) / 2)); i = (i - 1) / 2) {
    *node_at(heap, i) = *node_at(heap, (i - 1) / 2);
  }
  *node_at(heap, i) = *n;
}

ot_search_node ot_search_heap_pop(ot_search_heap *heap) {
  const node first = *node_at(heap, 0), last = *node_at(heap, --heap->nodes.count);
  const int64_t count = heap->nodes.count;
  int64_t i = 0;
  for (int64_t child = 1; child < count; child = 2 * i + 1) {
    const node *next = node_at(heap, child);
    if (child + 1 < count && is_before(heap, node_at(heap, child + 1), next)) {
      next = node_at(heap, ++child);
    }
    if (!is_before(heap, next, &last)) break;
    *node_at(heap, i) = *next;
    i = child;
  }
  if (count > 0) *node_at(heap, i) = last;
  return first;
}
