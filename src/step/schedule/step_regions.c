// SPDX-License-Identifier: Apache-2.0
// Persistent regions: weights, gradients, states, tables. Regions of a step: scratch, whose last
// bytes a kernel need not access, precedes regions that are always written completely, so that the
// highest byte accessed equals the planned peak. Between two steps the host accesses the tables at
// the end of the persistent regions and the batches at the start of the step's: the scalars and the
// batches by one write, the scalars, expert sums and squares by one read, and the statistics,
// updates and squares by another (runtime/step_transfer.h, runtime/health.h).
#include "schedule/step_regions.h"

#include "base/extremes.h"

typedef struct lister {
  const ot_region_request *request;
  const ot_outline_request *blocks;
  bool *runs;  // [num_blocks] blocks that this rank computes
  ot_region_visitor *take;
  void *to;
} lister;

static lister create(const ot_region_request *r, ot_arena *arena, ot_region_visitor *take,
                     void *to) {
  const ot_stages *const stages = r->blocks->stages;
  lister l = {.request = r, .blocks = r->blocks, .take = take, .to = to};
  l.runs = ot_arena_array(arena, r->blocks->num_blocks, sizeof *l.runs);
  for (int c = 0; c < stages->num_chunks; c++) {
    for (int i = stages->first_block[c]; i < stages->first_block[c + 1]; i++) {
      if (i < r->blocks->num_blocks) l.runs[i] = stages->rank_of[c] == r->blocks->stage;
    }
  }
  return l;
}

static void add(const lister *l, ot_region_kind kind, ot_memory_class class, int block,
                int64_t bytes) {
  l->take(l->to, &(ot_region_need){
                     .kind = kind, .class = class, .block = block, .bytes = bytes, .count = 1});
}

static bool has_head(const lister *l) {
  return l->blocks->tied_user >= 0 && l->runs[l->blocks->tied_user];
}

// The head's stage holds a copy of the embedding if it is tied.
static bool holds(const lister *l, int block) {
  return l->runs[block] || (block == l->blocks->tied_block && has_head(l));
}

static int64_t bytes_of(double bytes_each, int64_t elements) {
  return (int64_t)(bytes_each * (double)elements);
}

void ot_block_memory_describe(const ot_program *program, const ot_storage *storage,
                              ot_block_memory *out) {
  out->has_input = program->input >= 0;
  out->has_d_output = program->d_output >= 0;
  out->stack = (int)ot_program_stack_size(program);
  out->stack_end = (int)ot_program_stack_end(program);
  out->weight_pass_reads_input = ot_program_reads(program, program->input, OT_PART_WEIGHT);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) out->slot_bytes[i] = storage->slot_bytes[i];
}

// ---- persistent regions ----

static void add_weights(const lister *l) {
  for (int i = 0; i < l->blocks->num_blocks; i++) {
    if (!holds(l, i)) continue;
    const ot_block_buckets *const bucket = l->blocks->buckets[i];
    const int64_t elements =
        bucket->gathers ? l->request->memory[i]->shard_elements : bucket->elements;
    add(l, OT_REGION_WEIGHTS, OT_MEMORY_WEIGHTS, i, bytes_of(l->request->bytes.weight, elements));
  }
}

static void add_states(const lister *l) {
  const ot_state_bytes *const bytes = &l->request->bytes;
  for (int i = 0; i < l->blocks->num_blocks; i++) {
    if (!holds(l, i)) continue;
    const ot_block_buckets *const bucket = l->blocks->buckets[i];
    const ot_block_memory *const memory = l->request->memory[i];
    const int64_t state = memory->shards ? memory->shard_elements : bucket->elements;
    const int64_t second = memory->shards ? memory->shard_elements : memory->second_moments;
    const int64_t gradient =
        memory->shards && bucket->each_micro_batch ? memory->shard_elements : bucket->elements;
    add(l, OT_REGION_GRADIENTS, OT_MEMORY_GRADIENTS, i, bytes_of(bytes->gradient, gradient));
    add(l, OT_REGION_MOMENT_1, OT_MEMORY_OPTIMIZER, i, bytes_of(bytes->moment_1, state));
    add(l, OT_REGION_MOMENT_2, OT_MEMORY_OPTIMIZER, i, bytes_of(bytes->moment_2, second));
    if (bytes->master <= 0) continue;
    add(l, OT_REGION_MASTER, OT_MEMORY_OPTIMIZER, i, bytes_of(bytes->master, state));
  }
  const int owner = l->blocks->tied_block;
  if (!has_head(l) || !l->runs[owner]) return;
  const ot_block_buckets *const bucket = l->blocks->buckets[owner];
  add(l, OT_REGION_TIED_GRADIENTS, OT_MEMORY_GRADIENTS, owner,
      bytes_of(bytes->gradient, bucket->each_micro_batch ? l->request->memory[owner]->shard_elements
                                                         : bucket->elements));
}

