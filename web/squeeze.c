// SPDX-License-Identifier: Apache-2.0
// Of each context a hashed line of counters for the bits of half a byte; a mixer for each of four
// views of the place weighs their predictions, and a last one the mixers. A curve for each shade of
// the place corrects the result.
#include "squeeze.h"

#include <stdbool.h>
#include <string.h>

#include "code_place.h"

typedef float lanes __attribute__((vector_size(16)));

enum {
  CONTEXTS = 7,
  INPUTS = 8,  // contexts, and the longest match
  VECTORS = INPUTS / 4,
  VIEWS = 4,
  PLACES = 1024,  // of a view
  SHADES = 4096,
  KNOTS = 33,  // of the curve of a shade
  LINES = 1 << 15,
  COUNTERS = 16,  // of a line: its check, then a tree of four bits
  MATCHES = 1 << 16,
  STEPS = 4096,
  MOST_COUNT = 12,
};
static const float EDGE = 12;  // of a prediction, as the logarithm of its odds

// ---- contexts ----

// An interval of 32 bits, whose equal leading bytes are stored.
typedef struct coder {
  uint32_t low, high, value;
  uint8_t *out;
  const uint8_t *in;
  int64_t next, length;  // of `in` or `out`, and its size
} coder;

typedef struct model {
  const uint8_t *bytes;
  int64_t at, code_from, code_to;
  ot_code_place place;
  uint32_t word, word_before;
  uint32_t context[CONTEXTS];
  int64_t match, match_length;  // where the longest match goes on; 0: none
  uint32_t known, bit;          // bits of this byte, after a one; how many
  uint16_t *line[CONTEXTS];
  lanes input[VECTORS];
  int view[VIEWS], last_view;
  float seen[VIEWS], chance[VIEWS], mixed, rate;
  float *knot, between;  // of the curve: the two knots around `mixed`, and where between them
  // unpacking
  coder coder;
  uint8_t *out;
  int64_t size;
  // learned
  uint16_t lines[CONTEXTS][LINES][COUNTERS];
  lanes weight[VIEWS][PLACES][VECTORS];
  float last_weight[PLACES][VIEWS];
  float match_chance[32], row_chance;
  float curve[SHADES][KNOTS];
  int32_t matches[MATCHES];
  // tables
  uint16_t fresh[COUNTERS];  // a line that was not used yet
  float odds[STEPS], chances[STEPS], speed[MOST_COUNT + 1];
} model;

static model whole;

static uint32_t before(const model *m, int64_t distance) {
  return m->at >= distance ? m->bytes[m->at - distance] : 0;
}

static bool in_code(const model *m) { return m->at >= m->code_from && m->at < m->code_to; }

static uint32_t last_four(const model *m) {
  return before(m, 1) | before(m, 2) << 8 | before(m, 3) << 16 | before(m, 4) << 24;
}

static int operand_index(const ot_code_place *p) { return p->index < 7 ? p->index : 7; }

static void code_contexts(model *m) {
  const ot_code_place *const p = &m->place;
  const uint32_t *const o = p->opcodes;
  const uint32_t where = (uint32_t)p->part << 3 | (uint32_t)operand_index(p);
  const uint32_t here = ot_squeeze_mix(
      p->current, where | (p->part == OT_PART_OPCODE ? 0 : (uint32_t)p->opcode << 8));
  const uint32_t own = ot_squeeze_mix(here, p->function);
  const uint32_t three = o[0] | o[1] << 9 | o[2] << 18;
  const uint32_t contexts[CONTEXTS] = {
      ot_squeeze_mix(where, before(m, 1)),
      ot_squeeze_mix(where, last_four(m) & 0xffff),
      ot_squeeze_mix(here, o[0]),
      ot_squeeze_mix(here, three),
      ot_squeeze_mix(ot_squeeze_mix(here, three), o[3] | o[4] << 9),
      ot_squeeze_mix(ot_squeeze_mix(here, p->whole[0]), p->whole[1]),
      ot_squeeze_mix(own, o[0]),
  };
  memcpy(m->context, contexts, sizeof contexts);
}

