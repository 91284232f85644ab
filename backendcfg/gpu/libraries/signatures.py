"""What Python calls of the vendors' libraries for devices: functions, and numbers of headers.

`native/abi/check.py` compares these tables with the vendors' headers, and makes of them the headers
of the fakes. Handles, streams and descriptors are `void*`, enumerations int. In a name `{S,D}`
stands for either; `optional` is what older versions lack. This module imports nothing of ours.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple


class Function(NamedTuple):
    """One function of a library, in words of C.

    Attributes:
        result: its type.
        parameters: their types.
        optional: whether a version that is served may lack it.
    """

    result: str
    parameters: tuple[str, ...]
    optional: bool


class Table:
    """What is called of one library.

    Attributes:
        functions: by name.
        constants: by the vendor's name.
        newer: those of `constants` that not every version's header has.
        version: the function that says it: `{}GetProperty` of CUDA's, or as `Library` knows it; ""
            where the SONAME does.
        majors: the oldest and the newest major version that is served.
        words: the function that names a status, or how names of statuses begin.
    """

    def __init__(
        self,
        functions: str,
        constants: str = "",
        *,
        version: str = "",
        majors: tuple[int, int] = (0, 0),
        words: str = "",
    ) -> None:
        self.functions = dict(_functions(functions))
        self.constants: dict[str, int] = {}
        self.newer: set[str] = set()
        self.version, self.majors, self.words = version, majors, words
        prefix, is_newer = "", False
        for word in constants.split():
            name, _, number = word.partition("=")
            if number:
                self.constants[prefix + name] = int(number)
                if is_newer:
                    self.newer.add(prefix + name)
            elif word == "newer":
                is_newer = True
            else:
                prefix = word.rstrip(":")


def _functions(text: str) -> list[tuple[str, Function]]:
    found = []
    for optional, result, name, inner in re.findall(
        r"(optional )?((?:const )?\w+\*?) ([\w{},]+)\(([^)]*)\)", " ".join(text.split())
    ):
        parameters = tuple(filter(None, inner.split(", ")))
        function = Function(result, parameters, bool(optional))
        parts = re.split(r"[{}]", name)
        choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
        found += [("".join(each), function) for each in itertools.product(*choices)]
    return found


# cublas_api.h of cuBLAS 13.10 and 12.9. Products are called by C: see native/include/gpu.
CUBLAS = Table(
    """
    int cublasCreate_v2(void**)
    int cublasDestroy_v2(void*)
    int cublasSetStream_v2(void*, void*)
    const char* cublasGetStatusName(int)
    int cublas{S,D,C,Z}getrfBatched(void*, int, void* const*, int, int*, int*, int)
    int cublas{S,D,C,Z}getrsBatched(void*, int, int, int, const void* const*, int, const int*,
        void* const*, int, int*, int)
    """,
    "CUBLAS_OP_: N=0 T=1 C=2",
    words="cublasGetStatusName",
)

# cusolverDn.h and cusolver_common.h of cuSOLVER 12.4.1 and 11.7.5. The X functions take sizes as
# int64_t and types as numbers. Q of QR has none: its functions are those of each type.
CUSOLVER = Table(
    """
    int cusolverDnCreate(void**)
    int cusolverDnDestroy(void*)
    int cusolverDnSetStream(void*, void*)
    int cusolverGetProperty(int, int*)
    int cusolverDnCreateParams(void**)
    int cusolverDnDestroyParams(void*)
    optional int cusolverDnSetDeterministicMode(void*, int)
    int cusolverDnXpotrf_bufferSize(void*, void*, int, int64_t, int, const void*, int64_t, int,
        size_t*, size_t*)
    int cusolverDnXpotrf(void*, void*, int, int64_t, int, void*, int64_t, int, void*, size_t,
        void*, size_t, int*)
    int cusolverDnXpotrs(void*, void*, int, int64_t, int64_t, int, const void*, int64_t, int,
        void*, int64_t, int*)
    int cusolverDnXgetrf_bufferSize(void*, void*, int64_t, int64_t, int, const void*, int64_t, int,
        size_t*, size_t*)
    int cusolverDnXgetrf(void*, void*, int64_t, int64_t, int, void*, int64_t, int64_t*, int, void*,
        size_t, void*, size_t, int*)
    int cusolverDnXgetrs(void*, void*, int, int64_t, int64_t, int, const void*, int64_t,
        const int64_t*, int, void*, int64_t, int*)
    int cusolverDnXgeqrf_bufferSize(void*, void*, int64_t, int64_t, int, const void*, int64_t, int,
        const void*, int, size_t*, size_t*)
    int cusolverDnXgeqrf(void*, void*, int64_t, int64_t, int, void*, int64_t, int, void*, int,
        void*, size_t, void*, size_t, int*)
    int cusolverDnXsyevd_bufferSize(void*, void*, int, int, int64_t, int, const void*, int64_t,
        int, const void*, int, size_t*, size_t*)
    int cusolverDnXsyevd(void*, void*, int, int, int64_t, int, void*, int64_t, int, void*, int,
        void*, size_t, void*, size_t, int*)
    optional int cusolverDnXsyevBatched_bufferSize(void*, void*, int, int, int64_t, int,
        const void*, int64_t, int, const void*, int, size_t*, size_t*, int64_t)
    optional int cusolverDnXsyevBatched(void*, void*, int, int, int64_t, int, void*, int64_t, int,
        void*, int, void*, size_t, void*, size_t, int*, int64_t)
    int cusolverDnXgesvd_bufferSize(void*, void*, signed char, signed char, int64_t, int64_t, int,
        const void*, int64_t, int, const void*, int, const void*, int64_t, int, const void*,
        int64_t, int, size_t*, size_t*)
    int cusolverDnXgesvd(void*, void*, signed char, signed char, int64_t, int64_t, int, void*,
        int64_t, int, void*, int, void*, int64_t, int, void*, int64_t, int, void*, size_t, void*,
        size_t, int*)
    int cusolverDn{S,D,C,Z}potrfBatched(void*, int, int, void**, int, int*, int)
    int cusolverDn{S,D,C,Z}potrsBatched(void*, int, int, int, void**, int, void**, int, int*, int)
    int cusolverDn{Sor,Dor,Cun,Zun}gqr_bufferSize(void*, int, int, int, const void*, int,
        const void*, int*)
    int cusolverDn{Sor,Dor,Cun,Zun}gqr(void*, int, int, int, void*, int, const void*, void*, int,
        int*)
    """,
    """
    CUSOLVER_STATUS_: SUCCESS=0 NOT_INITIALIZED=1 ALLOC_FAILED=2 INVALID_VALUE=3 ARCH_MISMATCH=4
        MAPPING_ERROR=5 EXECUTION_FAILED=6 INTERNAL_ERROR=7 MATRIX_TYPE_NOT_SUPPORTED=8
        NOT_SUPPORTED=9 INVALID_LICENSE=11
    CUSOLVER_EIG_MODE_: NOVECTOR=0 VECTOR=1
    CUBLAS_FILL_MODE_: LOWER=0 UPPER=1
    newer CUSOLVER_: DETERMINISTIC_RESULTS=1 ALLOW_NON_DETERMINISTIC_RESULTS=2
    """,
    version="cusolverGetProperty",
    majors=(11, 12),
    words="CUSOLVER_STATUS_",
)

# hipsolver-types.h and hipsolver-functions.h of hipSOLVER 2.4 (ROCm/hipSOLVER 2b17b58). Of 3
# (ROCm/rocm-libraries 0f54ba2) getrf, getrs and gesvd were read, and are the same. On AMD's devices
# sizes of workspaces are bytes, where cuSOLVER counts numbers.
HIPSOLVER = Table(
    """
    int hipsolverCreate(void**)
    int hipsolverDestroy(void*)
    int hipsolverSetStream(void*, void*)
    optional int hipsolverSetDeterministicMode(void*, int)
    optional int hipsolverGetDeterministicMode(void*, int*)
    int hipsolver{S,D,C,Z}potrf_bufferSize(void*, int, int, void*, int, int*)
    int hipsolver{S,D,C,Z}potrf(void*, int, int, void*, int, void*, int, int*)
    int hipsolver{S,D,C,Z}potrs_bufferSize(void*, int, int, int, void*, int, void*, int, int*)
    int hipsolver{S,D,C,Z}potrs(void*, int, int, int, void*, int, void*, int, void*, int, int*)
    int hipsolver{S,D,C,Z}getrf_bufferSize(void*, int, int, void*, int, int*)
    int hipsolver{S,D,C,Z}getrf(void*, int, int, void*, int, void*, int, int*, int*)
    int hipsolver{S,D,C,Z}getrs_bufferSize(void*, int, int, int, void*, int, int*, void*, int, int*)
    int hipsolver{S,D,C,Z}getrs(void*, int, int, int, void*, int, int*, void*, int, void*, int,
        int*)
    int hipsolver{S,D,C,Z}geqrf_bufferSize(void*, int, int, void*, int, int*)
    int hipsolver{S,D,C,Z}geqrf(void*, int, int, void*, int, void*, void*, int, int*)
    int hipsolver{Sor,Dor,Cun,Zun}gqr_bufferSize(void*, int, int, int, void*, int, void*, int*)
    int hipsolver{Sor,Dor,Cun,Zun}gqr(void*, int, int, int, void*, int, void*, void*, int, int*)
    int hipsolver{Ssy,Dsy,Che,Zhe}evd_bufferSize(void*, int, int, int, void*, int, void*, int*)
    int hipsolver{Ssy,Dsy,Che,Zhe}evd(void*, int, int, int, void*, int, void*, void*, int, int*)
    int hipsolver{S,D,C,Z}gesvd_bufferSize(void*, signed char, signed char, int, int, int*)
    int hipsolver{S,D,C,Z}gesvd(void*, signed char, signed char, int, int, void*, int, void*,
        void*, int, void*, int, void*, int, void*, int*)
    """,
    """
    HIPSOLVER_STATUS_: SUCCESS=0 NOT_INITIALIZED=1 ALLOC_FAILED=2 INVALID_VALUE=3 MAPPING_ERROR=4
        EXECUTION_FAILED=5 INTERNAL_ERROR=6 NOT_SUPPORTED=7 ARCH_MISMATCH=8 HANDLE_IS_NULLPTR=9
        INVALID_ENUM=10 UNKNOWN=11
    HIPSOLVER_OP_: N=111 T=112 C=113
    HIPSOLVER_FILL_MODE_: UPPER=121 LOWER=122
    HIPSOLVER_EIG_MODE_: NOVECTOR=201 VECTOR=202
    newer HIPSOLVER_: DETERMINISTIC_RESULTS=241 ALLOW_NON_DETERMINISTIC_RESULTS=242
    """,
    majors=(0, 1),
    words="HIPSOLVER_STATUS_",
)

# magma_types.h, magma_auxiliary.h, magma_copy.h, magma_z.h and magmablas_z.h of MAGMA 2.10
# (icl-utk-edu/magma c64e52a); those of the other types are generated from the last two. Scalars are
# passed by value. Built with MAGMA_ILP64, all integers are `long long` under the same names:
# magma_version writes three of them, and so tells.
_MAGMA_FUNCTIONS = """
    void magma_version(int*, int*, int*)
    int magma_init()
    void magma_getdevice(int*)
    void magma_queue_destroy_internal(void*, const char*, const char*, int)
    void magma_queue_sync_internal(void*, const char*, const char*, int)
    void magma_{set,get}vector_internal(int, int, const void*, int, void*, int, void*, const char*,
        const char*, int)
    int magma_{s,d,c,z}potrf_gpu(int, int, void*, int, int*)
    void magma_strsm(int, int, int, int, int, int, float, const void*, int, void*, int, void*)
    void magma_dtrsm(int, int, int, int, int, int, double, const void*, int, void*, int, void*)
    void magma_ctrsm(int, int, int, int, int, int, bcfg_complex64, const void*, int, void*, int,
        void*)
    void magma_ztrsm(int, int, int, int, int, int, bcfg_complex128, const void*, int, void*, int,
        void*)
    int magma_{s,d,c,z}getrf_gpu(int, int, void*, int, int*, int*)
    int magma_{s,d,c,z}getrs_gpu(int, int, int, void*, int, int*, void*, int, int*)
    int magma_{s,d,c,z}geqrf2_gpu(int, int, void*, int, void*, int*)
    int magma_{sor,dor,cun,zun}gqr2(int, int, int, void*, int, void*, int*)
    int magma_{s,d}syevd_gpu(int, int, int, void*, int, void*, void*, int, void*, int, int*, int,
        int*)
    int magma_{c,z}heevd_gpu(int, int, int, void*, int, void*, void*, int, void*, int, void*, int,
        int*, int, int*)
    int magma_{s,d}gesdd(int, int, int, void*, int, void*, void*, int, void*, int, void*, int, int*,
        int*)
    int magma_{c,z}gesdd(int, int, int, void*, int, void*, void*, int, void*, int, void*, int,
        void*, int*, int*)
    """
_MAGMA_CONSTANTS = """
    MAGMA_: SUCCESS=0 ERR=-100
    MAGMA_ERR_: NOT_INITIALIZED=-101 REINITIALIZED=-102 NOT_SUPPORTED=-103 ILLEGAL_VALUE=-104
        NOT_FOUND=-105 ALLOCATION=-106 INTERNAL_LIMIT=-107 UNALLOCATED=-108 FILESYSTEM=-109
        UNEXPECTED=-110 SEQUENCE_FLUSHED=-111 HOST_ALLOC=-112 DEVICE_ALLOC=-113 CUDASTREAM=-114
        INVALID_PTR=-115 UNKNOWN=-116 NOT_IMPLEMENTED=-117 NAN=-118
    Magma: NoTrans=111 Trans=112 ConjTrans=113 Upper=121 Lower=122 NonUnit=131 Left=141
        NoVec=301 Vec=302 AllVec=304 SomeVec=305
    """


def _magma(toolkit: str, blas: str) -> Table:
    """A build of MAGMA: two functions tell the builds apart."""
    functions = f"""{_MAGMA_FUNCTIONS}
    void magma_queue_create_from_{toolkit}_internal(int, void*, void*, void*, void**, const char*,
        const char*, int)
    void* magma_queue_get_{blas}_handle(void*)
    """
    return Table(
        functions, _MAGMA_CONSTANTS, version="magma_version", majors=(2, 2), words="MAGMA_ERR"
    )


MAGMA, MAGMA_HIP = _magma("cuda", "cublas"), _magma("hip", "hipblas")

# cufft.h and cufftXt.h of cuFFT 12.5 and 11.4. Types are cudaDataType's numbers.
CUFFT = Table(
    """
    int cufftGetProperty(int, int*)
    int cufftCreate(int*)
    int cufftDestroy(int)
    int cufftSetAutoAllocation(int, int)
    int cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int,
        long long*, long long, long long, int, long long, size_t*, int)
    int cufftSetStream(int, void*)
    int cufftSetWorkArea(int, void*)
    int cufftXtExec(int, void*, void*, int)
    """,
    """
    CUFFT_: SUCCESS=0 INVALID_PLAN=1 ALLOC_FAILED=2 INVALID_TYPE=3 INVALID_VALUE=4 INTERNAL_ERROR=5
        EXEC_FAILED=6 SETUP_FAILED=7 INVALID_SIZE=8 UNALIGNED_DATA=9 INVALID_DEVICE=11
        NO_WORKSPACE=13 NOT_IMPLEMENTED=14 NOT_SUPPORTED=16 INVERSE=1 FORWARD=-1
    newer CUFFT_: MISSING_DEPENDENCY=17 NVRTC_FAILURE=18 NVJITLINK_FAILURE=19 NVSHMEM_FAILURE=20
    """,
    version="cufftGetProperty",
    majors=(11, 12),
    words="CUFFT_",
)

# cusparseLt.h of cuSPARSELt 0.7.1, 0.8.1 and 0.10.0, and the cusparse.h that 0.10.0 brings. Its
# structs are opaque memory of the caller's. A selection needs no destruction before 0.8.
CUSPARSELT = Table(
    """
    int cusparseLtGetProperty(int, int*)
    const char* cusparseLtGetErrorName(int)
    int cusparseLtInit(void*)
    int cusparseLtDestroy(const void*)
    int cusparseLtDenseDescriptorInit(const void*, void*, int64_t, int64_t, int64_t, uint32_t, int,
        int)
    int cusparseLtStructuredDescriptorInit(const void*, void*, int64_t, int64_t, int64_t, uint32_t,
        int, int, int)
    int cusparseLtMatDescriptorDestroy(const void*)
    int cusparseLtMatmulDescriptorInit(const void*, void*, int, int, const void*, const void*,
        const void*, const void*, int)
    int cusparseLtMatmulDescSetAttribute(const void*, void*, int, const void*, size_t)
    int cusparseLtMatmulAlgSelectionInit(const void*, void*, const void*, int)
    optional int cusparseLtMatmulAlgSelectionDestroy(const void*)
    int cusparseLtMatmulAlgSetAttribute(const void*, void*, int, const void*, size_t)
    int cusparseLtMatmulAlgGetAttribute(const void*, const void*, int, void*, size_t)
    int cusparseLtMatmulGetWorkspace(const void*, const void*, size_t*)
    int cusparseLtMatmulPlanInit(const void*, void*, const void*, const void*)
    int cusparseLtMatmulPlanDestroy(const void*)
    int cusparseLtMatmul(const void*, const void*, const void*, const void*, const void*,
        const void*, const void*, void*, void*, void**, int32_t)
    int cusparseLtMatmulSearch(const void*, void*, const void*, const void*, const void*,
        const void*, const void*, void*, void*, void**, int32_t)
    int cusparseLtSpMMAPruneCheck2(const void*, const void*, int, int, const void*, int*, void*)
    int cusparseLtSpMMACompressedSize2(const void*, const void*, size_t*, size_t*)
    int cusparseLtSpMMACompress2(const void*, const void*, int, int, const void*, void*, void*,
        void*)
    """,
    """
    CUSPARSE_STATUS_: SUCCESS=0 NOT_INITIALIZED=1 ALLOC_FAILED=2 INVALID_VALUE=3 ARCH_MISMATCH=4
        EXECUTION_FAILED=6 INTERNAL_ERROR=7 NOT_SUPPORTED=10 INSUFFICIENT_RESOURCES=11
    CUSPARSE_: OPERATION_NON_TRANSPOSE=0 OPERATION_TRANSPOSE=1 ORDER_ROW=2 COMPUTE_32I=0
        COMPUTE_32F=2
    CUSPARSELT_: SPARSITY_50_PERCENT=0 MATMUL_BIAS_POINTER=8 MATMUL_ALG_DEFAULT=0
        MATMUL_ALG_CONFIG_ID=0 MATMUL_ALG_CONFIG_MAX_ID=1 MATMUL_SPLIT_K=3 MATMUL_SPLIT_K_MODE=4
    """,
    version="cusparseLtGetProperty",
    words="cusparseLtGetErrorName",
)

# cudnn_graph.h of cuDNN 9.28: its backend, or graph, interface.
CUDNN = Table(
    """
    size_t cudnnGetVersion()
    const char* cudnnGetErrorString(int)
    void cudnnGetLastErrorString(char*, size_t)
    int cudnnCreate(void**)
    int cudnnDestroy(void*)
    int cudnnSetStream(void*, void*)
    int cudnnBackendCreateDescriptor(int, void**)
    int cudnnBackendDestroyDescriptor(void*)
    int cudnnBackendSetAttribute(void*, int, int, int64_t, const void*)
    int cudnnBackendFinalize(void*)
    int cudnnBackendGetAttribute(void*, int, int, int64_t, int64_t*, void*)
    int cudnnBackendExecute(void*, void*, void*)
    """,
    """
    CUDNN_STATUS_: SUCCESS=0 NOT_INITIALIZED=1001 SUBLIBRARY_LOADING_FAILED=1008 BAD_PARAM=2000
        BAD_PARAM_NULL_POINTER=2002 BAD_PARAM_NOT_FINALIZED=2004 BAD_PARAM_SHAPE_MISMATCH=2008
        BAD_PARAM_ATTRIBUTE_TYPE=2010 NOT_SUPPORTED=3000 NOT_SUPPORTED_GRAPH_PATTERN=3001
        NOT_SUPPORTED_SHAPE=3002 NOT_SUPPORTED_DATA_TYPE=3003 NOT_SUPPORTED_LAYOUT=3004
        NOT_SUPPORTED_ARCH_MISMATCH=3007 NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE=3009
        NOT_SUPPORTED_PADDING=3011 INTERNAL_ERROR=4000 INTERNAL_ERROR_HOST_ALLOCATION_FAILED=4003
        INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED=4004 EXECUTION_FAILED=5000
    CUDNN_DATA_: FLOAT=0 DOUBLE=1 HALF=2 INT32=4 BFLOAT16=9 BOOLEAN=11
    CUDNN_BACKEND_: POINTWISE_DESCRIPTOR=0 CONVOLUTION_DESCRIPTOR=1 ENGINE_DESCRIPTOR=2
        ENGINECFG_DESCRIPTOR=3 ENGINEHEUR_DESCRIPTOR=4 EXECUTION_PLAN_DESCRIPTOR=5
        OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR=10 OPERATION_POINTWISE_DESCRIPTOR=13
        OPERATIONGRAPH_DESCRIPTOR=15 VARIANT_PACK_DESCRIPTOR=16 TENSOR_DESCRIPTOR=17
        MATMUL_DESCRIPTOR=18 OPERATION_MATMUL_DESCRIPTOR=19 REDUCTION_DESCRIPTOR=21
        OPERATION_REDUCTION_DESCRIPTOR=22 OPERATION_RESHAPE_DESCRIPTOR=31
    CUDNN_TYPE_: HANDLE=0 DATA_TYPE=1 BOOLEAN=2 INT64=3 FLOAT=4 DOUBLE=5 VOID_PTR=6
        CONVOLUTION_MODE=7 HEUR_MODE=8 NUMERICAL_NOTE=11 POINTWISE_MODE=14 BACKEND_DESCRIPTOR=15
        REDUCTION_OPERATOR_TYPE=18 BEHAVIOR_NOTE=19
    CUDNN_ATTR_: POINTWISE_MODE=0 POINTWISE_MATH_PREC=1 POINTWISE_AXIS=9
        CONVOLUTION_COMP_TYPE=100 CONVOLUTION_CONV_MODE=101 CONVOLUTION_DILATIONS=102
        CONVOLUTION_FILTER_STRIDES=103 CONVOLUTION_POST_PADDINGS=104 CONVOLUTION_PRE_PADDINGS=105
        CONVOLUTION_SPATIAL_DIMS=106 ENGINEHEUR_MODE=200 ENGINEHEUR_OPERATION_GRAPH=201
        ENGINEHEUR_RESULTS=202 ENGINECFG_ENGINE=300 EXECUTION_PLAN_HANDLE=400
        EXECUTION_PLAN_ENGINE_CONFIG=401 EXECUTION_PLAN_WORKSPACE_SIZE=402
        OPERATION_CONVOLUTION_FORWARD_ALPHA=700 OPERATION_CONVOLUTION_FORWARD_BETA=701
        OPERATION_CONVOLUTION_FORWARD_CONV_DESC=702 OPERATION_CONVOLUTION_FORWARD_W=703
        OPERATION_CONVOLUTION_FORWARD_X=704 OPERATION_CONVOLUTION_FORWARD_Y=705
        OPERATION_POINTWISE_PW_DESCRIPTOR=750 OPERATION_POINTWISE_XDESC=751
        OPERATION_POINTWISE_BDESC=752 OPERATION_POINTWISE_YDESC=753 OPERATION_POINTWISE_TDESC=758
        OPERATIONGRAPH_HANDLE=800 OPERATIONGRAPH_OPS=801 TENSOR_BYTE_ALIGNMENT=900
        TENSOR_DATA_TYPE=901 TENSOR_DIMENSIONS=902 TENSOR_STRIDES=903 TENSOR_UNIQUE_ID=906
        TENSOR_IS_VIRTUAL=907 TENSOR_IS_BY_VALUE=908 VARIANT_PACK_UNIQUE_IDS=1000
        VARIANT_PACK_DATA_POINTERS=1001 VARIANT_PACK_WORKSPACE=1003 ENGINE_GLOBAL_INDEX=1301
        ENGINE_NUMERICAL_NOTE=1303 ENGINE_BEHAVIOR_NOTE=1305 MATMUL_COMP_TYPE=1500
        OPERATION_MATMUL_ADESC=1520 OPERATION_MATMUL_BDESC=1521 OPERATION_MATMUL_CDESC=1522
        OPERATION_MATMUL_DESC=1523 REDUCTION_OPERATOR=1600 REDUCTION_COMP_TYPE=1601
        OPERATION_REDUCTION_XDESC=1610 OPERATION_REDUCTION_YDESC=1611
        OPERATION_REDUCTION_DESC=1612 OPERATION_RESHAPE_XDESC=2200 OPERATION_RESHAPE_YDESC=2201
    CUDNN_: CROSS_CORRELATION=1
    CUDNN_NUMERICAL_NOTE_: TENSOR_CORE=0 DOWN_CONVERT_INPUTS=1 REDUCED_PRECISION_REDUCTION=2 FFT=3
        NONDETERMINISTIC=4 WINOGRAD=5 WINOGRAD_TILE_4x4=6 WINOGRAD_TILE_6x6=7 WINOGRAD_TILE_13x13=8
    CUDNN_BEHAVIOR_NOTE_: RUNTIME_COMPILATION=0 REQUIRES_FILTER_INT8x32_REORDER=1
        REQUIRES_BIAS_INT8x32_REORDER=2
    CUDNN_HEUR_MODE_: FALLBACK=2 A=3
    CUDNN_POINTWISE_: ADD=0 MUL=1 DIV=6 SUB=9 EXP=13 LOG=15 IDENTITY=21 CMP_GE=303 GEN_INDEX=501
        BINARY_SELECT=601
    CUDNN_REDUCE_TENSOR_: ADD=0 MAX=3
    newer CUDNN_NUMERICAL_NOTE_: STRICT_NAN_PROP=9
    CUDNN_BEHAVIOR_NOTE_: SUPPORTS_CUDA_GRAPH_NATIVE_API=3 CUBLASLT_DEPENDENCY=4
    """,
    version="cudnnGetVersion",
    majors=(9, 9),
    words="cudnnGetErrorString",
)

# cuda.h of CUDA 13.0. All else that is called of the driver C calls.
CUDA = Table(
    """
    int cuGetErrorName(int, const char**)
    int cuEventCreate(void**, unsigned int)
    int cuEventRecord(void*, void*)
    int cuEventSynchronize(void*)
    int cuEventElapsedTime(float*, void*, void*)
    int cuEventDestroy_v2(void*)
    """,
    "CUDA_ERROR_: STREAM_CAPTURE_UNSUPPORTED=900",
)

TABLES = {
    "cublas": CUBLAS,
    "cuda": CUDA,
    "cudnn": CUDNN,
    "cufft": CUFFT,
    "cusparselt": CUSPARSELT,
    "cusolver": CUSOLVER,
    "hipsolver": HIPSOLVER,
    "magma": MAGMA,
    "magma_hip": MAGMA_HIP,
}
"""By the name of the library."""
