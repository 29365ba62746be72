#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. docs/schedule.md matches the headers.
exec tools/schedule_docs.sh --check