static void data_contexts(model *m) {
  const uint32_t four = last_four(m), row = (uint32_t)m->at & 3;
  const uint32_t word = ot_squeeze_mix(m->word, 0x77);
  const uint32_t contexts[CONTEXTS] = {
      four & 0xff,
      four & 0xffffff,
      four,
      word,
      ot_squeeze_mix(word, m->word_before),
      before(m, 4) | row << 8,
      (four & 0xf0f0f0) | row,
  };
  memcpy(m->context, contexts, sizeof contexts);
}

// The line of one context; a line of another is taken if it was used less.
static uint16_t *line_of(const model *m, uint16_t *line, uint16_t *other, uint32_t check) {
  if (line[0] == check) return line;
  if (other[0] == check) return other;
  uint16_t *const taken = (other[1] & 15) < (line[1] & 15) ? other : line;
  memcpy(taken, m->fresh, sizeof m->fresh);
  taken[0] = (uint16_t)check;
  return taken;
}

// The lines of this half of the byte.
static void find_lines(model *m) {
  const uint32_t half = m->bit == 0 ? 0 : m->known + 1;
  for (int i = 0; i < CONTEXTS; i++) {
    const uint32_t hash = ot_squeeze_mix(m->context[i] + (uint32_t)i * 0x51ed27u, half),
                   at = hash >> 17;
    m->line[i] = line_of(m, m->lines[i][at], m->lines[i][at ^ 1], (hash & 0xffff) | 1);
  }
}

// ---- prediction ----

static float limited(float x) { return x > EDGE ? EDGE : x < -EDGE ? -EDGE : x; }

// e^x / (1 + e^x)
static float chance_of(const model *m, float odds) {
  return m->chances[(int)((limited(odds) + EDGE) * ((STEPS - 1) / (2 * EDGE)))];
}

static float sum(lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }

static float matched(const model *m) {
  if (m->match_length == 0) return 0;
  const uint32_t next = m->bytes[m->match] | 256u;
  if (next >> (8 - m->bit) != m->known) return 0;
  const int64_t length = m->match_length < 31 ? m->match_length : 31;
  const float odds = m->odds[(int)(m->match_chance[length] * (STEPS - 1))];
  return next >> (7 - m->bit) & 1 ? odds : -odds;
}

static uint32_t node(const model *m) {
  return m->bit < 4 ? m->known : (m->known & ((1u << (m->bit - 4)) - 1)) | 1u << (m->bit - 4);
}

static void choose_views(model *m) {
  const ot_code_place *const p = &m->place;
  const int length = m->match_length < 15 ? (int)m->match_length : 15, bit = (int)m->bit;
  if (in_code(m)) {
    const int where = (int)p->part * 8 + operand_index(p);
    m->view[0] = (int)m->known;
    m->view[1] = where * 8 + (length + 1) / 2;
    m->view[2] = p->part == OT_PART_OPCODE ? (int)p->opcodes[0] & 255 : 256 + (p->opcode & 255);
    m->view[3] = (int)(ot_squeeze_mix(p->opcodes[0] | p->opcodes[1] << 9, (uint32_t)where) >> 22);
    m->last_view = where * 8 + bit;
  } else {
    m->view[0] = 256 + (int)m->known;
    m->view[1] = 640 + length * 8 + bit;
    m->view[2] = 512 + (int)before(m, 1);
    m->view[3] = (int)(before(m, 2) | ((uint32_t)m->at & 3) << 8);
    m->last_view = 640 + bit;
  }
}

