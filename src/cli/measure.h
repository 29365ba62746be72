// SPDX-License-Identifier: Apache-2.0
// The rates of this machine, by running kernels and communication: what `orthant bench` writes and
// predictions read.
#pragma once

#include "describe/cluster.h"

// Measures one rank of `threads` threads, `ranks` of which work at the same time on this machine
// (they share its memory and its cores), and the link between two of them. Text is static. About
// three seconds. Blocks.
ot_status ot_measure_machine(int ranks, int threads, ot_cluster *out);