static void add_tables(const lister *l) {
  const ot_region_request *const r = l->request;
  const int64_t blocks = l->blocks->num_blocks;
  const ot_memory_class class = OT_MEMORY_BUFFERS;
  add(l, OT_REGION_CONSTANTS, class, -1, r->constant_bytes);
  add(l, OT_REGION_STATISTICS, class, -1, blocks * OT_BLOCK_STATISTICS * 8);
  add(l, OT_REGION_UPDATES, class, -1, r->norm_slots * 16);
  add(l, OT_REGION_SQUARES, class, -1, r->norm_slots * 8);
  if (r->experts) add(l, OT_REGION_EXPERT_SUMS, class, -1, blocks * OT_EXPERT_SUMS * 8);
  add(l, OT_REGION_SCALARS, class, -1, OT_STEP_SCALARS * 8);
}

void ot_regions_persistent(const ot_region_request *request, ot_arena *arena,
                           ot_region_visitor *take, void *to) {
  const lister l = create(request, arena, take, to);
  add_weights(&l);
  if (request->train) add_states(&l);
  add_tables(&l);
}

// ---- messages ----

// Bytes of the largest message that the stage sends, 0: none.
static int64_t message_bytes(const lister *l, bool backward) {
  const ot_stages *const stages = l->blocks->stages;
  int64_t most = 0;
  for (int c = 0; c < stages->num_chunks; c++) {
    if (!ot_stages_chunk_sends(stages, c, l->blocks->stage, backward)) continue;
    const ot_block_memory *const edge =
        l->request->memory[stages->first_block[backward ? c : c + 1]];
    most = ot_larger_whole(most, l->request->hidden_bytes * (edge->has_input + edge->stack));
  }
  return most;
}

static void add_messages(const lister *l) {
  const int64_t sent = message_bytes(l, false), back = message_bytes(l, true);
  int most = 0;
  for (int i = 0; i < l->request->num_steps; i++) {
    const int buffers = l->request->steps[i].flow->send_buffers;
    if (buffers > most) most = buffers;
  }
  for (int i = 0; i < most; i++) {
    if (sent > 0) add(l, OT_REGION_SEND, OT_MEMORY_BUFFERS, i, sent);
    if (back > 0) add(l, OT_REGION_SEND_GRADIENT, OT_MEMORY_BUFFERS, i, back);
  }
}

// ---- buckets ----

static const ot_bucket_list *list_of(const ot_step_outline *outline, ot_region_kind kind) {
  if (kind == OT_REGION_GATHERED) return &outline->gathers;
  return kind == OT_REGION_TIED_PART ? &outline->tied_sums : &outline->sums;
}

// Adds buffers for all buckets of the same size as `block`'s, for the step that needs most.
static void add_bucket(const lister *l, ot_region_kind kind, int block) {
  const ot_region_request *const r = l->request;
  const int64_t elements = l->blocks->buckets[block]->elements;
  const bool weights = kind == OT_REGION_GATHERED;
  const double each = weights ? r->bytes.gathered : r->bytes.gradient;
  int most = 0;
  for (int i = 0; i < r->num_steps; i++) {
    if (!r->steps[i].outline) continue;
    const int places = ot_outline_places(l->blocks, list_of(r->steps[i].outline, kind), elements);
    if (places > most) most = places;
  }
  if (most == 0) return;
  l->take(l->to, &(ot_region_need){.kind = kind,
                                   .class = weights ? OT_MEMORY_GATHERED : OT_MEMORY_GRADIENTS,
                                   .block = block,
                                   .bytes = bytes_of(each, elements),
                                   .count = most});
}

// Whether the rank uses buffers of `kind` for the block.
static bool uses(const lister *l, ot_region_kind kind, int block) {
  const ot_block_buckets *const bucket = l->blocks->buckets[block];
  return kind == OT_REGION_GATHERED ? holds(l, block) && bucket->gathers
                                    : l->runs[block] && bucket->each_micro_batch;
}

// Whether an earlier block has added the buffers of this size.
static bool is_shared(const lister *l, ot_region_kind kind, int block) {
  for (int i = 0; i < block; i++) {
    if (l->blocks->buckets[i]->elements != l->blocks->buckets[block]->elements) continue;
    if (uses(l, kind, i)) return true;
  }
  return false;
}

