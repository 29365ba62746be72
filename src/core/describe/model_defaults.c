// SPDX-License-Identifier: Apache-2.0
// Ignored HF keys, and the defaults of each family.
#include <stddef.h>

#include "base/text.h"
#include "describe/model_tables.h"

// Keys that do not affect the mathematics of training.
const char ot_inert_model_keys[] =
    "_name_or_path|name_or_path|architectures|transformers_version|use_cache|"
    "cache_implementation|pretraining_tp|return_dict|output_hidden_states|"
    "output_attentions|torchscript|use_bfloat16|tf_legacy_loss|is_decoder|"
    "cross_attention_hidden_size|tie_encoder_decoder|tie_last_hidden_states|"
    "chunk_size_feed_forward|max_length|min_length|do_sample|early_stopping|num_beams|"
    "num_beam_groups|diversity_penalty|temperature|top_k|top_p|typical_p|"
    "repetition_penalty|length_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|"
    "bad_words_ids|num_return_sequences|output_scores|return_dict_in_generate|"
    "forced_bos_token_id|forced_eos_token_id|remove_invalid_values|"
    "exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens|finetuning_task|"
    "id2label|label2id|num_labels|tokenizer_class|prefix|sep_token_id|"
    "decoder_start_token_id|task_specific_params|problem_type|attn_implementation|"
    "_attn_implementation|_attn_implementation_autoset|_attn_implementation_internal|"
    "gradient_checkpointing|summary_type|summary_use_proj|summary_activation|"
    "summary_proj_to_labels|summary_first_dropout|n_ctx|_sliding_window_pattern|"
    "output_router_logits|ep_size|num_nextn_predict_layers|num_mtp_layers|qk_head_dim";

