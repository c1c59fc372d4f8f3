"""The text of a random tiled kernel, and its sidecar."""

from __future__ import annotations

from dataclasses import dataclass

from choices import Choices

_ACCUMULATOR = {"float": "float", "__half": "float", "signed char": "int"}
_ZERO = {"float": "0.0f", "__half": "__float2half(0.0f)", "signed char": "0"}
_VECTOR = {"float": "float4", "__half": "uint4", "signed char": "int4"}
_DTYPE = {"float": "float32", "__half": "float16", "signed char": "int8"}
_FILL = {"float": "normal(0, 1)", "__half": "normal(0, 1)", "signed char": "randint(-20, 20)"}


@dataclass(frozen=True)
class Side:
    """One operand: its tile and where it comes from."""

    name: str  # A, B
    array: str  # As, Bs
    copy: str
    rows: str
    columns: str
    pitch: str  # the leading dimension in global memory
    row0: str  # global row and column of the tile's corner
    column0: str
    limit_rows: str
    limit_columns: str


class Kernel:
    """Writes one kernel."""

    def __init__(self, choices: Choices) -> None:
        self.c = choices
        moved = choices.pointers in ("bump", "bump_late")
        k = "0" if moved else "k0"
        row, column = "block_row * BM", "block_column * BN"
        self.a = Side(
            "A", "As", choices.copy_a, "BM", "BK", "K", "0" if moved else row, "k_at" if self._carried else k, "M", "K"
        )
        self.b = Side(
            "B",
            "Bs",
            choices.copy_b,
            "BK",
            "BN",
            "N",
            "k_at" if self._carried else k,
            "0" if moved else column,
            "K",
            "N",
        )

    @property
    def _carried(self) -> bool:
        return self.c.pointers == "carried"

    # -- the load phase ---------------------------------------------------------------------------------
    def _guard(self, s: Side, row: str, column: str) -> str:
        if self.c.guard == "none":
            return ""
        k = "k0" if not self._carried else "k_at"
        grow = f"block_row * BM + {row}" if s.name == "A" else f"{k} + {row}"
        gcol = f"{k} + {column}" if s.name == "A" else f"block_column * BN + {column}"
        return f"{grow} < {s.limit_rows} && {gcol} < {s.limit_columns}"

    def _source(self, s: Side, row: str, column: str) -> str:
        at_row = row if s.row0 == "0" else f"({s.row0} + {row})"
        at_column = column if s.column0 == "0" else f"{s.column0} + {column}"
        return f"{s.name}[{at_row} * {s.pitch} + {at_column}]"

    def _place(self, s: Side, row: str, column: str) -> str:
        if self._transposed(s):
            row, column = column, row
        return self._element(s.array, row, column)

    def _transposed(self, s: Side) -> bool:
        return s.name == "A" and s.copy in ("vector_transposed", "array")

    def _pitch(self, array: str) -> str:
        wide = ("BM" if self._transposed(self.a) else "BK") if array == "As" else "BN"
        return f"({wide} + PAD)" if self.c.shared == "padded" else wide

    @property
    def _is_flat(self) -> bool:
        return self.c.shared in ("flat", "dynamic", "dynamic_bytes")

    def _element(self, array: str, row: str, column: str) -> str:
        if self._is_flat:
            tight = row if row.isidentifier() or row.isdigit() else f"({row})"
            return f"{array}[{tight} * {self._pitch(array)} + {column}]"
        return f"{array}[{row}][{column}]"

    def _copy(self, s: Side, r: str, c: str) -> list[str]:
        """One element, guarded as the kernel's idiom is."""
        guard, source, place = self._guard(s, r, c), self._source(s, r, c), self._place(s, r, c)
        zero, kind = _ZERO[self.c.element], self.c.element
        if s.copy == "initialised":
            read = f"if ({guard}) value = {source};" if guard else f"value = {source};"
            return [f"{kind} value{{{zero}}};", read, f"{place} = value;"]
        if s.copy == "typed_local":
            value = f"({guard}) ? {source} : {zero}" if guard else source
            return [f"{kind} value = {value};", f"{place} = value;"]
        if not guard:
            return [f"{place} = {source};"]
        if s.copy == "if_else":
            return [f"if ({guard}) {{", f"    {place} = {source};", "} else {", f"    {place} = {zero};", "}"]
        return [f"{place} = ({guard}) ? {source} : {zero};"]

    def _load(self, s: Side) -> list[str]:
        lines = self._load_plainly(s)
        if self.c.unroll and lines[0].startswith("for"):
            lines = ["#pragma unroll", *lines]
        if self.c.trap == "stale_fill" and s.name == "B":  # of every second tile, B is that of the one before
            k = "k_at" if self._carried else "k0"
            lines = [f"if ({k} / BK % 2 == 0) {{", *("    " + x for x in lines), "}"]
        if self.c.partial and s.name == "A":
            lines = ["if (tid / 32 < THREADS / 64) {", *("    " + x for x in lines), "}"]
        return lines

    def _loaders(self, s: Side) -> str:
        return "(THREADS / 64 * 32)" if self.c.partial and s.name == "A" else "THREADS"

    def _load_plainly(self, s: Side) -> list[str]:
        total, across, index = f"{s.rows} * {s.columns}", "(BN / TN)", self.c.index
        if s.copy == "each":
            at = (f"row_{s.name}", f"col_{s.name}")
            return [
                f"const {index} {at[0]} = tid / {s.columns};",
                f"const {index} {at[1]} = tid % {s.columns};",
                *self._copy(s, *at),
            ]
        if s.copy == "rows":
            head = f"for ({index} r = tid / {s.columns}; r < {s.rows}; r += THREADS / {s.columns}) {{"
            inner = [f"{index} c = tid % {s.columns};", *self._copy(s, "r", "c")]
            return [head, *("    " + x for x in inner), "}"]
        if s.copy == "nested":
            inner = self._copy(s, "r", "c")
            return [
                f"for ({index} r = threadIdx.y; r < {s.rows}; r += THREADS / {across}) {{",
                f"    for ({index} c = threadIdx.x; c < {s.columns}; c += {across}) {{",
                *("        " + x for x in inner),
                "    }",
                "}",
            ]
        if s.copy in ("vector", "vector_transposed", "array"):
            return self._load_vectors(s, total)
        inner = [f"{index} r = i / {s.columns};", f"{index} c = i % {s.columns};", *self._copy(s, "r", "c")]
        return [f"for ({index} i = tid; i < {total}; i += {self._loaders(s)}) {{", *("    " + x for x in inner), "}"]

    def _load_vectors(self, s: Side, total: str) -> list[str]:
        vector, width, index = _VECTOR[self.c.element], self.c.vector, self.c.index
        source, guard = self._source(s, "r", "c"), self._guard(s, "r", "c")
        read = f"*reinterpret_cast<const {vector} *>(&{source})"
        head = [
            f"for ({index} i = tid * {width}; i < {total}; i += {self._loaders(s)} * {width}) {{",
            f"    {index} r = i / {s.columns};",
            f"    {index} c = i % {s.columns};",
        ]
        zero = f"make_{vector}(0, 0, 0, 0)"
        if s.copy == "vector":
            value = f"({guard}) ? {read} : {zero}" if guard else read
            return [*head, f"    *reinterpret_cast<{vector} *>(&{self._place(s, 'r', 'c')}) = {value};", "}"]
        lanes = [f"    {self._place(s, 'r', f'c + {j}')} = " for j in range(width)]
        if s.copy == "vector_transposed":
            value = f"({guard}) ? {read} : {zero}" if guard else read
            stores = [f"{x}held.{'xyzw'[j]};" for j, x in enumerate(lanes)]
            return [*head, f"    {vector} held = {value};", *stores, "}"]
        held = [f"    {self.c.element} held[{width}];"]
        if guard:
            held += [f"    VECTOR(held[0]) = {zero};", f"    if ({guard}) VECTOR(held[0]) = {read};"]
        else:
            held += [f"    VECTOR(held[0]) = {read};"]
        return [*head, *held, *(f"{x}held[{j}];" for j, x in enumerate(lanes)), "}"]

    def load(self) -> list[str]:
        """The load phase inside the loop."""
        c = self.c
        if c.wrap in ("helper", "template_helper"):
            name = "load_tiles<BM, BN, BK, THREADS>" if c.wrap == "template_helper" else "load_tiles"
            k0 = "0" if c.loop == "pointer" else "k0"
            lines = [f"{name}(As, Bs, A, B, M, N, K, {k0}, block_row, block_column, tid);"]
        elif c.wrap == "macro":
            lines = ["LOAD_TILES();"]
        else:
            lines = self._side(self.a) + self._side(self.b)
        if c.trap == "address_from_shared":
            lines = ["const int jump = hops[tid % 4];", *lines, "A += jump;"]
        if c.pointers == "bump" and c.loop != "pointer":
            lines += ["A += BK;", "B += BK * N;"]
        if self._carried:
            lines.append("k_at += BK;")
        return lines

    def _side(self, s: Side) -> list[str]:
        part = self._load(s)
        return ["{", *("    " + x for x in part), "}"] if self.c.wrap == "block" else part

    # -- the compute phase --------------------------------------------------------------------------------
    def _products(self) -> list[str]:
        c = self.c
        kind = _ACCUMULATOR[c.element]
        a = (
            self._element("As", "k", "my_row + i")
            if self._transposed(self.a)
            else self._element("As", "my_row + i", "k")
        )
        b = self._element("Bs", "k", "my_column + j")
        if c.compute == "wmma":
            return self._fragments()
        left, right = (f"__half2float({x})" if c.element == "__half" else f"({kind}){x}" for x in (a, b))
        products = [f"sum[i][j] += {left} * {right};"]
        if c.compute == "pairs":
            pair = {"float": "float2", "__half": "__half2", "signed char": "char2"}[c.element]
            right = "__low2float(two)", "__high2float(two)"
            if c.element != "__half":
                right = f"({kind})two.x", f"({kind})two.y"
            products = [f"const {pair} two = *reinterpret_cast<const {pair} *>(&{b});"]
            products += [f"sum[i][j + {n}] += {left} * {right[n]};" for n in range(2)]
        return [
            "for (int k = 0; k < BK; k++) {",
            "    for (int i = 0; i < TM; i++) {",
            f"        for (int j = 0; j < TN; {'j += 2' if c.compute == 'pairs' else 'j++'}) {{",
            *(f"            {x}" for x in products),
            "        }",
            "    }",
            "}",
        ]

    def _fragments(self) -> list[str]:
        turned = self._transposed(self.a)
        a = self._element("As", "k", "my_row + i * 16") if turned else self._element("As", "my_row + i * 16", "k")
        b = self._element("Bs", "k", "my_column + j * 16")
        order = "col_major" if turned else "row_major"
        return [
            "for (int k = 0; k < BK; k += 16) {",
            f"    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::{order}> left[2];",
            "    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];",
            f"    for (int i = 0; i < 2; i++) wmma::load_matrix_sync(left[i], &{a}, {self._pitch('As')});",
            f"    for (int j = 0; j < 2; j++) wmma::load_matrix_sync(right[j], &{b}, {self._pitch('Bs')});",
            "    for (int i = 0; i < 2; i++) {",
            "        for (int j = 0; j < 2; j++) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);",
            "    }",
            "}",
        ]

    @property
    def _held(self) -> str:
        """One of a thread's own sums."""
        return "sum[0][0].x[0]" if self.c.compute == "wmma" else "sum[0][0]"

    def compute(self) -> list[str]:
        c = self.c
        lines = ["#pragma unroll"] if c.pragma else []
        lines += self._products()
        if c.barriers == "scratch":
            lines += [f"scratch[tid] = {self._held};", "__syncthreads();", "mixed += scratch[(tid + 1) % THREADS];"]
        if c.extra == "bias_read":
            lines.append("mixed += bias[tid % 4];")
        if c.extra == "log_store" or c.trap == "log_store_aliasing":
            lines.append(f"if (tid == 0 && block_row == 0 && block_column == 0) log[0] = (float){self._held};")
        if c.trap == "staged_written":
            lines += ["__syncthreads();", f"if (tid == 0) {self._element('Bs', '0', '0')} = {_ZERO[c.element]};"]
        if c.trap == "address_from_shared":
            lines.append("if (tid < 4) hops[tid] = 0;")
        if c.pointers == "bump_late":
            lines += ["A += BK;", "B += BK * N;"]
        return lines

    # -- the loop -------------------------------------------------------------------------------------------
    def loop(self) -> list[str]:
        c = self.c
        body = self._declared() if c.shared == "in_loop" else []
        load, compute, sync = self.load(), self.compute(), "__syncthreads();"
        if c.extra == "second_phase":
            first = len(self._side(self.a))
            place = self._element("As", "tid % " + self._rows("As"), "0")
            use = f"mixed += {f'__half2float({place})' if c.element == '__half' else place};"
            load = [*load[:first], sync, use, *load[first:]]
        if c.barriers == "leading":
            body += [sync, *load, sync, *compute]
        else:
            body += [*load, sync, *compute, *([] if c.trap == "race" else [sync])]
        ahead = ["int k_at = 0;"] if self._carried else []
        return ahead + self._headed(body)

    def _headed(self, body: list[str]) -> list[str]:
        inner = ["    " + x for x in body]
        match self.c.loop:
            case "tiles":
                return ["for (int t = 0; t < (K + BK - 1) / BK; t++) {", "    int k0 = t * BK;", *inner, "}"]
            case "two":
                head = "for (int k0 = 0, b_at = 0; k0 < K; k0 += BK, b_at += BK * N) {"
                return [head, *(x.replace("(k0 + r) * N", "b_at + r * N") for x in inner), "}"]
            case "pointer":
                end = "const ELEMENT *A_end = A + K;"
                return [end, "for (; A < A_end; A += BK, B += BK * N) {", *inner, "}"]
            case "while":
                return ["int k0 = 0;", "while (k0 < K) {", *inner, "    k0 += BK;", "}"]
            case "outside":
                return ["int k0;", "for (k0 = 0; k0 < K; k0 += BK) {", *inner, "}"]
            case "at_most":
                return ["const int last = K - BK;", "for (int k0 = 0; k0 <= last; k0 += BK) {", *inner, "}"]
            case "not_equal":
                return ["for (int k0 = 0; k0 != K; k0 += BK) {", *inner, "}"]
        return ["for (int k0 = 0; k0 < K; k0 += BK) {", *inner, "}"]

    # -- declarations -----------------------------------------------------------------------------------------
    @property
    def _aligned(self) -> int:
        return 32 if self.c.compute == "wmma" else 16

    def _rows(self, array: str) -> str:
        if array == "As":
            return "BK" if self._transposed(self.a) else "BM"
        return "BK"

    def _declared(self) -> list[str]:
        kind = "tile_t" if self.c.shared == "alias" else self.c.element
        sizes = {x: (self._rows(x), self._pitch(x)) for x in ("As", "Bs")}
        if self.c.shared == "dynamic":
            first = f"{sizes['As'][0]} * {sizes['As'][1]}"
            return [
                f"extern __shared__ __align__({self._aligned}) {kind} raw[];",
                f"{kind} *As = raw;",
                f"{kind} *Bs = raw + {first};",
            ]
        if self.c.shared == "dynamic_bytes":
            first = f"{sizes['As'][0]} * {sizes['As'][1]} * sizeof({kind})"
            return [
                f"extern __shared__ __align__({self._aligned}) char raw[];",
                f"{kind} *As = reinterpret_cast<{kind} *>(raw);",
                f"{kind} *Bs = reinterpret_cast<{kind} *>(raw + {first});",
            ]
        if self.c.shared == "flat":
            return [f"__shared__ __align__({self._aligned}) {kind} {x}[{r} * {p}];" for x, (r, p) in sizes.items()]
        if self.c.shared == "one_statement":
            both = ", ".join(f"{x}[{r}][{p}]" for x, (r, p) in sizes.items())
            return [f"__shared__ __align__({self._aligned}) {kind} {both};"]
        return [f"__shared__ __align__({self._aligned}) {kind} {x}[{r}][{p}];" for x, (r, p) in sizes.items()]

    def _pointer(self, array: str) -> str:
        """A parameter of the load helper."""
        if self._is_flat:
            return f"ELEMENT *{array}"
        return f"ELEMENT {array}[][{self._pitch(array)}]"

    def _helper(self) -> list[str]:
        c = self.c
        lines = [x for s in (self.a, self.b) for x in self._load(s)]
        if c.wrap == "macro":
            return ["#define LOAD_TILES() \\", *(f"    {x} \\" for x in lines), "    do { } while (0)", ""]
        if c.wrap not in ("helper", "template_helper"):
            return []
        head = "template <int BM, int BN, int BK, int THREADS>" if c.wrap == "template_helper" else ""
        names = ", ".join(
            [self._pointer("As"), self._pointer("Bs"), "const ELEMENT *A", "const ELEMENT *B"]
            + [f"int {x}" for x in ("M", "N", "K", "k0", "block_row", "block_column", "tid")]
        )
        return [
            *([head] if head else []),
            f"__device__ void load_tiles({names})",
            "{",
            *("    " + x for x in lines),
            "}",
            "",
        ]

    def _constants(self) -> list[str]:
        bm, bn, bk, tm, tn = self.c.tile
        values = {"BM": bm, "BN": bn, "BK": bk, "TM": tm, "TN": tn, "THREADS": self.c.threads}
        pad = {"PAD": 4 if self.c.vector == 4 else 8}
        if self.c.constants == "define":
            return [f"#define {k} {v}" for k, v in {**values, **pad}.items()]
        if self.c.constants == "constexpr":
            return [f"constexpr int {k} = {v};" for k, v in {**values, **pad}.items()]
        return [f"#define PAD {pad['PAD']}"]

    def text(self) -> str:
        """The whole file."""
        c = self.c
        out = ["#include <cuda_fp16.h>"]
        if c.compute == "wmma":
            out += ["#include <mma.h>", "", "namespace wmma = nvcuda::wmma;"]
        out += ["", *self._constants(), "", f"typedef {c.element} ELEMENT;"]
        if c.shared == "alias":
            out.append("typedef ELEMENT tile_t;")
        vector = _VECTOR[c.element]
        out += [f"#define VECTOR(x) (reinterpret_cast<{vector} *>(&(x))[0])", "", *self._helper()]
        template = c.constants == "template"
        if template:
            out.append("template <int BM, int BN, int BK, int TM, int TN, int THREADS>")
        r = " __restrict__" if c.restrict else ""
        kind = _ACCUMULATOR[c.element]
        args = [f"const ELEMENT *{r} A", f"const ELEMENT *{r} B", f"{kind} *{r} C"]
        if c.extra == "bias_read":
            args.append(f"const {kind} *{r} bias")
        if self._logs:
            args.append(f"float *{r} log")
        args += ["int M", "int N", "int K"]
        bounds = "" if template else " __launch_bounds__(THREADS)"
        linkage = "" if template else 'extern "C" '
        out += [f"{linkage}__global__{bounds} void gemm({', '.join(args)})", "{"]
        return "\n".join([*out, *("    " + x if x else "" for x in self._body()), "}"]) + "\n"

    @property
    def _logs(self) -> bool:
        return self.c.extra == "log_store" or self.c.trap == "log_store_aliasing"

    def _body(self) -> list[str]:
        c = self.c
        tid = "threadIdx.y * (BN / TN) + threadIdx.x" if c.block_2d else "threadIdx.x"
        out = [f"const int tid = {tid};"]
        if c.shared != "in_loop":
            out += self._declared()
        if c.barriers == "scratch":
            out.append(f"__shared__ {_ACCUMULATOR[c.element]} scratch[THREADS];")
        if c.trap == "address_from_shared":
            out += ["__shared__ int hops[4];", "if (tid < 4) hops[tid] = 0;", "__syncthreads();"]
        if c.compute == "wmma":
            out += ["const int my_row = tid / 64 * 32;", "const int my_column = tid / 32 % 2 * 32;"]
        else:
            out += ["const int my_row = (tid / (BN / TN)) * TM;", "const int my_column = (tid % (BN / TN)) * TN;"]
        if c.outer == "persistent":
            inner = [
                "const int block_row = tile / ((N + BN - 1) / BN);",
                "const int block_column = tile % ((N + BN - 1) / BN);",
            ]
            inner += self._tile()
            count = "((M + BM - 1) / BM) * ((N + BN - 1) / BN)"
            return [
                *out,
                f"for (int tile = blockIdx.x; tile < {count}; tile += gridDim.x) {{",
                *("    " + x for x in inner),
                "}",
            ]
        return [*out, "const int block_row = blockIdx.y;", "const int block_column = blockIdx.x;", *self._tile()]

    def _tile(self) -> list[str]:
        c = self.c
        kind = _ACCUMULATOR[c.element]
        out: list[str] = []
        if c.outer == "early_return":
            out.append("if (block_row * BM >= M) return;")
        if c.outer == "divergent_return":
            out.append("if (block_row * BM + my_row >= M) return;")
        if c.pointers in ("bump", "bump_late"):
            out += ["A += block_row * BM * K;", "B += block_column * BN;"]
        if c.compute == "wmma":
            out += ["wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];"]
            out += ["for (int i = 0; i < 4; i++) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);"]
        else:
            out.append(f"{kind} sum[TM][TN] = {{}};")
        out.append(f"{kind} mixed = 0;")
        if c.extra == "zeroed_before":
            first = self._element("As", f"tid / BK % {self._rows('As')}", "tid % BK")
            out += [f"{first} = {_ZERO[c.element]};", "__syncthreads();"]
        loop = self.loop()
        out += ["if (K > 0) {", *("    " + x for x in loop), "}"] if c.outer == "branch" else loop
        if c.extra == "late_reuse":
            place = self._element("Bs", "tid / BN % BK", "tid % BN")
            held = {"float": "{}", "__half": "__float2half({})", "signed char": "(signed char){}"}
            back = f"__half2float({place})" if c.element == "__half" else place
            out += [
                f"{'__syncthreads();' if c.barriers == 'leading' else ''}",
                f"if (tid < BK * BN) {place} = {held[c.element].format(self._held)};",
            ]
            out += ["__syncthreads();", f"if (tid < BK * BN) mixed += {back};", "__syncthreads();"]
        if c.extra == "typed_epilogue":
            out += ["__syncthreads();", f"{kind} *own = reinterpret_cast<{kind} *>(raw);", f"own[tid] = {self._held};"]
            out += ["__syncthreads();", "mixed += own[(tid + 1) % THREADS];", "__syncthreads();"]
        if c.compute == "wmma":
            return [*out, *self._stored()]
        place = "C[(block_row * BM + my_row + i) * N + block_column * BN + my_column + j]"
        store = f"{place} = sum[i][j] + (i + j == 0 ? mixed : 0);"
        if c.guard == "edges":
            store = f"if (block_row * BM + my_row + i < M && block_column * BN + my_column + j < N) {store}"
        return [
            *out,
            "for (int i = 0; i < TM; i++) {",
            "    for (int j = 0; j < TN; j++) {",
            f"        {store}",
            "    }",
            "}",
        ]

    def _stored(self) -> list[str]:
        store = "wmma::store_matrix_sync(&C[row * N + column], sum[i][j], N, wmma::mem_row_major);"
        if self.c.guard == "edges":
            store = f"if (row < M && column < N) {store}"
        return [
            "for (int i = 0; i < 2; i++) {",
            "    for (int j = 0; j < 2; j++) {",
            "        const int row = block_row * BM + my_row + i * 16;",
            "        const int column = block_column * BN + my_column + j * 16;",
            "        if (i + j == 0) sum[i][j].x[0] += mixed;",
            f"        {store}",
            "    }",
            "}",
        ]

    # -- the sidecar ----------------------------------------------------------------------------------------
    def sidecar(self, sizes: dict[str, dict[str, int]]) -> str:
        """How it is launched at those sizes."""
        c = self.c
        bm, bn, bk, tm, tn = c.tile
        kind = _ACCUMULATOR[c.element]
        names = {"BM": bm, "BN": bn, "BK": bk, "TM": tm, "TN": tn, "THREADS": c.threads}
        out = ['kernel = "gemm"']
        if c.constants == "template":
            out.append("template = [" + ", ".join(f'"{v}"' for v in names.values()) + "]")
        grid = "[3, 1, 1]" if c.outer == "persistent" else f'["ceil_div(N, {bn})", "ceil_div(M, {bm})", 1]'
        block = f"[{bn // tn}, {bm // tm}, 1]" if c.block_2d else f"[{c.threads}, 1, 1]"
        out += ["[launch]", f"grid = {grid}", f"block = {block}", f"shared_bytes = {self._dynamic_bytes()}", "[sizes]"]
        for name, values in sizes.items():
            out.append(f"{name} = {{ " + ", ".join(f"{k} = {v}" for k, v in values.items()) + " }")
        arrays = [("A", _DTYPE[c.element], '["M", "K"]', "in"), ("B", _DTYPE[c.element], '["K", "N"]', "in")]
        arrays.append(("C", "int32" if kind == "int" else "float32", '["M", "N"]', "out"))
        if c.extra == "bias_read":
            arrays.append(("bias", "int32" if kind == "int" else "float32", "[4]", "in"))
        if self._logs:
            arrays.append(("log", "float32", "[1]", "out"))
        for name, dtype, shape, role in arrays:
            fill = "randint(-20, 20)" if dtype in ("int8", "int32") else "normal(0, 1)"
            out += ["[[args]]", f'name = "{name}"', f'dtype = "{dtype}"', f"shape = {shape}", f'role = "{role}"']
            out += [f'fill = "{fill}"'] if role == "in" else []
        for name in "MNK":
            out += ["[[args]]", f'name = "{name}"', 'dtype = "int32"', f'value = "{name}"']
        return "\n".join(out) + "\n"

    def _dynamic_bytes(self) -> int:
        if self.c.shared not in ("dynamic", "dynamic_bytes"):
            return 0
        bm, bn, bk, _, _ = self.c.tile
        used = (bm * bk + bk * bn) * (16 // self.c.vector)
        return max(used, self.c.threads * 4) if self.c.extra == "typed_epilogue" else used


def sizes_of(c: Choices, fresh: bool = False) -> dict[str, dict[str, int]]:
    """Size sets that the kernel handles; ``fresh``: others than those that a rewrite is verified at first."""
    bm, bn, bk, _, _ = c.tile
    tiles = (3, 2, 7) if fresh else (2, 1, 5)
    out = {"default": {"M": bm * tiles[0], "N": bn * tiles[1], "K": bk * tiles[2]}}
    if c.guard == "edges":
        step = c.vector if {c.copy_a, c.copy_b} & {"vector", "vector_transposed", "array"} else 1
        more = 3 if fresh else 2

        def odd(value: int) -> int:
            return max(value // step * step, step)

        m, n, k = bm * more - bm // 3, odd(bn * 2 - 5), odd(bk * (more + 1) - bk // 2 + 1)
        if c.compute == "wmma":  # fragments are stored whole
            m, n = m // 16 * 16, n // 16 * 16
        out["ragged"] = {"M": m, "N": n, "K": k}
    return out
