"""What the analyses know of CUDA's own functions and of PTX. Everything else counts as able to do anything."""

from __future__ import annotations

import re

BARRIERS = frozenset({"__syncthreads"})
OTHER_BARRIERS = re.compile(
    r"^(__syncthreads_\w+|__barrier_\w+|.*\b(?:sync|arrive|wait|arrive_and_wait)|cooperative_groups::.*|cg::.*)$"
)
HARMLESS_SYNC = frozenset({"__syncwarp", "__activemask"})
_VECTOR_MAKERS = (
    r"make_(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|make_half2|make_bfloat162|make___half2|"
    r"__halves2half2|__halves2bfloat162|half2|__half2|nv_bfloat162|__nv_bfloat162"
)
_CONSTRUCTORS = r"half|__half|float|int|unsigned|double|nv_bfloat16|__nv_bfloat16|dim3"
_CONVERSIONS = (
    r"h?float2half\w*|__low2\w+|__high2\w+|(?:(?:nvcuda::)?wmma::)?__float_to_tf32|"
    r"__\w*(?:2half|half2|2float|float2|half22\w+|bfloat16|2bfloat16\w*|_rn|_rz|_ru|_rd|2int\w*|2uint\w*|as_\w+)\w*"
)
_ARITHMETIC = (
    r"(?:std::)?(?:f?(?:min|max|abs|fabs)[fl]?|fm(?:a|in|ax)f?)|sqrtf?|rsqrtf?|expf?|exp2f?|logf?|log2f?|tanhf?|"
    r"erff?|powf?|floorf?|ceilf?|roundf?|rintf?|truncf?|sinf|cosf|"
    r"__(?:fmaf|fadd|fmul|fsub|fdiv|frcp|hadd|hmul|hfma|hsub|hmax|hmin|hneg|expf|logf|dp4a|dp2a|popc|clz|ffs|brev|"
    r"byte_perm|funnelshift|sad|mul24|mulhi|umulhi|exp10f|powf|sinf|cosf|saturatef|fdividef|h2div|hadd2|hmul2|hfma2|"
    r"hsub2)\w*"
)
# Neither write memory, nor take references, and give the same for the same arguments.
VALUES = re.compile(f"^(?:{_VECTOR_MAKERS}|{_CONSTRUCTORS}|{_CONVERSIONS}|{_ARITHMETIC})$")
# Conversions of one float: what they give rests on it alone, and not on when they are called.
OF_A_FLOAT = re.compile(r"^__float2(?:half|bfloat16|int|uint)(?:_r[nzud])?$")
# The same of one value of any arithmetic type; the group names the type that comes out.
OF_ONE_VALUE = re.compile(
    r"^__(?:float|double|half|bfloat16|u?int|u?short)2(half|bfloat16|float|double|u?int|u?short)(?:_r[nzud])?$"
)
ZERO_KEEPING = re.compile(
    f"^(?:{_VECTOR_MAKERS}|{_CONSTRUCTORS}|__(?:float|int|uint|short)2(?:half|bfloat16)(?:_rn)?)$"
)
# Neither write memory nor take references.
HARMLESS = re.compile(
    r"^(?:__shfl_\w+|__ballot_sync|__any_sync|__all_sync|__reduce_\w+_sync|__cvta_generic_to_shared|__isShared|"
    r"clock|clock64|__nanosleep|printf|assert)$"
)
LOADS = frozenset({"__ldg", "__ldcg", "__ldca", "__ldcs"})
WRITES_FIRST = frozenset({"fill_fragment", "load_matrix_sync", "mma_sync"})  # their first argument is a fragment
ASYNCHRONOUS = re.compile(
    r"__pipeline_|memcpy_async|cuda::pipeline|cuda::barrier|cp_async|mbarrier|cuda::ptx|wgmma|__mbarrier"
)
_ASYNC_ASM = re.compile(r"\b(?:cp\.async|mbarrier|wgmma|cp\.reduce\.async|tcgen05)\b")
_GUARD = r"^(?:@!?\S+\s+)?"
_ASM_LOADS = re.compile(_GUARD + r"(?:mma|wmma\.(?:mma|load)|ldmatrix|ld|ldu)\b")
_ASM_READS = re.compile(_GUARD + r"(?:wmma\.load|ldmatrix|ld|ldu)\b")
_ASM_VALUES = re.compile(
    _GUARD + r"(?:cvt|cvta|mov|movmatrix|add|addc|sub|subc|mul|mul24|mad|madc|fma|div|"
    r"rem|shl|shr|shf|and|or|xor|not|lop3|prmt|dp4a|dp2a|ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|setp|set|selp|slct|max|"
    r"min|neg|abs|bfe|bfi|bfind|brev|popc|clz|sad|shfl|vote|activemask|elect|redux|match|isspacep|testp|copysign|nop|"
    r"pack|unpack)\b(?!\.\w*\bst\b)"
)
_ASM_BARRIERS = re.compile(_GUARD + r"(?:bar|barrier)\b")
_ASM_STORES = re.compile(_GUARD + r"(?:st|stmatrix|red|atom|wmma\.store)\b")


def is_known(name: str) -> bool:
    """Whether the analyses go by the name of a function."""
    known = VALUES.match(name) or HARMLESS.match(name) or ASYNCHRONOUS.search(name)
    return bool(known) or name in BARRIERS | HARMLESS_SYNC | LOADS


def is_asynchronous_asm(code: str) -> bool:
    return _ASYNC_ASM.search(code) is not None


def asm_kind(instruction: str) -> str:
    """``loads`` (its result is data), ``values``, ``barrier``, ``stores`` or ``unknown``."""
    for kind, pattern in (
        ("loads", _ASM_LOADS),
        ("values", _ASM_VALUES),
        ("barrier", _ASM_BARRIERS),
        ("stores", _ASM_STORES),
    ):
        if pattern.match(instruction):
            return kind
    return "unknown"


def asm_reads(code: str) -> bool:
    """Whether inline PTX loads from an address, and not from a register alone."""
    return any(_ASM_READS.match(piece) for piece in asm_instructions(code))


def asm_instructions(code: str) -> list[str]:
    """The instructions of an inline-PTX string literal (or several, concatenated)."""
    literal = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', code))
    plain = re.sub(r"//.*?(?:\\n|$)|/\*.*?\*/", " ", literal)
    plain = re.sub(r"\\[nrt]", " ", plain)
    pieces = []
    for piece in plain.split(";"):
        cleaned = piece.strip().lstrip("{").strip().rstrip("}").strip()
        if cleaned and not cleaned.startswith(".reg"):
            pieces.append(cleaned)
    return pieces