static void add_buckets(const lister *l) {
  static const ot_region_kind kinds[] = {OT_REGION_GATHERED, OT_REGION_GRADIENT_PART};
  for (int i = 0; i < l->blocks->num_blocks; i++) {
    for (int k = 0; k < OT_COUNT(kinds); k++) {
      if (uses(l, kinds[k], i) && !is_shared(l, kinds[k], i)) add_bucket(l, kinds[k], i);
    }
  }
  const int owner = l->blocks->tied_block;
  if (has_head(l) && l->blocks->buckets[owner]->each_micro_batch) {
    add_bucket(l, OT_REGION_TIED_PART, owner);
  }
}

// ---- activations ----

// Adds one buffer per micro-batch in flight (`kept`) of the chunk, for the step that needs most.
static void add_kept(const lister *l, const ot_region_need *need, int chunk) {
  ot_region_need made = *need;
  made.class = OT_MEMORY_ACTIVATIONS;
  for (int i = 0; i < l->request->num_steps; i++) {
    const int most = l->request->steps[i].flow->most[need->kept][chunk];
    if (most > made.count) made.count = most;
  }
  l->take(l->to, &made);
}

static void add_block(const lister *l, int chunk, int block) {
  static const ot_region_kind slots[] = {OT_REGION_SLOT_SHORT, OT_REGION_SLOT_LONG,
                                         OT_REGION_SLOT_WEIGHT};
  static const ot_saved_kind kept[] = {OT_SAVED_SHORT, OT_SAVED_LONG, OT_SAVED_WEIGHT};
  const ot_region_request *const r = l->request;
  const int *const first = &l->blocks->stages->first_block[chunk];
  const bool enters = block == first[0], leaves = block == first[1] - 1;
  const ot_block_memory *const m = r->memory[block];
  const int stack = r->memory[first[1] - 1]->stack_end;
  const ot_saved_kind in = enters                       ? OT_SAVED_INPUT
                           : m->weight_pass_reads_input ? OT_SAVED_LONG
                                                        : OT_SAVED_SHORT;
  const int inputs = m->has_input + (enters ? stack : 0);
  const int outputs = m->has_d_output + (leaves ? stack : 0);
  if (inputs > 0) {
    add_kept(l,
             &(ot_region_need){OT_REGION_INPUT, .block = block, .kept = in,
                               .bytes = inputs * r->hidden_bytes},
             chunk);
  }
  for (int i = 0; i < OT_SLOT_CLASSES; i++) {
    if (m->slot_bytes[i] == 0 && i != OT_SLOT_SHORT) continue;
    add_kept(
        l, &(ot_region_need){slots[i], .block = block, .kept = kept[i], .bytes = m->slot_bytes[i]},
        chunk);
  }
  if (outputs > 0 && (leaves || r->steps[0].flow->split)) {
    add_kept(l,
             &(ot_region_need){OT_REGION_D_OUTPUT, .block = block,
                               .kept = leaves ? OT_SAVED_D_OUTPUT : OT_SAVED_WEIGHT,
                               .bytes = outputs * r->hidden_bytes},
             chunk);
  }
}

static void add_activations(const lister *l) {
  const ot_stages *const stages = l->blocks->stages;
  for (int c = 0; c < stages->num_chunks; c++) {
    for (int i = stages->first_block[c]; i < stages->first_block[c + 1]; i++) {
      if (l->runs[i]) add_block(l, c, i);
    }
  }
}

static void add_hands(const lister *l, ot_arena *arena) {
  const int n = l->blocks->num_blocks;
  bool *const gives = ot_arena_array(arena, n, sizeof *gives);
  for (int i = 0; i < n; i++) gives[i] = l->request->memory[i]->has_d_output;
  for (int i = 0; i < 2; i++) {
    if (!ot_stages_uses_ping_pong(l->blocks->stages, l->blocks->stage, i, gives)) continue;
    add(l, OT_REGION_PING_PONG, OT_MEMORY_ACTIVATIONS, i, l->request->hidden_bytes);
  }
}

void ot_regions_step(const ot_region_request *request, ot_arena *arena, ot_region_visitor *take,
                     void *to) {
  const lister l = create(request, arena, take, to);
  int most = 1;
  for (int i = 0; i < request->num_steps; i++) {
    const int micro_batches = request->steps[i].flow->micro_batches;
    if (micro_batches > most) most = micro_batches;
  }
  add(&l, OT_REGION_BATCH, OT_MEMORY_BUFFERS, -1, request->batch_bytes * most);
  add(&l, OT_REGION_SCRATCH, OT_MEMORY_BUFFERS, -1, request->scratch_bytes);
  if (request->staging_bytes > 0) {
    add(&l, OT_REGION_STAGING, OT_MEMORY_BUFFERS, -1, request->staging_bytes);
  }
  add_messages(&l);
  add_buckets(&l);
  add_activations(&l);
  if (request->num_steps > 0 && !request->steps[0].flow->split) add_hands(&l, arena);
}
