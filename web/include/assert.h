// SPDX-License-Identifier: Apache-2.0
#pragma once

#define static_assert _Static_assert
