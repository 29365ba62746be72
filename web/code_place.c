// SPDX-License-Identifier: Apache-2.0
// The binary format of WebAssembly (its specification, section 5), as far as instructions of C need
// it.
#include "code_place.h"

#include <stdbool.h>
#include <string.h>

// Operands after an opcode: numbers; bytes, as -4 and -8; or a form of its own.
static int operands_of(int opcode) {
  if (opcode >= 0x28 && opcode <= 0x3e) return 2;
  if (opcode >= 0x20 && opcode <= 0x26) return 1;
  switch (opcode) {
    case 0x02:
    case 0x03:
    case 0x04:
    case 0x0c:
    case 0x0d:
    case 0x10:
    case 0x3f:
    case 0x40:
    case 0x41:
    case 0x42:
    case 0xd0:
    case 0xd2:
      return 1;
    case 0x11:
      return 2;
    case 0x43:
      return -4;
    case 0x44:
      return -8;
    default:
      return 0;
  }
}

static void end_instruction(ot_code_place *p) {
  memmove(p->opcodes + 1, p->opcodes, sizeof p->opcodes - sizeof p->opcodes[0]);
  memmove(p->whole + 1, p->whole, sizeof p->whole - sizeof p->whole[0]);
  p->opcodes[0] = (uint32_t)p->opcode;
  p->whole[0] = p->current;
  p->part = p->left > 0 ? OT_PART_OPCODE : OT_PART_BODY;
  p->index = 0;
  p->shift = 0;
  p->value = p->current = 0;
}

static void begin_body(ot_code_place *p) {
  *p = (ot_code_place){.part = OT_PART_GROUPS, .left = p->value, .function = p->function + 1};
}

static void begin_instruction(ot_code_place *p, int opcode) {
  const int operands = operands_of(opcode);
  p->opcode = opcode;
  p->index = 1;
  p->operands = operands < 0 ? -operands : operands;
  p->part = operands < 0 ? OT_PART_BYTES : OT_PART_NUMBER;
  if (opcode == 0x0e) p->part = OT_PART_TABLE;
  if (opcode == 0xfc) p->part = OT_PART_PREFIX;
  if (operands == 0 && p->part == OT_PART_NUMBER) end_instruction(p);
}

static void end_number(ot_code_place *p) {
  p->value = 0;
  p->shift = 0;
  p->index++;
  if (--p->operands == 0) end_instruction(p);
}

// The operands of an instruction with a second opcode: those that copy and fill memory.
static int prefixed_operands(int opcode) {
  return opcode < 8 ? 0 : opcode == 9 || opcode == 11 ? 1 : 2;
}

void ot_place_pass(ot_code_place *p, uint8_t byte) {
  if (p->part != OT_PART_BODY) p->left--;
  p->current = ot_squeeze_mix(p->current, byte + 1u);
  if (p->part == OT_PART_BODY || p->part == OT_PART_NUMBER || p->part == OT_PART_TABLE) {
    if (p->shift < 32) p->value |= (uint32_t)(byte & 127) << p->shift;
    p->shift += 7;
  }
  const bool last = byte < 128;
  switch (p->part) {
    case OT_PART_BODY:
      if (last) begin_body(p);
      break;
    case OT_PART_GROUPS:
      p->operands = byte;
      p->part = byte > 0 ? OT_PART_COUNT : OT_PART_OPCODE;
      p->current = 0;
      break;
    case OT_PART_COUNT:
      if (last) p->part = OT_PART_TYPE;
      break;
    case OT_PART_TYPE:
      p->part = --p->operands > 0 ? OT_PART_COUNT : OT_PART_OPCODE;
      if (p->part == OT_PART_OPCODE) p->current = 0;
      break;
    case OT_PART_OPCODE:
      begin_instruction(p, byte);
      break;
    case OT_PART_NUMBER:
      if (last) end_number(p);
      break;
    case OT_PART_BYTES:
      p->index++;
      if (--p->operands == 0) end_instruction(p);
      break;
    case OT_PART_TABLE:
      if (!last) break;
      p->operands = (int)p->value + 1;
      p->part = OT_PART_NUMBER;
      p->value = 0;
      p->shift = 0;
      p->index = 2;
      break;
    case OT_PART_PREFIX:
      p->opcode = 0x100 + byte;
      p->operands = prefixed_operands(byte);
      p->part = OT_PART_NUMBER;
      if (p->operands == 0) end_instruction(p);
      break;
  }
}
