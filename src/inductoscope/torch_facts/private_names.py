"""Every private name of torch and of Triton that this package touches: the one table.

The constants belong to hooks: a missing name switches its hook off, and nothing else. `inductoscope
env` looks up, in the installed torch, the names of the hooks that record, and all in `_DECLARED`.
Tests hold the table to what the code uses.
"""

from __future__ import annotations

from inductoscope.torch_facts.torch_names import TorchName

# --- wrapped or read by hooks ---------------------------------------------------------------------

RUN_START_CALLBACKS = TorchName(
    "torch._dynamo.callback", "CompilationCallbackHandler.run_start_callbacks"
)
CONVERT_FRAME_CALL = TorchName("torch._dynamo.convert_frame", "ConvertFrame.__call__")
CONVERT_FRAME_COMPILE = TorchName("torch._dynamo.convert_frame", "_compile")
EXCEEDS_RECOMPILE_LIMIT = TorchName("torch._dynamo.convert_frame", "exceeds_recompile_limit")
GET_AND_MAYBE_LOG_RECOMPILATION_REASONS = TorchName(
    "torch._dynamo.convert_frame", "get_and_maybe_log_recompilation_reasons"
)
TORCH_DYNAMO_CONTEXT_CALL = TorchName("torch._dynamo.eval_frame", "_TorchDynamoContext.__call__")
CHECK_FUNCTION_MANAGER_INIT = TorchName("torch._dynamo.guards", "CheckFunctionManager.__init__")
CALL_USER_COMPILER = TorchName("torch._dynamo.output_graph", "OutputGraph.call_user_compiler")
LOG_GRAPH_BREAK = TorchName(
    "torch._dynamo.symbolic_convert", "InstructionTranslatorBase.log_graph_break"
)
STARTS_LINE = TorchName("torch._dynamo.symbolic_convert", "InstructionTranslatorBase.starts_line")
INSTANT = TorchName("torch._dynamo.utils", "CompileEventLogger.instant")
AOT_LOAD = TorchName("torch._export", "aot_load")
AOT_STAGE2B_BW_COMPILE = TorchName(
    "torch._functorch._aot_autograd.graph_compile", "_aot_stage2b_bw_compile"
)
AOT_STAGE2B_FW_COMPILE = TorchName(
    "torch._functorch._aot_autograd.graph_compile", "_aot_stage2b_fw_compile"
)
AOT_DISPATCH_AUTOGRAD_GRAPH = TorchName(
    "torch._functorch._aot_autograd.graph_compile", "aot_dispatch_autograd_graph"
)
AOT_DISPATCH_BASE_GRAPH = TorchName(
    "torch._functorch._aot_autograd.graph_compile", "aot_dispatch_base_graph"
)
CURRENT_COMPILE_ID = TorchName("torch._guards", "CompileContext.current_compile_id")
AOTI_COMPILE_AND_PACKAGE = TorchName("torch._inductor", "aoti_compile_and_package")
WAIT = TorchName("torch._inductor.async_compile", "AsyncCompile.wait")
INDUCTOR_CHOICES_CAN_FUSE = TorchName("torch._inductor.choices", "InductorChoices.can_fuse")
SCORE_FUSION = TorchName("torch._inductor.choices", "InductorChoices.score_fusion")
AOT_CODE_COMPILER_COMPILE = TorchName("torch._inductor.codecache", "AotCodeCompiler.compile")
LOAD_ASYNC = TorchName("torch._inductor.codecache", "CppCodeCache.load_async")
LOAD_BY_KEY_PATH = TorchName("torch._inductor.codecache", "PyCodeCache.load_by_key_path")
COMPILED_FX_GRAPH_HASH = TorchName("torch._inductor.codecache", "compiled_fx_graph_hash")
MAKE_INPLACE = TorchName("torch._inductor.codegen.common", "KernelArgs.make_inplace")
CPP_SCHEDULING_DEFINE_KERNEL = TorchName(
    "torch._inductor.codegen.cpp", "CppScheduling.define_kernel"
)
MOVE_CODE_UNDER_INNER_LOOP = TorchName("torch._inductor.codegen.cpp", "move_code_under_inner_loop")
TRITON_SCHEDULING_DEFINE_KERNEL = TorchName(
    "torch._inductor.codegen.triton", "TritonScheduling.define_kernel"
)
PYTHON_WRAPPER_CODEGEN_GENERATE = TorchName(
    "torch._inductor.codegen.wrapper", "PythonWrapperCodegen.generate"
)
MAKE_BUFFER_REUSE = TorchName(
    "torch._inductor.codegen.wrapper", "PythonWrapperCodegen.make_buffer_reuse"
)
CODEGEN_AND_COMPILE = TorchName(
    "torch._inductor.compile_fx", "_InProcessFxCompile.codegen_and_compile"
)
RECURSIVE_JOINT_GRAPH_PASSES = TorchName(
    "torch._inductor.compile_fx", "_recursive_joint_graph_passes"
)
RECURSIVE_POST_GRAD_PASSES = TorchName("torch._inductor.compile_fx", "_recursive_post_grad_passes")
COMPILE_FX_AOT = TorchName("torch._inductor.compile_fx", "compile_fx_aot")
RUN_PRE_GRAD_PASSES = TorchName("torch._inductor.compile_fx", "run_pre_grad_passes")
RUN_COMPILE_CMD = TorchName("torch._inductor.cpp_builder", "_run_compile_cmd")
CUDAGRAPHS_LOG = TorchName("torch._inductor.cudagraph_utils", "cudagraphs_log")
LOG_IR_POST_FUSION = TorchName("torch._inductor.debug", "log_ir_post_fusion")
LOG_IR_PRE_FUSION = TorchName("torch._inductor.debug", "log_ir_pre_fusion")
COMPILE_TO_MODULE_LINES = TorchName(
    "torch._inductor.graph", "GraphLowering._compile_to_module_lines"
)
GRAPH_LOWERING_CODEGEN = TorchName("torch._inductor.graph", "GraphLowering.codegen")
CODEGEN_WITH_CPP_WRAPPER = TorchName(
    "torch._inductor.graph", "GraphLowering.codegen_with_cpp_wrapper"
)
GRAPH_LOWERING_RUN = TorchName("torch._inductor.graph", "GraphLowering.run")
RUN_NODE = TorchName("torch._inductor.graph", "GraphLowering.run_node")
PROPAGATE_SYMPY = TorchName("torch._inductor.index_propagation", "IndexPropagation.propagate_sympy")
UNWRAP = TorchName("torch._inductor.index_propagation", "IndexPropagation.unwrap")
IRNODE = TorchName("torch._inductor.ir", "IRNode")
LOOPS = TorchName("torch._inductor.ir", "Loops")
INNER_FN_STR = TorchName("torch._inductor.ir", "Loops.inner_fn_str")
CREATE_NODE = TorchName("torch._inductor.loop_body", "LightTracer.create_node")
LOOP_BODY = TorchName("torch._inductor.loop_body", "LoopBody")
POST_COMPILE = TorchName("torch._inductor.output_code", "CompiledFxGraph.post_compile")
LOAD_PACKAGE = TorchName("torch._inductor.package.package", "load_package")
PACKAGE_AOTI = TorchName("torch._inductor.package.package", "package_aoti")
READ_BEST = TorchName("torch._inductor.runtime.autotune_cache", "AutotuneCache.read_best")
PRECOMPILE_CONFIG = TorchName(
    "torch._inductor.runtime.triton_heuristics", "CachingAutotuner._precompile_config"
)
BENCHMARK_ALL_CONFIGS = TorchName(
    "torch._inductor.runtime.triton_heuristics", "CachingAutotuner.benchmark_all_configs"
)
GET_OUTPUTS = TorchName("torch._inductor.scheduler", "BaseSchedulerNode.get_outputs")
SCHEDULER_INIT = TorchName("torch._inductor.scheduler", "Scheduler.__init__")
SCHEDULER_CAN_FUSE = TorchName("torch._inductor.scheduler", "Scheduler.can_fuse")
SCHEDULER_CODEGEN = TorchName("torch._inductor.scheduler", "Scheduler.codegen")
CODEGEN_EXTERN_CALL = TorchName("torch._inductor.scheduler", "Scheduler.codegen_extern_call")
FUSE_NODES_ONCE = TorchName("torch._inductor.scheduler", "Scheduler.fuse_nodes_once")
FUSE_TWO_NODES = TorchName("torch._inductor.scheduler", "Scheduler.fuse_two_nodes")
GET_POSSIBLE_FUSIONS = TorchName("torch._inductor.scheduler", "Scheduler.get_possible_fusions")
SPEEDUP_BY_FUSION = TorchName("torch._inductor.scheduler", "Scheduler.speedup_by_fusion")
WHY_NO_FUSE_CALL = TorchName("torch._inductor.scheduler", "WhyNoFuse.__call__")
ALGORITHM_SELECTOR_CACHE_CALL = TorchName(
    "torch._inductor.select_algorithm", "AlgorithmSelectorCache.__call__"
)
BENCHMARK_CHOICE = TorchName(
    "torch._inductor.select_algorithm", "AlgorithmSelectorCache.benchmark_choice"
)
LOG_RESULTS = TorchName("torch._inductor.select_algorithm", "AlgorithmSelectorCache.log_results")
PRECOMPILE = TorchName("torch._inductor.select_algorithm", "TritonTemplateCaller.precompile")
LOG = TorchName("torch._inductor.select_algorithm", "log")
V = TorchName("torch._inductor.virtualized", "V")
DISABLE_PROFILER = TorchName("torch.autograd.profiler", "_disable_profiler")
AOTICOMPILED_MODEL_CALL = TorchName(
    "torch.export.pt2_archive._package", "AOTICompiledModel.__call__"
)
LOAD_AOTI = TorchName("torch.export.pt2_archive._package", "_load_aoti")
MAYBE_HANDLE_DECOMP = TorchName("torch.fx.experimental.proxy_tensor", "maybe_handle_decomp")
FETCH_ARGS_KWARGS_FROM_ENV = TorchName(
    "torch.fx.interpreter", "Interpreter.fetch_args_kwargs_from_env"
)
ENTER = TorchName("torch.fx.passes.graph_transform_observer", "GraphTransformObserver.__enter__")
EXIT = TorchName("torch.fx.passes.graph_transform_observer", "GraphTransformObserver.__exit__")

