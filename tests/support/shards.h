// SPDX-License-Identifier: Apache-2.0
// Token shards for tests, written byte by byte without our writer.
#pragma once

#include <stdint.h>

// DIRECTORY/NAME.bin and .idx of u16 tokens 0, 1, 2, ... (each + `offset`), in documents of
// `lengths` [count] tokens.
void shard_write(const char *directory, const char *name, const int32_t *lengths, int count,
                 int offset);

// DIRECTORY/NAME: an llm.c file of `count` tokens, u16 (magic 20240520) or u32 (20240801).
void shard_write_llmc(const char *directory, const char *name, const int32_t *ids, int count,
                      int wide);
