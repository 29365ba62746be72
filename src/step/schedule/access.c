// SPDX-License-Identifier: Apache-2.0
// Maps operands to byte ranges.
#include "schedule/access.h"

#include "base/text.h"
#include "ops/catalog.h"
#include "ops/repeat.h"

typedef struct access_builder {
  const ot_schedule *schedule;
  ot_arena *arena;
  ot_access_list *list;
  int64_t capacity;
  int entry;
} access_builder;

bool ot_base_is_defined(ot_base base) {
  switch (base) {
    case OT_BASE_WEIGHT:
    case OT_BASE_TIED:
    case OT_BASE_WEIGHT_PIECE:
    case OT_BASE_MOMENT_1:
    case OT_BASE_MOMENT_2:
    case OT_BASE_MASTER:
    case OT_BASE_BATCH:
    case OT_BASE_CONSTANT:
    case OT_BASE_SCALAR:
    case OT_BASE_CACHE:
      return true;
    case OT_BASE_NONE:
    case OT_BASE_GRADIENT:
    case OT_BASE_GRADIENT_PIECE:
    case OT_BASE_TIED_GRADIENT:
    case OT_BASE_SLOT:
    case OT_BASE_SLOT_LONG:
    case OT_BASE_SLOT_WEIGHT:
    case OT_BASE_INPUT:
    case OT_BASE_OUTPUT:
    case OT_BASE_D_OUTPUT:
    case OT_BASE_D_INPUT:
    case OT_BASE_STACK:
    case OT_BASE_STACK_OUT:
    case OT_BASE_D_STACK:
    case OT_BASE_D_STACK_OUT:
    case OT_BASE_SCRATCH:
    case OT_BASE_STATISTIC:
    case OT_BASE_EXPERTS:
    case OT_BASE_SQUARES:
    case OT_BASE_UPDATES:
    case OT_BASE_RESULT:
      return false;
    case OT_BASES:
      break;
  }
  OT_UNREACHABLE();
}

// The stack that an operand is part of or directly precedes: a pipeline message is one contiguous
// range.
static ot_base stack_of(const ot_entry *entry, const ot_operand *operand) {
  static const ot_base behind[OT_BASES] = {[OT_BASE_INPUT] = OT_BASE_STACK,
                                           [OT_BASE_OUTPUT] = OT_BASE_STACK_OUT,
                                           [OT_BASE_D_OUTPUT] = OT_BASE_D_STACK,
                                           [OT_BASE_D_INPUT] = OT_BASE_D_STACK_OUT};
  static const ot_base stacks[OT_BASES] = {[OT_BASE_STACK] = OT_BASE_STACK,
                                           [OT_BASE_STACK_OUT] = OT_BASE_STACK,
                                           [OT_BASE_D_STACK] = OT_BASE_D_STACK,
                                           [OT_BASE_D_STACK_OUT] = OT_BASE_D_STACK};
  const ot_base next = behind[operand->base];
  const int64_t end = entry->base[operand->base] + operand->offset + ot_type_bytes(&operand->type);
  const bool touches = next != OT_BASE_NONE && entry->base[next] == end;
  return stacks[touches ? next : operand->base];
}

// Identity of an operand's tensor. A boundary tensor is the output of one block and the input of
// the next; a micro-batch has one stack. Any other tensor is identified by value, block and
// micro-batch, or, outside a program, by its bytes alone.
static uint64_t tensor_of(const ot_entry *entry, const ot_operand *operand) {
  int64_t key[4] = {operand->base, entry->block, entry->micro_batch, operand->value};
  const ot_base stack = stack_of(entry, operand);
  if (stack != OT_BASE_NONE) {
    key[0] = stack;
    key[1] = key[3] = 0;
    return ot_hash_bytes(OT_HASH_START, key, sizeof key) | 1u;
  }
  switch (operand->base) {
    case OT_BASE_OUTPUT:
    case OT_BASE_D_OUTPUT:
      key[0] = operand->base == OT_BASE_OUTPUT ? OT_BASE_INPUT : OT_BASE_D_INPUT;
      key[1] = entry->block + 1;
      key[3] = 0;
      break;
    case OT_BASE_INPUT:
    case OT_BASE_D_INPUT:
      key[3] = 0;
      break;
    case OT_BASE_STACK:
    case OT_BASE_STACK_OUT:
    case OT_BASE_D_STACK:
    case OT_BASE_D_STACK_OUT:
      OT_UNREACHABLE();
    case OT_BASE_SLOT:
    case OT_BASE_SLOT_LONG:
    case OT_BASE_SLOT_WEIGHT:
      break;
    case OT_BASE_SCRATCH:
      key[0] += entry->phase == OT_PHASE_FORWARD ? OT_BASES : 0;
      break;
    case OT_BASE_WEIGHT:
    case OT_BASE_WEIGHT_PIECE:
    case OT_BASE_TIED:  // the owner is a parameter of the first block
      key[0] = OT_BASE_WEIGHT;
      key[1] = operand->base == OT_BASE_TIED ? 0 : entry->block;
      key[2] = key[3] = 0;
      break;
    case OT_BASE_NONE:
    case OT_BASE_GRADIENT:
    case OT_BASE_TIED_GRADIENT:
    case OT_BASE_GRADIENT_PIECE:
    case OT_BASE_MOMENT_1:
    case OT_BASE_MOMENT_2:
    case OT_BASE_MASTER:
    case OT_BASE_BATCH:
    case OT_BASE_CONSTANT:
    case OT_BASE_SCALAR:
    case OT_BASE_STATISTIC:
    case OT_BASE_EXPERTS:
    case OT_BASE_SQUARES:
    case OT_BASE_UPDATES:
    case OT_BASE_CACHE:
    case OT_BASE_RESULT:
      return 0;
    case OT_BASES:
      OT_UNREACHABLE();
  }
  return ot_hash_bytes(OT_HASH_START, key, sizeof key) | 1u;
}