# --- several functions of one class, or one of several modules ------------------------------------


def _each(module: str, owner: str, *names: str) -> dict[str, TorchName]:
    return {name: TorchName(module, f"{owner}{name}") for name in names}


AOTI_MODEL = _each(
    *("torch._C", "_aoti.AOTIModel"),
    *("PackageLoader.__init__", "PackageLoader.run", "PackageLoader.boxed_run"),
    *("ContainerRunnerCpu.__init__", "ContainerRunnerCpu.run"),
    *("ContainerRunnerCuda.__init__", "ContainerRunnerCuda.run"),
)
CPP_CAN_FUSE = _each(
    *("torch._inductor.codegen.cpp", "CppScheduling."),
    *("can_fuse_vertical", "can_fuse_horizontal"),
)
# Every operation of a loop body is one of these methods, or goes through the first.
CSE_PROXY = _each(
    *("torch._inductor.codegen.common", "CSEProxy."),
    *("_default", "load", "store", "reduction", "store_reduction", "indirect_indexing"),
    *("check_bounds", "device_assert_async", "scan", "sort", "bucketize"),
)
INDENTED_BUFFER = _each(
    *("torch._inductor.utils", "IndentedBuffer."),
    *("splice", "map", "__add__", "clear", "getvalue"),
)
# Torch's C++ code calls the first of these, too.
LAZY_INIT = tuple(
    TorchName(module, "_lazy_init")
    for module in ("torch.cuda", "torch.cuda.memory", "torch.cuda.random")
)
# The functions by which every profiler of torch starts, prepared first or not.
PROFILER_BEGINS = tuple(
    _each("torch.autograd.profiler", "", "_prepare_profiler", "_enable_profiler").values()
)
PYTHON_SUBPROCESS_ENV = tuple(
    TorchName(module, "python_subprocess_env")
    for module in (
        "torch._inductor.compile_worker.subproc_pool",
        "torch._inductor.autotune_process",
    )
)

