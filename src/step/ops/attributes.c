// SPDX-License-Identifier: Apache-2.0
// One row for each field of ot_op_attributes.
#include "ops/attributes.h"

#include <stddef.h>
#include <string.h>

#include "base/text.h"

typedef enum field_type {
  FIELD_INT,
  FIELD_INT64,
  FIELD_UINT64,
  FIELD_DOUBLE,
  FIELD_BOOL
} field_type;

typedef struct attribute_field {
  const char *name;
  field_type type;
  size_t offset;
} attribute_field;

static const attribute_field fields[] = {
    {"threads", FIELD_INT, offsetof(ot_op_attributes, threads)},
    {"backend", FIELD_INT, offsetof(ot_op_attributes, backend)},
    {"compute", FIELD_INT, offsetof(ot_op_attributes, compute)},
    {"accumulate", FIELD_BOOL, offsetof(ot_op_attributes, accumulate)},
    {"independent_rows", FIELD_BOOL, offsetof(ot_op_attributes, independent_rows)},
    {"sequence_length", FIELD_INT64, offsetof(ot_op_attributes, sequence_length)},
    {"num_heads", FIELD_INT64, offsetof(ot_op_attributes, num_heads)},
    {"num_kv_heads", FIELD_INT64, offsetof(ot_op_attributes, num_kv_heads)},
    {"head_dim", FIELD_INT64, offsetof(ot_op_attributes, head_dim)},
    {"window", FIELD_INT64, offsetof(ot_op_attributes, window)},
    {"scale", FIELD_DOUBLE, offsetof(ot_op_attributes, scale)},
    {"soft_cap", FIELD_DOUBLE, offsetof(ot_op_attributes, soft_cap)},
    {"epsilon", FIELD_DOUBLE, offsetof(ot_op_attributes, epsilon)},
    {"norm_offset", FIELD_DOUBLE, offsetof(ot_op_attributes, norm_offset)},
    {"norm_width", FIELD_INT64, offsetof(ot_op_attributes, norm_width)},
    {"activation", FIELD_INT, offsetof(ot_op_attributes, activation)},
    {"glu_alpha", FIELD_DOUBLE, offsetof(ot_op_attributes, glu_alpha)},
    {"glu_limit", FIELD_DOUBLE, offsetof(ot_op_attributes, glu_limit)},
    {"dropout", FIELD_DOUBLE, offsetof(ot_op_attributes, dropout)},
    {"seed", FIELD_UINT64, offsetof(ot_op_attributes, seed)},
    {"rng_stream", FIELD_UINT64, offsetof(ot_op_attributes, rng_stream)},
    {"chunk_rows", FIELD_INT64, offsetof(ot_op_attributes, chunk_rows)},
    {"draw_ids", FIELD_INT64, offsetof(ot_op_attributes, draw_ids)},
    {"draws", FIELD_INT64, offsetof(ot_op_attributes, draws)},
    {"rotary_dim", FIELD_INT64, offsetof(ot_op_attributes, rotary_dim)},
    {"rope_type", FIELD_INT, offsetof(ot_op_attributes, rope_type)},
    {"rope_theta", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_theta)},
    {"rope_factor", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_factor)},
    {"rope_low", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_low_frequency_factor)},
    {"rope_high", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_high_frequency_factor)},
    {"rope_original", FIELD_INT64, offsetof(ot_op_attributes, rope_original_positions)},
    {"rope_beta_fast", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_beta_fast)},
    {"rope_beta_slow", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_beta_slow)},
    {"rope_mscale", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_mscale)},
    {"rope_mscale_all", FIELD_DOUBLE, offsetof(ot_op_attributes, rope_mscale_all)},
    {"rope_exact_ramp", FIELD_BOOL, offsetof(ot_op_attributes, rope_exact_ramp)},
    {"learning_rate_factor", FIELD_DOUBLE, offsetof(ot_op_attributes, learning_rate_factor)},
    {"weight_decay", FIELD_DOUBLE, offsetof(ot_op_attributes, weight_decay)},
    {"beta1", FIELD_DOUBLE, offsetof(ot_op_attributes, beta1)},
    {"beta2", FIELD_DOUBLE, offsetof(ot_op_attributes, beta2)},
    {"clip", FIELD_DOUBLE, offsetof(ot_op_attributes, clip)},
    {"group", FIELD_INT, offsetof(ot_op_attributes, group)},
    {"group_size", FIELD_INT, offsetof(ot_op_attributes, group_size)},
    {"group_index", FIELD_INT, offsetof(ot_op_attributes, group_index)},
    {"peer", FIELD_INT, offsetof(ot_op_attributes, peer)},
    {"tag", FIELD_INT, offsetof(ot_op_attributes, tag)},
    {"sum_on_wire", FIELD_BOOL, offsetof(ot_op_attributes, sum_on_wire)},
    {"generators", FIELD_INT, offsetof(ot_op_attributes, generators)},
    {"whole_elements", FIELD_INT64, offsetof(ot_op_attributes, whole_elements)},
    {"context_size", FIELD_INT, offsetof(ot_op_attributes, context_size)},
    {"context_index", FIELD_INT, offsetof(ot_op_attributes, context_index)},
    {"key_index", FIELD_INT, offsetof(ot_op_attributes, key_index)},
    {"first_row", FIELD_INT64, offsetof(ot_op_attributes, first_row)},
    {"first_head", FIELD_INT64, offsetof(ot_op_attributes, first_head)},
    {"first_sink", FIELD_INT64, offsetof(ot_op_attributes, first_sink)},
    {"first_vocab", FIELD_INT64, offsetof(ot_op_attributes, first_vocab)},
    {"context", FIELD_INT, offsetof(ot_op_attributes, context)},
    {"num_experts", FIELD_INT64, offsetof(ot_op_attributes, num_experts)},
    {"experts_per_token", FIELD_INT64, offsetof(ot_op_attributes, experts_per_token)},
    {"score", FIELD_INT, offsetof(ot_op_attributes, score)},
    {"renormalise", FIELD_BOOL, offsetof(ot_op_attributes, renormalise)},
    {"num_groups", FIELD_INT64, offsetof(ot_op_attributes, num_groups)},
    {"groups_per_token", FIELD_INT64, offsetof(ot_op_attributes, groups_per_token)},
    {"routing", FIELD_INT, offsetof(ot_op_attributes, routing)},
    {"capacity", FIELD_INT64, offsetof(ot_op_attributes, capacity)},
    {"num_sequences", FIELD_INT64, offsetof(ot_op_attributes, num_sequences)},
    {"aux_coefficient", FIELD_DOUBLE, offsetof(ot_op_attributes, aux_coefficient)},
    {"z_coefficient", FIELD_DOUBLE, offsetof(ot_op_attributes, z_coefficient)},
    {"bias_rate", FIELD_DOUBLE, offsetof(ot_op_attributes, bias_rate)},
    {"value_dim", FIELD_INT64, offsetof(ot_op_attributes, value_dim)},
    {"interleaved", FIELD_BOOL, offsetof(ot_op_attributes, interleaved)},
    {"held_experts", FIELD_INT64, offsetof(ot_op_attributes, held_experts)},
    {"exchange_rows", FIELD_INT64, offsetof(ot_op_attributes, exchange_rows)},
    {"expert_copies", FIELD_INT64, offsetof(ot_op_attributes, expert_copies)},
    {"copy_rows", FIELD_INT64, offsetof(ot_op_attributes, copy_rows)},
    {"even_rows", FIELD_INT64, offsetof(ot_op_attributes, even_rows)},
    {"repeated", FIELD_INT, offsetof(ot_op_attributes, repeated)},
};