// The middle between what was mixed and what came of it before in this shade.
static float corrected(model *m, float odds) {
  const ot_code_place *const p = &m->place;
  const float along = (odds + EDGE) * ((KNOTS - 1) / (2 * EDGE));
  const int first = along < KNOTS - 2 ? (int)along : KNOTS - 2;
  const uint32_t shade =
      in_code(m) ? ot_squeeze_mix(m->known | p->opcodes[0] << 8,
                                  (uint32_t)p->part << 3 | (uint32_t)operand_index(p)) >>
                       20
                 : m->known | (before(m, 1) & 15) << 8;
  m->knot = &m->curve[shade][first];
  m->between = along - (float)first;
  return (m->mixed + m->knot[0] + (m->knot[1] - m->knot[0]) * m->between) / 2;
}

static float predict(model *m) {
  float *const input = (float *)m->input;
  const uint32_t at = node(m);
  for (int i = 0; i < CONTEXTS; i++) {
    const uint32_t counter = m->line[i][at];
    input[i] = (counter & 15) == 0 ? 0 : m->odds[counter >> 4];
  }
  input[CONTEXTS] = matched(m);
  choose_views(m);
  float odds = 0;
  for (int v = 0; v < VIEWS; v++) {
    const lanes *const weight = m->weight[v][m->view[v]];
    lanes total = m->input[0] * weight[0];
    for (int i = 1; i < VECTORS; i++) total += m->input[i] * weight[i];
    m->seen[v] = limited(sum(total));
    m->chance[v] = chance_of(m, m->seen[v]);
    odds += m->seen[v] * m->last_weight[m->last_view][v];
  }
  m->mixed = chance_of(m, odds);
  return corrected(m, limited(odds));
}

// ---- learning ----

static void learn_match(model *m, uint32_t bit) {
  if (m->match_length == 0) return;
  const uint32_t next = m->bytes[m->match] | 256u;
  if (next >> (8 - m->bit) != m->known) {
    m->match_length = 0;
    return;
  }
  const int64_t length = m->match_length < 31 ? m->match_length : 31;
  const bool hit = (next >> (7 - m->bit) & 1) == bit;
  m->match_chance[length] += ((hit ? 1.0f : 0.0f) - m->match_chance[length]) * 0.015f;
  if (!hit) m->match_length = 0;
}

static void learn_counters(model *m, uint32_t bit) {
  const uint32_t at = node(m);
  for (int i = 0; i < CONTEXTS; i++) {
    uint16_t *const counter = &m->line[i][at];
    const int count = *counter & 15;
    const float chance = (float)(*counter >> 4);
    const float learned = chance + ((bit ? 4095.9f : 0.0f) - chance) * m->speed[count];
    *counter =
        (uint16_t)((uint32_t)learned << 4 | (uint32_t)(count < MOST_COUNT ? count + 1 : count));
  }
}

static void learn(model *m, uint32_t bit) {
  const float wrong = ((float)bit - m->mixed) * 0.002f;
  for (int v = 0; v < VIEWS; v++) {
    lanes *const weight = m->weight[v][m->view[v]];
    const float error = ((float)bit - m->chance[v]) * m->rate;
    m->last_weight[m->last_view][v] += wrong * m->seen[v];
    for (int i = 0; i < VECTORS; i++)
      weight[i] += m->input[i] * (lanes){error, error, error, error};
  }
  m->knot[0] += ((float)bit - m->knot[0]) * (1 - m->between) * 0.025f;
  m->knot[1] += ((float)bit - m->knot[1]) * m->between * 0.025f;
  learn_counters(m, bit);
  learn_match(m, bit);
}

// ---- bytes ----

// The longest match is looked for where none goes on.
static void find_match(model *m) {
  if (m->match_length > 0) {
    m->match++;
    if (m->match_length < 1 << 16) m->match_length++;
  }
  if (m->at < 6) return;
  int32_t *const slot =
      &m->matches[ot_squeeze_mix(ot_squeeze_mix(last_four(m), before(m, 5)), before(m, 6)) >> 16];
  if (m->match_length == 0 && *slot > 0) {
    int64_t length = 0;
    while (length < 32 && *slot > length &&
           m->bytes[*slot - 1 - length] == m->bytes[m->at - 1 - length])
      length++;
    m->match = *slot;
    m->match_length = length < 5 ? 0 : length;
  }
  *slot = (int32_t)m->at;
}