# --- imported or read by other code ---------------------------------------------------------------

# A module to a line, and the paths from there that are used; a dot is the module itself.
_DECLARED = """
torch._C: . DisableTorchFunction DispatchKey.BackendSelect _DisableAutocast _VariableFunctions
    _aoti.AOTIModelContainerRunnerCpu _aoti.AOTIModelPackageLoader _current_graph_task_id
    _dispatch_has_kernel _dispatch_keyset_full_after _len_torch_dispatch_stack
    _len_torch_function_stack _log_api_usage_once _set_grad_enabled
    _set_print_stack_traces_on_fatal_signal set_num_threads
torch._C._aoti: alloc_tensor_by_stealing_from_void_ptr unsafe_alloc_void_ptr_from_tensor
torch._C._autograd: _profiler_enabled
torch._C._distributed_c10d: FakeProcessGroup._create_internal ProcessGroup
    ProcessGroup.BackendType.CUSTOM ProcessGroup.unbox _create_work_from_future
torch._C._dynamo.guards: . _empty_strided_cpu _empty_strided_cuda
torch._C._functorch: get_dynamic_layer_stack_depth is_functorch_wrapped_tensor
    pop_dynamic_layer_stack_and_undo_to_depth
torch._C._nn: .
torch._C._profiler: _EventType _RecordFunctionFast
torch._dynamo: disable lookup_backend reset
torch._dynamo.config: . _config _is_default assume_static_by_default automatic_dynamic_shapes
    compiled_autograd patch
torch._dynamo.convert_frame: compile_lock input_codes output_codes
torch._dynamo.decorators: .
torch._dynamo.device_interface: CudaInterface
torch._dynamo.eval_frame: reset_code
torch._dynamo.exc: BackendCompilerFailed TorchDynamoException
torch._dynamo.source: ConstantSource
torch._dynamo.utils: counters
torch._export: aot_load
torch._functorch.config: . _config _is_default patch
torch._guards: CompileContext CompileContext.current_compile_id CompileId TracingContext
    compile_context tracing
torch._higher_order_ops.triton_kernel_wrap: kernel_side_table.constant_args
    kernel_side_table.id_to_kernel kernel_side_table.kernel_to_id
torch._inductor: aot_compile list_mode_options
torch._inductor.async_compile: AsyncCompile.cpp AsyncCompile.cpp_pybinding
    AsyncCompile.pool.cache_clear AsyncCompile.triton
torch._inductor.codecache: PyCodeCache.load_by_key_path _HEADER_DIR _HEADER_LOCK_DIR
torch._inductor.codegen.cpp: TilingSelect.select_tiling
torch._inductor.codegen.cpp_gemm_template: parallel_num_threads
torch._inductor.codegen.cpp_grouped_gemm_template: parallel_num_threads
torch._inductor.codegen.triton: TritonScheduling.benchmark_codegened_module
torch._inductor.codegen.triton_utils: AttrsDescriptorWrapper
torch._inductor.compile_fx: . _recursive_joint_graph_passes _recursive_post_grad_passes compile_fx
    compile_fx_inner run_pre_grad_passes
torch._inductor.compiler_bisector: CompilerBisector.disable_subsystem
torch._inductor.config: . _config _is_default compile_threads cpp.cxx cpp.enable_kernel_profile
    cpp.simdlen cpp_wrapper fallback_random freezing max_autotune patch triton.cudagraphs
torch._inductor.cpp_builder: _get_optimization_cflags get_cpp_compiler
torch._inductor.cpu_vec_isa: VecISA.build_arch_flags VecISA.check_build pick_vec_isa
torch._inductor.cudagraph_utils: check_lowering_disable_cudagraph
torch._inductor.decomposition: decompositions fast_random_decomps select_decomp_table
torch._inductor.dependencies: WeakDep
torch._inductor.exc: InductorError
torch._inductor.fx_passes.joint_graph: UniformValueConstantFolder lazy_init
torch._inductor.fx_passes.post_grad: lazy_init
torch._inductor.graph: GraphLowering._compile_to_module_lines GraphLowering.codegen
    GraphLowering.constant_name make_fallback
torch._inductor.ir: Buffer MutationLayoutSHOULDREMOVE NonOwningLayout
torch._inductor.lowering: ELEMENTWISE_TYPE_PROMOTION_KIND lowerings make_fallback make_pointwise
    register_lowering user_lowerings
torch._inductor.pattern_matcher: . PatternEntry.apply
torch._inductor.runtime.cache_dir_utils: cache_dir default_cache_dir
torch._inductor.runtime.triton_helpers: get_backend_options set_driver_to_gpu
torch._inductor.runtime.triton_heuristics: CachingAutotuner CachingAutotuner.bench
    StaticTritonCompileResult TritonCompileResult.make_launcher config_to_dict
torch._inductor.scheduler: Scheduler.can_fuse SchedulerNode has_triton
torch._inductor.select_algorithm: AlgorithmSelectorCache.make_benchmark_fn sys
torch._inductor.utils: Placeholder.DESCRIPTIVE_NAME Placeholder.KERNEL_NAME
    TritonAttrsDescriptorVersion.V4_DICT fresh_cache get_triton_attrs_descriptor_version
    parallel_num_threads
torch._inductor.virtualized: V.extern_kernel_nodes V.graph V.interpreter V.set_ops_handler
torch._library.custom_ops: OPDEFS
torch._library.utils: is_builtin
torch._logging._internal: log_registry log_state
torch._ops: HigherOrderOperator OpOverload OpOverloadPacket OperatorBase _OpNamespace
torch._subclasses.fake_tensor: FakeTensor FakeTensor._normalize_fake_device FakeTensorMode
    FakeTensorMode.avoid_device_init init_gpu_context
torch.autograd: Variable._execution_engine.queue_callback _profiler_enabled
torch.compiler: _is_compiling_flag _is_exporting_flag
torch.cuda: _is_in_bad_fork _sleep
torch.cuda._utils: _get_device_index
torch.distributed.distributed_c10d: _world
torch.export._tree_utils: reorder_kwargs
torch.export.pt2_archive._package: AOTICompiledModel load_pt2
torch.fx._lazy_graph_module: _use_lazy_graph_module
torch.fx.experimental.proxy_tensor: unset_fake_temporarily
torch.fx.experimental.symbolic_shapes: DimDynamic.DYNAMIC ShapeEnv
torch.fx.node: _get_qualified_name
torch.nn: Module._apply
torch.nn.utils.stateless: _reparametrize_module
torch.testing._internal.distributed.fake_pg: FakeStore
torch.utils._config_module: _UNSET_SENTINEL
torch.utils._python_dispatch: TorchDispatchMode _disable_current_modes
    is_traceable_wrapper_subclass
torch.utils._pytree: tree_flatten tree_leaves tree_map tree_map_only tree_unflatten treespec_loads
torch.utils._sympy.functions: CeilToInt CleanDiv FloatTrueDiv FloorDiv FloorToInt Identity
    IntTrueDiv LShift Max Min Mod ModularIndexing PowByNatural PythonMod RShift RoundToInt ToFloat
    TruncToInt Where
torch.utils._triton: triton_hash_with_backend
triton: compile
triton.backends: backends
triton.backends.compiler: GPUTarget
triton.backends.driver: GPUDriver
triton.compiler: ASTSource.make_ir CompiledKernel.__init__
triton.knobs: compilation.listener nvidia.cuobjdump.path
triton.runtime: driver.set_active
"""


def declared_names() -> list[TorchName]:
    """Return all names that code other than hooks needs."""
    rows = (row.split(":") for row in _DECLARED.replace("\n    ", " ").strip().splitlines())
    return [
        TorchName(module, path.removeprefix("."))
        for module, paths in rows
        for path in paths.split()
    ]
