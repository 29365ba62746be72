#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. docs/schedule.md says what the headers say.
exec tools/schedule_docs.sh --check
