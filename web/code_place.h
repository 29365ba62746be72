// SPDX-License-Identifier: Apache-2.0
// Where in the code of a WebAssembly module a byte is: of which instruction it is the opcode or an
// operand, and which came before. Only as exact as predictions need (squeeze.c).
#pragma once

#include <stdint.h>

typedef enum ot_code_part {
  OT_PART_BODY,    // its size
  OT_PART_GROUPS,  // how many types of locals
  OT_PART_COUNT,   // locals of a type
  OT_PART_TYPE,
  OT_PART_OPCODE,
  OT_PART_NUMBER,  // an operand, seven bits in each byte
  OT_PART_BYTES,   // a real
  OT_PART_TABLE,   // how many targets
  OT_PART_PREFIX,  // a second opcode
} ot_code_part;

// Where in the code of a function the next byte is.
typedef struct ot_code_place {
  ot_code_part part;
  int index;     // of the operand
  int operands;  // still to come
  int opcode, shift;
  uint32_t left;   // bytes of the body
  uint32_t value;  // of the operand so far
  uint32_t function;
  uint32_t current;               // hash of the instruction so far
  uint32_t opcodes[5], whole[2];  // the last ones
} ot_code_place;

static inline uint32_t ot_squeeze_mix(uint32_t a, uint32_t b) {
  uint32_t h = a * 0x2c1b3c6du + b * 0x9e3779b1u;
  h ^= h >> 15;
  h *= 0x85ebca6bu;
  return h ^ h >> 13;
}

// The place after `byte`.
void ot_place_pass(ot_code_place *p, uint8_t byte);