static void begin_byte(model *m) {
  m->known = 1;
  m->bit = 0;
  m->rate = 0.009f + 0.03f / (1 + (float)m->at * (1 / 2000.0f));
  if (in_code(m)) {
    code_contexts(m);
  } else {
    data_contexts(m);
  }
  find_lines(m);
}

static void add_bit(model *m, uint32_t bit) {
  learn(m, bit);
  m->known = m->known << 1 | bit;
  m->bit++;
  if (m->bit == 4) find_lines(m);
}

static void end_byte(model *m, uint8_t byte) {
  const bool letter = ((byte | 32) >= 'a' && (byte | 32) <= 'z') || byte == '_';
  if (in_code(m)) ot_place_pass(&m->place, byte);
  m->at++;
  if (letter) {
    m->word = ot_squeeze_mix(m->word, byte);
  } else if (m->word != 0) {
    m->word_before = m->word;
    m->word = 0;
  }
  find_match(m);
}

// ---- tables ----

// e^-x as a power of 1 - x / 4096.
static float chance_exactly(float odds) {
  float e = 1 - odds / 4096;
  for (int i = 0; i < 12; i++) e *= e;
  return 1 / (1 + e);
}

static void fill_tables(model *m) {
  float odds = -EDGE;
  for (int i = 0; i < STEPS; i++) {
    m->chances[i] = chance_exactly((float)i * (2 * EDGE / (STEPS - 1)) - EDGE);
    const float chance = ((float)i + 0.5f) / STEPS;
    while (odds < EDGE && chance_exactly(odds) < chance) odds += 1 / 256.0f;
    m->odds[i] = odds;
  }
  for (int i = 0; i < COUNTERS; i++) m->fresh[i] = 1u << 15;
  for (int i = 0; i <= MOST_COUNT; i++) m->speed[i] = 1 / ((float)i + 1.25f);
}

static model *begin(const uint8_t *bytes, int64_t code_from, int64_t code_to) {
  model *const m = &whole;
  memset(m, 0, sizeof *m);
  m->bytes = bytes;
  m->code_from = code_from;
  m->code_to = code_to;
  fill_tables(m);
  for (int v = 0; v < VIEWS; v++) {
    for (int i = 0; i < PLACES; i++) {
      for (int k = 0; k < VECTORS; k++) m->weight[v][i][k] = (lanes){0.22f, 0.22f, 0.22f, 0.22f};
      m->last_weight[i][v] = 1.0f / VIEWS;
    }
  }
  for (int i = 0; i < SHADES; i++) {
    for (int k = 0; k < KNOTS; k++)
      m->curve[i][k] = chance_of(m, (float)k * (2 * EDGE / (KNOTS - 1)) - EDGE);
  }
  m->row_chance = 0.5f;
  for (int i = 0; i < 32; i++) m->match_chance[i] = i >= 16 ? 0.9f : 0.7f;
  return m;
}

// ---- rows of zeros: after one, a bit tells whether another follows, and no byte of it is coded
// ----

enum { ROW = 32 };

