"""llama.cpp's flags: what each may do. From the argument table of llama-server, November 2026, with
names of older builds, and the settings of llama-cpp-python.
"""

from reconciler.manifest.flag_rules import FlagRules, Why, table, words

LLAMA_RULES = FlagRules(
    ours=table(
        ("host port reuse_port api_prefix root_path model m metrics offline", Why.OURS),
        ("embedding embeddings rerank reranking", Why.TYPE),
        ("alias a tags model_alias", Why.NAME),
        ("device dev main_gpu mg split_mode sm tensor_split ts device_draft devd", Why.DEVICE),
        ("spec_draft_device mmproj_device mmdev", Why.DEVICE),
        ("api_key api_key_file", Why.KEY),
        ("ssl_key_file ssl_cert_file cors_origins cors_methods cors_headers", Why.LOOPBACK),
        ("cors_credentials ssl_keyfile ssl_certfile", Why.LOOPBACK),
        ("log_file log_disable", Why.LOGS),
        ("hf_repo hf hfr hf_file hff hf_repo_v hfv hfrv hf_file_v hffv hf_token hft", Why.HUB),
        (
            "hf_repo_draft hfd hfrd spec_draft_hf docker_repo dr model_url mu mmproj_url mmu",
            Why.HUB,
        ),
        ("embd_gemma_default fim_qwen_1.5b_default fim_qwen_3b_default", Why.HUB),
        ("fim_qwen_7b_default fim_qwen_7b_spec fim_qwen_14b_spec fim_qwen_30b_default", Why.HUB),
        ("gpt_oss_20b_default gpt_oss_120b_default vision_gemma_4b_default", Why.HUB),
        ("vision_gemma_12b_default hf_model_repo_id hf_pretrained_model_name_or_path", Why.HUB),
        ("models_dir models_preset models_max models_autoload", Why.ROUTER),
        ("sleep_idle_seconds", Why.SLEEP),
        ("rpc rpc_servers nnodes", Why.SEVERAL_NODES),
        ("config_file", Why.CONFIG),
        ("help h usage version license licenses list_devices cache_list cl", Why.EXITS),
        ("completion_bash fit_print", Why.EXITS),
    ),
    asked=table(
        ("tools tools_runtime agent ag ui_mcp_proxy webui_mcp_proxy mcp_servers_config", Why.CODE),
        ("mcp_servers_json video_ffmpeg_dir trust_remote_code", Why.CODE),
        ("path media_path slot_save_path lookup_cache_dynamic lcd prompt_cache", Why.FILES),
        ("log_prompts_dir", Why.FILES),
        ("verbose log_verbose v", Why.LOGGED),
    ),
    files=words(
        """
        lora lora_scaled control_vector control_vector_scaled mmproj mm model_draft md
        spec_draft_model chat_template_file grammar_file json_schema_file jf lookup_cache_static
        lcs ui_config_file webui_config_file model_vocoder mv tts_speaker_file binary_file file
        in_file system_prompt_file lora_path lora_base clip_model_path hf_tokenizer_config_path
        """
    ),
    texts=words(
        """
        chat_template chat_template_kwargs dry_sequence_breaker grammar json_schema logit_bias
        kv_overrides override_kv override_tensor
        reasoning_budget_message reverse_prompt ui_config webui_config
        """
    ),
    values={
        "cache_type": (words("ram"), Why.CODE),  # that on disk is of pickles
        "verbosity": (words("-1 0 1 2 3"), Why.LOGGED),  # 4 is debug
        "log_verbosity": (words("-1 0 1 2 3"), Why.LOGGED),
    },
    free=words(
        """
        adaptive_decay adaptive_target backend_sampling batch_size cache cache_idle_slots
        cache_prompt cache_ram cache_reuse cache_size cache_type cache_type_k cache_type_k_draft
        cache_type_v cache_type_v_draft chat_format chat_template chat_template_kwargs
        check_tensors checkpoint_min_step cont_batching context_shift control_vector_layer_range
        cpu_mask cpu_mask_batch cpu_mask_batch_draft cpu_mask_draft cpu_moe cpu_moe_draft
        cpu_range cpu_range_batch cpu_range_draft cpu_strict cpu_strict_batch
        cpu_strict_batch_draft cpu_strict_draft ctx_checkpoints ctx_size ctx_size_draft
        defrag_thold direct_io disable_ping_events draft draft_max draft_min draft_model
        draft_model_num_pred_tokens draft_n draft_n_min draft_p_min draft_p_split
        dry_allowed_length dry_base dry_multiplier dry_penalty_last_n dry_sequence_breaker
        dynatemp_exp dynatemp_range embd_normalize escape fit fit_ctx fit_target flash_attn
        frequency_penalty gpu_layers gpu_layers_draft grammar group_attn_n group_attn_w ignore_eos
        image_max_tokens image_min_tokens interrupt_requests jinja json_schema keep kv_offload
        kv_overrides kv_unified kv_unified_per_slot last_n_tokens_size load_mode log_colors
        log_jsonl log_prefix log_timestamps log_verbosity logit_bias logits_all
        lora_init_without_apply min_p mirostat mirostat_ent mirostat_lr mlock mmap mmproj_auto
        mmproj_offload mtmd_batch_max_tokens mul_mat_q n_batch n_cpu_moe n_cpu_moe_draft n_ctx
        n_gpu_layers n_gpu_layers_draft n_predict n_threads n_threads_batch n_ubatch no_host
        no_mmproj numa offload_kqv op_offload override_kv override_tensor override_tensor_draft
        parallel perf poll poll_batch poll_batch_draft poll_draft pooling predict
        prefill_assistant presence_penalty prio prio_batch prio_batch_draft prio_draft props
        reasoning reasoning_budget reasoning_budget_message reasoning_effort reasoning_format
        reasoning_preserve repack repeat_last_n repeat_penalty reverse_prompt rope_freq_base
        rope_freq_scale rope_scale rope_scaling rope_scaling_type sampler_seq samplers
        sampling_seq seed skip_chat_parsing slot_prompt_similarity slots spec_default
        spec_draft_backend_sampling spec_draft_cpu_mask spec_draft_cpu_mask_batch
        spec_draft_cpu_moe spec_draft_cpu_range spec_draft_cpu_strict spec_draft_cpu_strict_batch
        spec_draft_ctx_size spec_draft_n_cpu_moe spec_draft_n_max spec_draft_n_min
        spec_draft_ncmoe spec_draft_ngl spec_draft_override_tensor spec_draft_p_min
        spec_draft_p_split spec_draft_poll spec_draft_poll_batch spec_draft_prio
        spec_draft_prio_batch spec_draft_threads spec_draft_threads_batch spec_draft_type_k
        spec_draft_type_v spec_ngram_map_k4v_min_hits spec_ngram_map_k4v_size_m
        spec_ngram_map_k4v_size_n spec_ngram_map_k_min_hits spec_ngram_map_k_size_m
        spec_ngram_map_k_size_n spec_ngram_min_hits spec_ngram_mod_n_match spec_ngram_mod_n_max
        spec_ngram_mod_n_min spec_ngram_simple_min_hits spec_ngram_simple_size_m
        spec_ngram_simple_size_n spec_ngram_size_m spec_ngram_size_n spec_type special spm_infill
        sse_ping_interval swa_checkpoints swa_full temp temperature threads threads_batch
        threads_batch_draft threads_draft threads_http timeout top_k top_n_sigma top_nsigma top_p
        tts_use_guide_tokens type_k type_v typical typical_p ubatch_size ui ui_config use_mlock
        use_mmap verbosity vocab_only warmup webui webui_config xtc_probability xtc_threshold
        yarn_attn_factor yarn_beta_fast yarn_beta_slow yarn_ext_factor yarn_orig_ctx
        """
    ),
)
