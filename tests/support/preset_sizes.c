// SPDX-License-Identifier: Apache-2.0
// The figures.
#include "support/preset_sizes.h"

const preset_size preset_sizes[] = {
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"gpt3-175b", 174604259328},
    {"llama2-7b", 6738415616},
    {"llama2-13b", 13015864320},
    {"llama2-70b", 68976648192},
    {"llama3-8b", 8030261248},
    {"llama3-70b", 70553706496},
    {"llama3.1-8b", 8030261248},
    {"llama3.1-70b", 70553706496},
    {"llama3.1-405b", 405853388800},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
    {"olmo2-7b", 7298617344},
    {"olmo2-13b", 13716198400},
    {"mistral-7b", 7241732096},
    {"gemma3-1b", 999885952},
    {"mixtral-8x7b", 46702792704},
    {"mixtral-8x22b", 140620634112},
    {"qwen3-30b-a3b", 30532122624},
    {"qwen3-235b-a22b", 235093634560},
    {"olmoe-1b-7b", 6919161856},
    {"deepseek-v3", 671026404352},
    {"smollm3-3b", 3075098624},
    {"phi3-mini-4k", 3821079552},
    {"phi4-14b", 14659507200},
    {"olmo3-7b", 7298011136},
    {"olmo3-32b", 32233522176},
    {"qwen1.5-moe-a2.7b", 14315784192},
    {"qwen2-57b-a14b", 57408658944},
};

const int preset_count = sizeof preset_sizes / sizeof preset_sizes[0];
