"""vLLM's flags: what each may do. From the argument tables of 0.17 and 0.32, with older ones."""

from reconciler.manifest.flag_rules import FlagRules, Why, table, words

_OLDER = """
    cuda_graph_sizes disable_async_output_proc disable_log_requests disable_mm_preprocessor_cache
    enable_multimodal_encoder_data_parallel enable_prompt_adapter enable_reasoning
    eplb_log_balancedness eplb_step_interval eplb_window_size guided_decoding_backend
    guided_decoding_disable_additional_properties guided_decoding_disable_any_whitespace
    guided_decoding_disable_fallback long_lora_scaling_factors
    lora_extra_vocab_size max_seq_len_to_capture multi_step_stream_outputs num_lookahead_slots
    num_redundant_experts num_scheduler_steps override_pooler_config preemption_mode rope_scaling
    rope_theta scheduler_delay_factor use_v2_block_manager
"""
"""Of versions before 0.17."""

VLLM_RULES = FlagRules(
    ours=table(
        ("host port uds root_path data_parallel_rpc_port grpc grpc_port", Why.OURS),
        ("disable_log_stats", "the agent reads these counts"),
        (
            "enable_sleep_mode sleep_mode_offload_cudagraph sleep_preserve_parameter_names",
            Why.SLEEP,
        ),
        (
            "model model_tag revision code_revision tokenizer_revision download_dir hf_token",
            Why.HUB,
        ),
        ("task runner convert", Why.TYPE),
        ("served_model_name", Why.NAME),
        ("device device_ids gpu_ids", Why.DEVICE),
        ("tensor_parallel_size tp pipeline_parallel_size pp", "use the field of that name"),
        ("gpu_memory_utilization device_memory_utilization", "use gpu_memory"),
        ("api_key", Why.KEY),
        ("ssl_keyfile ssl_certfile ssl_ca_certs ssl_cert_reqs ssl_ciphers", Why.LOOPBACK),
        ("enable_ssl_refresh allowed_origins allowed_methods allowed_headers", Why.LOOPBACK),
        ("allow_credentials", Why.LOOPBACK),
        ("log_config_file logging_config_file logging_config", Why.LOGS),
        ("config", Why.CONFIG),
        ("nnodes n node_rank r master_addr master_port headless", Why.SEVERAL_NODES),
        ("distributed_executor_backend data_parallel_address", Why.SEVERAL_NODES),
        ("data_parallel_backend data_parallel_hybrid_lb", Why.SEVERAL_NODES),
        (
            "data_parallel_external_lb data_parallel_rank data_parallel_start_rank",
            Why.SEVERAL_NODES,
        ),
        ("data_parallel_size_local data_parallel_multi_port_external_lb", Why.SEVERAL_NODES),
        ("data_parallel_supervisor_port enable_elastic_ep", Why.SEVERAL_NODES),
        ("elastic_ep_max_dp_size dp_supervisor_probe_failure_threshold", Why.SEVERAL_NODES),
        ("dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s", Why.SEVERAL_NODES),
        ("help h version", Why.EXITS),
    ),
    asked=table(
        ("trust_remote_code middleware tool_parser_plugin reasoning_parser_plugin", Why.CODE),
        ("io_processor_plugin tool_server worker_cls worker_extension_cls scheduler_cls", Why.CODE),
        ("logits_processors model_class_overrides kv_transfer_config ec_transfer_config", Why.CODE),
        ("ec_manager_config additional_config weight_transfer_config", Why.CODE),
        ("ray_workers_use_nsight logits_processor_pattern", Why.CODE),
        ("allowed_local_media_path profiler_config mm_encoder_fp8_scale_save_path", Why.FILES),
        ("kv_events_config otlp_traces_endpoint enable_fault_tolerance", Why.NETWORK),
        ("enable_mm_embeds enable_prompt_embeds trust_request_chat_template", Why.CLIENTS),
        ("trust_request_mm_kwargs enable_scale_out", Why.CLIENTS),
        ("model_loader_extra_config", Why.WEIGHTS),
        ("enable_log_requests enable_log_outputs enable_log_deltas", Why.LOGGED),
    ),
    files=words(
        """
        chat_template lora_modules tokenizer generation_config spec_model
        mm_encoder_fp8_scale_path default_mm_loras hf_config_path
        """
    ),
    texts=words("chat_template default_chat_template_kwargs"),
    values={
        # What else there is reads pickles, or fetches from elsewhere.
        "load_format": (
            words("auto safetensors fastsafetensors sharded_state mistral dummy"),
            Why.WEIGHTS,
        ),
        "disable_log_requests": (words("True"), Why.LOGGED),
    },
    # A config may name Python objects to import, and folders to read and write.
    keys={
        "compilation_config": words(
            """
            mode level backend custom_ops ir_enable_torch_wrap splitting_ops compile_mm_encoder
            cudagraph_mm_encoder encoder_cudagraph_token_budgets
            encoder_cudagraph_max_vision_items_per_batch encoder_cudagraph_max_frames_per_batch
            cudagraph_decoder_replay decoder_replay_cudagraph_capture_sizes
            decoder_replay_trim_threshold compile_sizes compile_ranges_endpoints
            compile_ranges_split_points cudagraph_mode cudagraph_num_of_warmups
            cudagraph_capture_sizes cudagraph_copy_inputs cudagraph_specialize_lora use_cudagraph
            full_cuda_graph use_inductor use_inductor_graph_partition pass_config
            max_cudagraph_capture_size max_capture_size dynamic_shapes_config fast_moe_cold_start
            """
        ),
        "speculative_config": words(
            """
            enforce_eager num_speculative_tokens model method draft_tensor_parallel_size
            quantization moe_backend attention_backend kv_cache_dtype max_model_len
            index_share_for_mtp_iteration disable_padded_drafter_batch disable_eagle_block_drop
            use_local_argmax_reduction use_heterogeneous_vocab prompt_lookup_max prompt_lookup_min
            parallel_drafting num_speculative_tokens_per_batch_size suffix_decoding_max_tree_depth
            suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
            suffix_decoding_min_token_prob rejection_sample_method synthetic_acceptance_rates
            synthetic_acceptance_length enable_adaptive_verification draft_sample_method
            dspark_draft_topk disable_by_batch_size disable_logprobs speculative_token_tree
            """
        ),
        "structured_outputs_config": words(
            """
            backend disable_fallback disable_any_whitespace disable_additional_properties
            reasoning_parser enable_in_reasoning
            """
        ),
        "attention_config": words(
            """
            backend minimax_m3_msa_decode_backend backend_per_kind flash_attn_version
            flash_attn_max_num_splits_for_cuda_graph tokenspeed_mla_min_split_kv
            tq_max_kv_splits_for_cuda_graph use_trtllm_attention disable_flashinfer_prefill
            use_cudnn_prefill use_trtllm_ragged_deepseek_prefill use_prefill_decode_attention
            disable_flashinfer_q_quantization mla_prefill_backend use_prefill_query_quantization
            indexer_kv_dtype indexer_sparse_logits hisparse_config use_non_causal
            sparse_mla_force_mqa sparse_mla_prefill_workspace_factor flex_attn_block_m
            flex_attn_block_n flex_attn_q_block_size flex_attn_kv_block_size
            """
        ),
        "kernel_config": words(
            """
            ir_op_priority enable_flashinfer_autotune enable_rocm_segmented_attn_autotune
            enable_cutedsl_warmup enable_jit_warmup moe_backend sparse_indexer_topk_backend
            linear_backend linear_backend_per_quant
            """
        ),
        "pooler_config": words(
            """
            task pooling_type seq_pooling_type tok_pooling_type use_activation normalize softmax
            activation enable_flash_late_interaction dimensions enable_chunked_processing
            max_embed_len logit_bias logit_mean logit_sigma step_tag_id returned_token_ids
            """
        ),
        "eplb_config": words(
            """
            window_size step_interval num_redundant_experts log_balancedness
            log_balancedness_interval use_async policy communicator enable_migration_batching
            """
        ),
        "reasoning_config": words(
            """
            reasoning_parser reasoning_start_str reasoning_end_str
            """
        ),
        "quantization_config": words(
            """
            linear moe ignore targets
            """
        ),
        "watermark_config": words(
            """
            key algorithm alpha context_width deduplicate_contexts
            deduplicate_contexts_max_history prf allow_target_only_watermarking
            """
        ),
        "diffusion_config": words(
            """
            canvas_length max_denoising_steps
            """
        ),
        "engram_config": words(
            """
            cpu_offload embedding_across_dp dp_shared_memory use_thp
            """
        ),
        "aux_output_config": words(
            """
            enable_return_routed_experts max_bytes
            """
        ),
        "fault_tolerance_config": words(
            """
            engine_recovery_timeout_sec
            """
        ),
    },
    free=words(
        _OLDER
        + """
        aggregate_engine_logging all2all_backend allow_deprecated_quantization
        allowed_media_domains anthropic_disabled_thinking_effort api_server_count async_scheduling
        attention_backend attention_config aux_output_config block_size calculate_kv_scales
        chat_template_content_format cohere_format cohere_is_reasoning_model
        collect_detailed_traces compilation_config config_format cp_kv_cache_interleave_size
        cpu_distributed_timeout_seconds cpu_offload_gb cpu_offload_params cudagraph_capture_sizes
        cudagraph_metrics custom_histogram_buckets data_parallel_size dbo_decode_token_threshold
        dbo_prefill_token_threshold dcp_comm_backend dcp_kv_cache_interleave_size dcp_q_replicate
        decode_context_parallel_size default_chat_template_kwargs diffusion_config
        disable_access_log_for_endpoints disable_cascade_attn disable_chunked_mm_input
        disable_custom_all_reduce disable_fastapi_docs disable_frontend_multiprocessing
        disable_hybrid_kv_cache_manager disable_nccl_for_dp_synchronization disable_sliding_window
        disable_uvicorn_access_log distributed_timeout_seconds dp_sync_interval dtype
        enable_auto_tool_choice enable_batch_sharded_sampling enable_chunked_prefill
        enable_cumem_allocator enable_dbo enable_ep_weight_filter enable_eplb
        enable_expert_parallel enable_flash_late_interaction enable_flashinfer_autotune
        enable_force_include_usage enable_hc_sp enable_layerwise_nvtx_tracing
        enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
        enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format
        enable_moe_shared_loras enable_nccl_comm_suspend enable_offline_docs
        enable_per_request_metrics enable_prefix_caching enable_prompt_tokens_details
        enable_request_id_headers enable_return_routed_experts enable_server_load_tracking
        enable_shm_tensor_arena enable_tokenizer_info_endpoint enable_tower_connector_lora
        enable_trace_replay enforce_eager engram_config eplb_config
        exclude_tools_when_tool_choice_none expert_placement_strategy fail_on_environ_validation
        fault_tolerance_config fingerprint_mode fingerprint_value fully_sharded_loras
        gdn_prefill_backend h11_max_header_count h11_max_incomplete_event_size hf_overrides
        ignore_patterns interleave_mm_strings ir_op_priority jit_monitor_mode jit_monitor_verbose
        kda_decode_backend kda_prefill_backend kernel_config kv_cache_dtype
        kv_cache_dtype_skip_layers kv_cache_memory_bytes kv_cache_metrics kv_cache_metrics_sample
        kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill language_model_only
        limit_mm_per_prompt linear_backend load_format log_error_stack log_level logprobs_mode
        long_prefill_token_threshold long_prefill_token_threshold_adaptive lora_dtype
        lora_target_modules mamba_backend mamba_block_size mamba_cache_dtype mamba_cache_mode
        mamba_cache_philox_rounds mamba_ssm_cache_dtype mamba_ssu_algorithm max_cpu_loras
        max_cudagraph_capture_size max_log_len max_logprobs max_long_partial_prefills
        max_lora_cls_labels max_lora_rank max_loras max_model_len max_num_active_seqs
        max_num_batched_tokens max_num_partial_prefills max_num_queued_reqs max_num_queued_tokens
        max_num_scheduled_tokens max_num_seqs max_parallel_loading_workers media_io_kwargs
        mm_device_do_normalize mm_encoder_attn_backend mm_encoder_attn_dtype
        mm_encoder_fp8_scale_save_margin mm_encoder_only mm_encoder_tp_mode mm_hasher_algorithm
        mm_ipc_gpu_memory_gb mm_processor_cache_gb mm_processor_cache_type mm_processor_device
        mm_processor_kwargs mm_shm_cache_max_object_size_mb mm_tensor_ipc model_impl moe_backend
        num_gpu_blocks_override numa_bind numa_bind_cpus numa_bind_nodes offload_backend
        offload_group_size offload_num_in_group offload_params offload_prefetch_step
        optimization_level override_attention_dtype override_generation_config
        per_request_spec_decode_metrics performance_mode pooler_config
        prefill_context_parallel_size prefill_schedule_interval prefix_cache_retention_interval
        prefix_caching_hash_algo prefix_match_unit pt_load_map_location quantization
        quantization_config reasoning_config reasoning_parser renderer_num_workers
        replayssm_buffer_len response_role return_sampling_mask return_tokens_as_token_ids
        safetensors_load_strategy safetensors_prefetch_block_size safetensors_prefetch_num_threads
        scheduler_reserve_full_isl scheduling_policy seed show_hidden_metrics_for_version
        shutdown_timeout skip_mm_profiling skip_tokenizer_init sparse_indexer_topk_backend
        spec_method spec_tokens specialize_active_lora speculative_config sse_keep_alive_interval
        stream_interval structured_outputs_config swa_bounded_replay swap_space tokenizer_mode
        tokens_only tool_call_parser tool_strict_level ubatch_size use_fp64_gumbel
        use_gpu_for_pooling_score use_replayssm use_tqdm_on_load uvicorn_log_level
        video_pruning_method video_pruning_rate watermark watermark_config
        """
    ),
    abbreviated=True,
)
