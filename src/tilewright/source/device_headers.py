"""Which headers NVRTC can read as they are, and what stands in for those that it cannot."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.source.device_split import words

# The in-memory header that the compiler includes before the source, so that no line of the source moves.
PRELUDE = "tilewright_prelude.h"

_CUDA_FOLDERS = ("cuda/", "cub/", "thrust/", "nv/", "crt/", "cooperative_groups/")
_CUDA_FILES = re.compile(
    r"""(?x)
    cuda\.h | mma\.h | cooperative_groups\.h | cuComplex\.h | nvfunctional | math_constants\.h | math_functions\.h
  | cuda_(?:fp16|bf16|fp8|fp6|fp4|tf32)\.h(?:pp)?
  | cuda_(?:runtime|runtime_api|device_runtime_api|pipeline|pipeline_primitives|pipeline_helpers|tile)\.h
  | cuda_(?:awbarrier|awbarrier_primitives|awbarrier_helpers|occupancy)\.h
  | (?:vector|driver|device|surface|texture|library|builtin)_types\.h | vector_functions\.h(?:pp)?
  | device_(?:functions|launch_parameters|atomic_functions|double_functions)\.h | driver_functions\.h
  | channel_descriptor\.h | common_functions\.h | host_defines\.h
  | sm_\d\d_(?:intrinsics|atomic_functions)\.h(?:pp)? | (?:surface|texture)_indirect_functions\.h
    """
)
_C_NAMES = words(
    """assert complex ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg stdbool stddef
    stdint stdio stdlib string tgmath time uchar wchar wctype"""
)
_STANDARD = (
    {f"{name}.h" for name in _C_NAMES}
    | {f"c{name}" for name in _C_NAMES}
    | words(
        """algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts
    condition_variable coroutine deque exception execution expected filesystem format forward_list fstream functional
    future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
    strstream syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
    valarray variant vector version malloc.h memory.h unistd.h alloca.h strings.h"""
    )
)


# cuBLAS, cuDNN and torch include CUDA's 16-bit types themselves (cublas_api.h, cudnn_graph.h, c10/util/Half.h and
# BFloat16.h), and sources rely on that.
_BRINGS_HALF = re.compile(r"cublas\w*\.h$|cudnn\w*\.h$|torch/|ATen/|c10/")
_HALF_TYPES = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def is_cuda_header(name: str) -> bool:
    """Whether a header is one of CUDA's, which the compiler finds itself.

    Decided by its name and not by what is installed here, so that a view is the same on every machine.
    """
    return name.startswith(_CUDA_FOLDERS) or _CUDA_FILES.fullmatch(name) is not None


def library_of(name: str) -> str:
    """``thrust`` or ``cub`` for a header of theirs, else empty: much of them NVRTC refuses, so unused ones go."""
    library = name.partition("/")[0]
    return library if library in ("cub", "thrust") and library != name else ""


def standard_headers() -> frozenset[str]:
    """The C and C++ library's headers: the prelude holds what device code needs of them."""
    return frozenset(_STANDARD)


def prelude(with_std: bool) -> str:
    """The text of :data:`PRELUDE`; with namespace ``std`` only where the source names it (it leaves two constants)."""
    return _text("device_prelude.h") + (_text("device_std.h") if with_std else "")


def standard_stub(name: str) -> str:
    """What stands in for a header: nothing, but for the floating-point limits and what libraries bring along."""
    if name in ("float.h", "cfloat"):
        return _text("device_float.h")
    return _HALF_TYPES if _BRINGS_HALF.match(name) else ""


def _text(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")
