"""A small tiled product in dynamic shared memory, carved up in many ways, and in ways that must stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

from product_sidecars import product_sidecar

_LAUNCH = 'grid = ["N//16", "M//16"]\nblock = [16, 16]\nshared_bytes = {bytes}'
_SIZES = "default = { M = 32, N = 16, K = 64 }\nsmall = { M = 16, N = 16, K = 48 }"

_TEXT = """#define TILE 256
__global__ void product(const float *A, const float *B, float *C, int M, int N, int K)
{{
{carve}    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0.0f;
{before}    for (int k = 0; k < K; k += 16) {{
        {a} = A[row * K + k + tx];
        {b} = B[(k + ty) * N + col];
        __syncthreads();
{compute}        __syncthreads();
    }}
{after}    C[row * N + col] = sum;
}}
"""
FLAT = ("As[ty * 16 + tx]", "Bs[ty * 16 + tx]")
PRODUCT = "for (int i = 0; i < 16; ++i) sum += As[ty * 16 + i] * Bs[i * 16 + tx];"
TRANSPOSED = """Cs[tx * 16 + ty] = sum;
__syncthreads();
sum = Cs[ty * 16 + tx];"""


@dataclass(frozen=True)
class Carve:
    """One way to carve up the buffer.

    Attributes:
        expected: a declaration that it becomes; for a refused one, words of the reason.
        launch: dynamic bytes of cp_async with three stages. assumes: words of what is taken for granted, or "".
    """

    name: str
    carve: str
    expected: str
    bytes: int | str = 2048
    before: str = ""
    stores: tuple[str, str] = FLAT
    compute: str = PRODUCT
    after: str = ""
    launch: int = 6144
    assumes: str = ""

    @property
    def text(self) -> str:
        def lines(text: str, indent: str) -> str:
            return "".join(f"{indent}{x}\n" for x in text.splitlines())

        return _TEXT.format(
            carve=lines(self.carve, "    "),
            before=lines(self.before, "    "),
            a=self.stores[0],
            b=self.stores[1],
            compute=lines(self.compute, "        "),
            after=lines(self.after, "    "),
        )

    @property
    def sidecar(self) -> str:
        size = self.bytes if isinstance(self.bytes, int) else f'"{self.bytes}"'
        return product_sidecar("product", _LAUNCH.format(bytes=size), _SIZES, fill="")


_ROWS = ("smem[ty][tx]", "smem[16 + ty][tx]")
_ROW_PRODUCT = "for (int i = 0; i < 16; ++i) sum += smem[ty][i] * smem[16 + i][tx];"
READ = (
    Carve(
        "sums",
        "extern __shared__ float raw[];\nfloat *As = raw;\nfloat *Bs = raw + TILE;",
        "auto &Bs = *reinterpret_cast<float (*)[256]>(raw_bytes + 1024);",
    ),
    Carve(
        "bytes",
        "extern __shared__ __align__(16) unsigned char raw[];\nfloat *As = reinterpret_cast<float *>(raw);\n"
        "float *const Bs = (float *)(raw + TILE * sizeof(float));",
        "auto &Bs = *reinterpret_cast<float (*)[256]>(raw_bytes + 1024);",
    ),
    Carve(
        "addresses",
        "extern __shared__ float raw[];\nfloat *As = &raw[0], *Bs = &raw[TILE];",
        "auto &Bs = *reinterpret_cast<float (*)[256]>(raw_bytes + 1024);",
    ),
    Carve(
        "own_name",
        "extern __shared__ float As[];\nfloat *Bs = As + TILE;",
        "auto &As = *reinterpret_cast<float (*)[256]>(As_bytes);",
    ),
    Carve(
        "chain",
        "extern __shared__ char raw[];\nfloat *As = (float *)raw;\nfloat *mid = As + 128;\nfloat *Bs = mid + 128;",
        "auto &Bs = *reinterpret_cast<float (*)[256]>(raw_bytes + 1024);",
    ),
    Carve(
        "rows",
        "extern __shared__ float smem[][16];",
        "auto &smem = *reinterpret_cast<float (*)[32][16]>(smem_bytes);",
        stores=_ROWS,
        compute=_ROW_PRODUCT,
    ),
    Carve(
        "pointers_to_rows",
        "extern __shared__ float raw[];\nfloat (*As)[16] = (float (*)[16])raw;\n"
        "float (*Bs)[16] = reinterpret_cast<float (*)[16]>(raw + TILE);",
        "auto &Bs = *reinterpret_cast<float (*)[16][16]>(raw_bytes + 1024);",
        stores=("As[ty][tx]", "Bs[ty][tx]"),
        compute="for (int i = 0; i < 16; ++i) sum += As[ty][i] * Bs[i][tx];",
    ),
    Carve(
        "scratch",
        "extern __shared__ float raw[];\nfloat *As = raw;\nfloat *Ps = raw + TILE;\nfloat *Bs = raw + 2 * TILE;",
        "auto &Ps = *reinterpret_cast<float (*)[256]>(raw_bytes + 1024);",
        bytes=3072,
        compute=f"{PRODUCT}\nPs[ty * 16 + tx] = sum;\nsum += Ps[ty * 16 + tx] * 0.5f;",
        launch=7168,
    ),
    Carve(
        "epilogue",
        "extern __shared__ float raw[];\nfloat *As = raw;\nfloat *Bs = raw + TILE;\nfloat *Cs = raw;",
        "auto &Cs = *reinterpret_cast<float (*)[256]>(raw_bytes);",
        after=TRANSPOSED,
        assumes="`As` and `Cs` share bytes in turns",
    ),
    Carve(
        "epilogue_of_all",
        "extern __shared__ float smem[][16];",
        "auto &smem_tile = *reinterpret_cast<float (*)[32][16]>(smem_bytes);",
        bytes=8192,
        before="float *Cs = &smem[64][0];",
        stores=_ROWS,
        compute=_ROW_PRODUCT,
        after=f"smem[ty][tx] = sum;\n{TRANSPOSED}",
        launch=7168,
        assumes="`smem_tile` and `smem` share bytes in turns",
    ),
)

REFUSED = (
    Carve(
        "other_bytes_at_other_sizes",
        READ[0].carve,
        "hangs on a size",
        bytes="32 * K",
    ),
    Carve(
        "sized_at_run_time",
        "extern __shared__ float raw[];\nint tile = N * 16;\nfloat *As = raw;\nfloat *Bs = raw + tile;",
        "known at run time only",
    ),
    Carve(
        "filled_past_its_end",
        READ[0].carve,
        "may be used beyond its 1024 bytes",
        before="for (int i = ty * 16 + tx; i < 2 * TILE; i += 256) As[i] = 0.0f;",
    ),
    Carve(
        "two_names",
        "extern __shared__ float raw[];\nfloat *As = raw;\nfloat *Bs = raw + TILE;\nint *Is = (int *)raw;",
        "under another name",
        compute=f"{PRODUCT}\nsum += Is[tx];",
    ),
    Carve(
        "pointed_elsewhere",
        "extern __shared__ float raw[];\nfloat *As = raw;\nfloat *Bs = raw + TILE;",
        "",
        bytes=4096,
        compute=f"{PRODUCT}\nAs = k % 32 ? raw : raw + 2 * TILE;",
    ),
    Carve(
        "too_small",
        READ[0].carve,
        "have ended",
        bytes=1024,
    ),
)
# What is filled in front of the K-loop and read in it would have to be in every stage: rings are refused.
KEPT = Carve(
    "kept_beside_the_tiles",
    "extern __shared__ float smem[][16];",
    "in front of the K-loop",
    bytes=3072,
    before="smem[32 + ty][tx] = A[ty * K + tx];\n__syncthreads();",
    stores=_ROWS,
    compute=f"{_ROW_PRODUCT}\nsum += smem[32 + ty][tx];",
    after=f"float *Cs = &smem[0][0];\n{TRANSPOSED}",
)
# The epilogue reads the last tile by another name: no ring has it there.
READS_THE_TILE = Carve(
    "epilogue_reads_the_tile",
    READ[8].carve,
    "",
    after="sum += Cs[ty * 16 + tx];\n__syncthreads();\nCs[ty * 16 + tx] = sum;",
)
# Half of a tile is prepared in front of the K-loop and never stored to again.
HALF_KEPT = Carve(
    "half_of_a_tile_is_kept",
    "extern __shared__ float smem[][16];",
    "in front of the K-loop",
    before="smem[ty][tx] = 1.0f;\nsmem[16 + ty][tx] = 2.0f;\n__syncthreads();",
    stores=("if (ty < 8) smem[ty][tx]", "smem[16 + ty][tx]"),
    compute=_ROW_PRODUCT,
    after=f"float *Cs = &smem[0][0];\n{TRANSPOSED}",
)
# The same by another name.
HALF_KEPT_BY_NAME = Carve(
    "half_of_a_tile_is_kept_by_another_name",
    READ[8].carve,
    "filled under an `if`",
    before="Cs[ty * 16 + tx] = 1.0f;\n__syncthreads();",
    stores=("if (ty < 8) As[ty * 16 + tx]", FLAT[1]),
    after=TRANSPOSED,
)