static bool is_zero(const uint8_t *bytes) {
  for (int i = 0; i < ROW; i++) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

static bool may_be_zero(const model *m, int64_t size) {
  return m->at >= ROW && m->at + ROW <= size && !in_code(m) && is_zero(m->bytes + m->at - ROW);
}

static void learn_row(model *m, bool zero) {
  m->row_chance += ((zero ? 1.0f : 0.0f) - m->row_chance) * 0.05f;
  if (!zero) return;
  m->at += ROW;
  m->match_length = 0;
}

// ---- the coder ----

static uint32_t split(const coder *c, float chance) {
  const uint32_t exact = (uint32_t)(chance * 65536);
  const uint32_t share = exact < 1 ? 1 : exact > 65535 ? 65535 : exact;
  return c->low + (uint32_t)((uint64_t)(c->high - c->low) * share >> 16);
}

static void narrow(coder *c, uint32_t at, uint32_t bit) {
  if (bit) {
    c->high = at;
  } else {
    c->low = at + 1;
  }
}

static bool is_known(const coder *c) { return (c->low ^ c->high) >> 24 == 0; }

static void widen(coder *c) {
  c->low <<= 8;
  c->high = c->high << 8 | 255;
}

static void put_byte(coder *c, uint32_t byte) {
  if (c->next < c->length) c->out[c->next] = (uint8_t)byte;
  c->next++;
}

static void put_bit(coder *c, float chance, uint32_t bit) {
  narrow(c, split(c, chance), bit);
  for (; is_known(c); widen(c)) put_byte(c, c->high >> 24);
}

static void get_byte(coder *c) {
  c->value = c->value << 8 | (c->next < c->length ? c->in[c->next] : 0);
  c->next++;
}

static uint32_t get_bit(coder *c, float chance) {
  const uint32_t at = split(c, chance), bit = c->value <= at;
  narrow(c, at, bit);
  for (; is_known(c); widen(c)) get_byte(c);
  return bit;
}

static void put_number(uint8_t *out, int64_t value) {
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static int64_t get_number(const uint8_t *in) {
  return in[0] | in[1] << 8 | in[2] << 16 | (int64_t)in[3] << 24;
}

// Whether a row of zeros follows, which then is done with.
static bool put_row(model *m, coder *c, int64_t size) {
  if (!may_be_zero(m, size)) return false;
  const bool zeros = is_zero(m->bytes + m->at);
  put_bit(c, m->row_chance, zeros);
  learn_row(m, zeros);
  return zeros;
}

int64_t ot_squeeze_pack(const ot_squeeze *of, uint8_t *out, int64_t room) {
  model *const m = begin(of->bytes, of->code_from, of->code_to);
  coder c = {.high = UINT32_MAX, .out = out, .next = OT_SQUEEZE_HEAD, .length = room};
  put_number(out, of->size);
  put_number(out + 4, of->code_from);
  put_number(out + 8, of->code_to);
  while (m->at < of->size) {
    if (put_row(m, &c, of->size)) continue;
    const uint8_t byte = of->bytes[m->at];
    begin_byte(m);
    for (int i = 7; i >= 0; i--) {
      put_bit(&c, predict(m), byte >> i & 1);
      add_bit(m, byte >> i & 1);
    }
    end_byte(m, byte);
  }
  for (int i = 24; i >= 0; i -= 8) put_byte(&c, c.high >> i);
  return c.next <= room ? c.next : -1;
}

// Whether a row of zeros follows, which then is written.
static bool get_row(model *m) {
  if (!may_be_zero(m, m->size)) return false;
  const bool zeros = get_bit(&m->coder, m->row_chance);
  if (zeros) memset(m->out + m->at, 0, ROW);
  learn_row(m, zeros);
  return zeros;
}

void ot_squeeze_unpack_begin(const uint8_t *packed, int64_t length, uint8_t *out) {
  model *const m = begin(out, get_number(packed + 4), get_number(packed + 8));
  m->out = out;
  m->size = get_number(packed);
  m->coder = (coder){.high = UINT32_MAX, .in = packed, .next = OT_SQUEEZE_HEAD, .length = length};
  for (int i = 0; i < 4; i++) get_byte(&m->coder);
}

bool ot_squeeze_unpack(int64_t count) {
  model *const m = &whole;
  for (; count > 0 && m->at < m->size; count--) {
    if (get_row(m)) continue;
    begin_byte(m);
    for (int i = 0; i < 8; i++) add_bit(m, get_bit(&m->coder, predict(m)));
    m->out[m->at] = (uint8_t)m->known;
    end_byte(m, (uint8_t)m->known);
  }
  return m->at < m->size;
}
