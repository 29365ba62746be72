// SPDX-License-Identifier: Apache-2.0
// Files that all ranks read, each on its host, must have the same content on all: else ranks would
// train on other tokens, or from other weights, without a word. Contents are compared by hashes of
// bounded cost (files/content_hash.h).
#pragma once

#include "data/data_loader.h"
#include "runtime/run_world.h"

// OT_RANKS, naming rank, host and file, unless token files, validation sets and the tokenizer of
// `loader` are the same on all ranks. Collective over the world.
ot_status ot_same_data_check(ot_world *world, const ot_data_loader *loader);

// The same for the weights at `path`: a checkpoint, whose manifest has the hashes of its files,
// with which each read is compared; an HF directory or a tensor file. Collective over the world.
ot_status ot_same_weights_check(ot_world *world, const char *path);