static void add(access_builder *b, ot_access access) {
  ot_access_list *const list = b->list;
  list->accesses =
      ot_arena_grow(b->arena, list->accesses, list->count, &b->capacity, sizeof *list->accesses);
  list->accesses[list->count++] = access;
}

// One operand of a task.
typedef struct operand_use {
  int task, operand, repeat;
  ot_access_kind kind;
} operand_use;

// Squares of all blocks are added to one scalar, in any order of blocks.
static int micro_batch_of(const ot_entry *entry, const ot_operand *operand) {
  const bool shared = entry->phase == OT_PHASE_REDUCE && operand->base == OT_BASE_SCALAR;
  return shared ? -1 : entry->micro_batch;
}

static void add_operand(access_builder *b, const ot_entry *entry, const ot_operand *operand,
                        operand_use use) {
  if (operand->base == OT_BASE_NONE) return;
  const int64_t begin = entry->base[operand->base] + operand->offset;
  add(b, (ot_access){.kind = use.kind,
                     .base = operand->base,
                     .entry = b->entry,
                     .task = use.task,
                     .operand = use.operand,
                     .repeat = use.repeat,
                     .micro_batch = micro_batch_of(entry, operand),
                     .begin = begin,
                     .end = begin + ot_type_bytes(&operand->type),
                     .tensor = tensor_of(entry, operand)});
}

static ot_access_kind output_kind(const ot_task *task, int output) {
  const ot_op_info *const info = ot_op_info_of(task->op);
  const bool accumulated = (info->accumulated_outputs >> output) & 1u;
  const bool effect = (info->effect_outputs >> output) & 1u;
  return effect || (accumulated && task->attributes.accumulate) ? OT_ACCESS_UPDATE
                                                                : OT_ACCESS_WRITE;
}

// Iterations are counted for the body, including those of a repeat.
static int repeat_of(const ot_task *task, int index, int repeat, int output) {
  return task->kind == OT_TASK_REPEAT && output == OT_REPEAT_INDEX ? index : repeat;
}

static void add_task(access_builder *b, const ot_entry *entry, int index, int repeat) {
  const ot_task *const task = &b->schedule->segments[entry->segment].tasks[index];
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    add_operand(b, entry, &task->in[i], (operand_use){index, i, repeat, OT_ACCESS_READ});
  }
  if (task->workspace_bytes > 0) {
    const int64_t begin = entry->base[OT_BASE_SCRATCH] + task->workspace;
    add(b, (ot_access){.kind = OT_ACCESS_WRITE,
                       .base = OT_BASE_SCRATCH,
                       .workspace = true,
                       .entry = b->entry,
                       .task = index,
                       .operand = -1,
                       .repeat = repeat,
                       .micro_batch = entry->micro_batch,
                       .begin = begin,
                       .end = begin + task->workspace_bytes,
                       .tensor = 2});
  }
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    add_operand(b, entry, &task->out[i],
                (operand_use){index, i, repeat_of(task, index, repeat, i), output_kind(task, i)});
  }
}

// Two iterations of a body represent any number.
static void add_body(access_builder *b, const ot_entry *entry, int repeat) {
  const ot_task *const task = &b->schedule->segments[entry->segment].tasks[repeat];
  for (int round = 0; round < 2; round++) {
    const operand_use counted = {repeat, OT_REPEAT_INDEX, repeat, OT_ACCESS_WRITE};
    if (round > 0) add_operand(b, entry, &task->out[OT_REPEAT_INDEX], counted);
    for (int i = 1; i <= task->attributes.repeated; i++) add_task(b, entry, repeat + i, repeat);
  }
}

static void add_entry(access_builder *b, const ot_entry *entry) {
  const ot_segment *const segment = &b->schedule->segments[entry->segment];
  for (int i = 0; i < segment->num_tasks; i++) {
    add_task(b, entry, i, -1);
    if (segment->tasks[i].kind != OT_TASK_REPEAT) continue;
    add_body(b, entry, i);
    i += segment->tasks[i].attributes.repeated;
  }
}

void ot_access_list_build(const ot_schedule *schedule, int order, ot_arena *arena,
                          ot_access_list *list) {
  const ot_order *const run = &schedule->orders[order];
  *list = (ot_access_list){0};
  access_builder b = {.schedule = schedule, .arena = arena, .list = list};
  for (b.entry = 0; b.entry < run->num_entries; b.entry++) {
    add_entry(&b, &run->entries[b.entry]);
  }
}