enum { NUM_FIELDS = sizeof fields / sizeof fields[0], FIRST_PRINTED = 3 };

// The 64 bits of a field's value; 0 exactly for zero, false and the first enumerator.
static uint64_t field_bits(const ot_op_attributes *attributes, const attribute_field *field) {
  const unsigned char *const place = (const unsigned char *)attributes + field->offset;
  uint64_t bits = 0;
  switch (field->type) {
    case FIELD_INT: {
      int value;
      memcpy(&value, place, sizeof value);
      return (uint64_t)(int64_t)value;
    }
    case FIELD_BOOL:
      return *place ? 1 : 0;
    case FIELD_INT64:
    case FIELD_UINT64:
    case FIELD_DOUBLE:
      memcpy(&bits, place, sizeof bits);
      return bits;
  }
  OT_UNREACHABLE();
}

ot_op_attributes ot_op_attributes_like(const ot_op_attributes *of) {
  return (ot_op_attributes){.threads = of->threads, .backend = of->backend, .compute = of->compute};
}

// Hashes names and values of nonzero fields only: a new field changes no hash where it is unused.
uint64_t ot_attributes_hash(uint64_t hash, const ot_op_attributes *attributes) {
  for (int i = 0; i < NUM_FIELDS; i++) {
    const uint64_t bits = field_bits(attributes, &fields[i]);
    if (bits == 0) continue;
    hash = ot_hash_bytes(ot_hash_text(hash, fields[i].name), &bits, sizeof bits);
  }
  return hash;
}

void ot_attributes_print(const ot_op_attributes *attributes, ot_text_builder *builder) {
  for (int i = FIRST_PRINTED; i < NUM_FIELDS; i++) {
    const uint64_t bits = field_bits(attributes, &fields[i]);
    if (bits == 0) continue;
    double real;
    memcpy(&real, &bits, sizeof real);
    ot_text_appendf(builder, " %s=", fields[i].name);
    if (fields[i].type == FIELD_DOUBLE) {
      ot_text_appendf(builder, "%.17g", real);
    } else if (fields[i].type == FIELD_UINT64) {
      ot_text_appendf(builder, "%llu", (unsigned long long)bits);
    } else {
      ot_text_appendf(builder, "%lld", (long long)bits);
    }
  }
}

void ot_attributes_write_json(const ot_op_attributes *attributes, ot_json_writer *json) {
  for (int i = FIRST_PRINTED; i < NUM_FIELDS; i++) {
    const uint64_t bits = field_bits(attributes, &fields[i]);
    if (bits == 0) continue;
    double real;
    memcpy(&real, &bits, sizeof real);
    if (fields[i].type == FIELD_DOUBLE) {
      ot_json_real(json, fields[i].name, real);
    } else if (fields[i].type == FIELD_BOOL) {
      ot_json_boolean(json, fields[i].name, true);
    } else {
      ot_json_integer(json, fields[i].name, (int64_t)bits);
    }
  }
}