// Defaults of families where the key's own default belongs to another family (transformers 5.23;
// 4.x is the same unless a comment says otherwise).
static const struct {
  uint32_t families;
  const char *key;
  const char *text;
} family_defaults[] = {
    {OT_IN_GPT2, "vocab_size", "50257"},
    {OT_IN_QWEN2 | OT_IN_QWEN3 | OT_IN_QWEN3_MOE | OT_IN_QWEN2_MOE, "vocab_size", "151936"},
    {OT_IN_OLMO2 | OT_IN_OLMOE | OT_IN_OLMO3, "vocab_size", "50304"},
    {OT_IN_DEEPSEEK_V3, "vocab_size", "129280"},
    {OT_IN_GPT_OSS, "vocab_size", "201088"},
    {OT_IN_GEMMA2, "vocab_size", "256000"},
    {OT_IN_GEMMA3, "vocab_size", "262208"},
    {OT_IN_SMOLLM3, "vocab_size", "128256"},
    {OT_IN_PHI3, "vocab_size", "32064"},
    {OT_IN_GEMMA, "hidden_size", "2304"},
    {OT_IN_GPT_OSS, "hidden_size", "2880"},
    {OT_IN_PHI3, "hidden_size", "3072"},
    {OT_IN_QWEN3_MOE | OT_IN_OLMOE | OT_IN_SMOLLM3 | OT_IN_QWEN2_MOE, "hidden_size", "2048"},
    {OT_IN_DEEPSEEK_V3, "hidden_size", "7168"},
    {OT_IN_QWEN2 | OT_IN_QWEN3, "intermediate_size", "22016"},
    {OT_IN_MISTRAL | OT_IN_MIXTRAL, "intermediate_size", "14336"},
    {OT_IN_QWEN3_MOE, "intermediate_size", "6144"},
    {OT_IN_OLMOE, "intermediate_size", "2048"},
    {OT_IN_DEEPSEEK_V3, "intermediate_size", "18432"},
    {OT_IN_GEMMA, "intermediate_size", "9216"},
    {OT_IN_GPT_OSS, "intermediate_size", "2880"},
    {OT_IN_PHI3, "intermediate_size", "8192"},
    {OT_IN_QWEN2_MOE, "intermediate_size", "5632"},
    {OT_IN_GEMMA, "num_hidden_layers", "26"},
    {OT_IN_QWEN3_MOE | OT_IN_QWEN2_MOE, "num_hidden_layers", "24"},
    {OT_IN_OLMOE, "num_hidden_layers", "16"},
    {OT_IN_DEEPSEEK_V3, "num_hidden_layers", "61"},
    {OT_IN_SMOLLM3 | OT_IN_GPT_OSS, "num_hidden_layers", "36"},
    {OT_IN_GEMMA, "num_attention_heads", "8"},
    {OT_IN_OLMOE | OT_IN_SMOLLM3 | OT_IN_QWEN2_MOE, "num_attention_heads", "16"},
    {OT_IN_GPT_OSS, "num_attention_heads", "64"},
    {OT_IN_DEEPSEEK_V3, "num_attention_heads", "128"},
    {OT_IN_QWEN2 | OT_IN_QWEN3, "num_key_value_heads", "32"},
    {OT_IN_QWEN2_MOE, "num_key_value_heads", "16"},
    {OT_IN_MISTRAL | OT_IN_MIXTRAL | OT_IN_GPT_OSS, "num_key_value_heads", "8"},
    {OT_IN_GEMMA | OT_IN_QWEN3_MOE | OT_IN_SMOLLM3, "num_key_value_heads", "4"},
    {OT_IN_QWEN3, "head_dim", "128"},
    {OT_IN_GEMMA, "head_dim", "256"},
    {OT_IN_GPT_OSS, "head_dim", "64"},
    {OT_IN_QWEN2 | OT_IN_QWEN3 | OT_IN_QWEN3_MOE | OT_IN_SMOLLM3 | OT_IN_QWEN2_MOE,
     "max_position_embeddings", "32768"},
    {OT_IN_MISTRAL | OT_IN_GEMMA3 | OT_IN_MIXTRAL | OT_IN_GPT_OSS, "max_position_embeddings",
     "131072"},
    {OT_IN_OLMOE | OT_IN_DEEPSEEK_V3 | OT_IN_PHI3, "max_position_embeddings", "4096"},
    {OT_IN_GEMMA2, "max_position_embeddings", "8192"},
    {OT_IN_OLMO2 | OT_IN_MIXTRAL | OT_IN_OLMOE | OT_IN_PHI3 | OT_IN_OLMO3 | OT_IN_GPT_OSS,
     "rms_norm_eps", "1e-05"},
    {OT_IN_GPT_OSS, "attention_bias", "true"},
    {OT_IN_GPT2 | OT_IN_GEMMA | OT_IN_SMOLLM3, "tie_word_embeddings", "true"},
    {OT_IN_GEMMA3 | OT_IN_MIXTRAL, "rope_theta", "1000000"},
    {OT_IN_SMOLLM3, "rope_theta", "2000000"},
    {OT_IN_OLMO3, "rope_theta", "500000"},
    {OT_IN_GPT_OSS, "rope_theta", "150000"},
    {OT_IN_GPT_OSS, "sliding_window", "128"},
    {OT_IN_MIXTRAL | OT_IN_SMOLLM3 | OT_IN_PHI3, "sliding_window", "null"},
    {OT_IN_GPT2, "bos_token_id", "50256"},
    {OT_IN_LLAMA | OT_IN_MISTRAL | OT_IN_MIXTRAL | OT_IN_PHI3, "bos_token_id", "1"},
    {OT_IN_DEEPSEEK_V3, "bos_token_id", "0"},
    {OT_IN_GEMMA, "bos_token_id", "2"},
    {OT_IN_SMOLLM3, "bos_token_id", "128000"},
    {OT_IN_GPT2, "eos_token_id", "50256"},
    {OT_IN_LLAMA | OT_IN_MISTRAL | OT_IN_MIXTRAL, "eos_token_id", "2"},
    {OT_IN_OLMO2 | OT_IN_OLMOE | OT_IN_OLMO3, "eos_token_id", "50279"},
    {OT_IN_GEMMA | OT_IN_DEEPSEEK_V3, "eos_token_id", "1"},
    {OT_IN_SMOLLM3, "eos_token_id", "128001"},
    {OT_IN_PHI3, "eos_token_id", "32000"},
    {OT_IN_OLMO2 | OT_IN_OLMOE | OT_IN_OLMO3, "pad_token_id", "1"},
    {OT_IN_GEMMA, "pad_token_id", "0"},
    {OT_IN_SMOLLM3, "pad_token_id", "128004"},
    {OT_IN_PHI3, "pad_token_id", "32000"},
    {OT_IN_PHI3, "resid_pdrop", "0"},
    {OT_IN_GEMMA2, "attn_logit_softcapping", "50"},
    {OT_IN_GEMMA2, "final_logit_softcapping", "30"},
    {OT_IN_MIXTRAL, "num_experts_per_tok", "2"},
    {OT_IN_QWEN2_MOE | OT_IN_GPT_OSS, "num_experts_per_tok", "4"},
    {OT_IN_GPT_OSS, "num_local_experts", "128"},
    {OT_IN_OLMOE, "num_experts", "64"},
    {OT_IN_QWEN2_MOE, "num_experts", "60"},
    {OT_IN_QWEN2_MOE, "moe_intermediate_size", "1408"},
    {OT_IN_OLMOE, "router_aux_loss_coef", "0.01"},
    {OT_IN_DEEPSEEK_V3, "moe_intermediate_size", "2048"},
    {OT_IN_DEEPSEEK_V3, "norm_topk_prob", "true"},
};

const char *ot_family_fallback(const ot_key *key, uint32_t variant) {
  for (int i = 0; i < OT_COUNT(family_defaults); i++) {
    if ((family_defaults[i].families & variant) == 0) continue;
    if (ot_text_equal(family_defaults[i].key, key->name)) return family_defaults[i].text;
  }
  return NULL;
}
