// SPDX-License-Identifier: Apache-2.0
// The signals that ask a program to end: SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP (the terminal is
// gone) and SIGXCPU (the limit of processor time is near).
#pragma once

#include <signal.h>
#include <stdbool.h>

// Calls `handler` at each of them; `flags` as of sigaction. A SIGHUP that the process ignored when
// it began (nohup) stays ignored.
void ot_end_signals_handle(void (*handler)(int number), int flags);

// Gives them their default actions back, except a SIGHUP that is ignored.
void ot_end_signals_reset(void);

// Ignores SIGHUP again if the process began so: before it executes another program.
void ot_end_signals_keep(void);

// Adds them to `set`.
void ot_end_signals_add(sigset_t *set);

// Whether a second signal of this kind ends the program at once. Others may come again and again.
bool ot_end_signal_insists(int number);
