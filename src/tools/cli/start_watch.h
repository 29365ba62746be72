// SPDX-License-Identifier: Apache-2.0
// Ends a program whose libraries never start. Where the address space is limited, OpenBLAS of
// Debian 13 tries for ever to map its buffer, before main.
#pragma once

// The libraries have started. Called first in main.
void ot_start_watch_end(void);
