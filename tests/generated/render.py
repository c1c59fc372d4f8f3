"""The text of a random tiled kernel."""

from __future__ import annotations

from choices import ACCUMULATOR
from render_loads import VECTOR, ZERO, Loads


class Kernel(Loads):
    """Writes one kernel."""

    # -- the compute phase --------------------------------------------------------------------------------
    def _products(self) -> list[str]:
        c = self.c
        kind = ACCUMULATOR[c.element]
        a = self.element("As", "k", "my_row + i") if self.transposed(self.a) else self.element("As", "my_row + i", "k")
        b = self.element("Bs", "k", "my_column + j")
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
        turned = self.transposed(self.a)
        a = self.element("As", "k", "my_row + i * 16") if turned else self.element("As", "my_row + i * 16", "k")
        b = self.element("Bs", "k", "my_column + j * 16")
        order = "col_major" if turned else "row_major"
        return [
            "for (int k = 0; k < BK; k += 16) {",
            f"    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::{order}> left[2];",
            "    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];",
            f"    for (int i = 0; i < 2; i++) wmma::load_matrix_sync(left[i], &{a}, {self.pitch('As')});",
            f"    for (int j = 0; j < 2; j++) wmma::load_matrix_sync(right[j], &{b}, {self.pitch('Bs')});",
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
            lines += ["__syncthreads();", f"if (tid == 0) {self.element('Bs', '0', '0')} = {ZERO[c.element]};"]
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
            first = len(self.side(self.a))
            place = self.element("As", "tid % " + self._rows("As"), "0")
            use = f"mixed += {f'__half2float({place})' if c.element == '__half' else place};"
            load = [*load[:first], sync, use, *load[first:]]
        if c.barriers == "leading":
            body += [sync, *load, sync, *compute]
        else:
            body += [*load, sync, *compute, *([] if c.trap == "race" else [sync])]
        ahead = ["int k_at = 0;"] if self.carried else []
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
            return "BK" if self.transposed(self.a) else "BM"
        return "BK"

    def _declared(self) -> list[str]:
        kind = "tile_t" if self.c.shared == "alias" else self.c.element
        sizes = {x: (self._rows(x), self.pitch(x)) for x in ("As", "Bs")}
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
        if self.is_flat:
            return f"ELEMENT *{array}"
        return f"ELEMENT {array}[][{self.pitch(array)}]"

    def _helper(self) -> list[str]:
        c = self.c
        lines = [x for s in (self.a, self.b) for x in self.load_side(s)]
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
        vector = VECTOR[c.element]
        out += [f"#define VECTOR(x) (reinterpret_cast<{vector} *>(&(x))[0])", "", *self._helper()]
        template = c.constants == "template"
        if template:
            out.append("template <int BM, int BN, int BK, int TM, int TN, int THREADS>")
        r = " __restrict__" if c.restrict else ""
        kind = ACCUMULATOR[c.element]
        args = [f"const ELEMENT *{r} A", f"const ELEMENT *{r} B", f"{kind} *{r} C"]
        if c.extra == "bias_read":
            args.append(f"const {kind} *{r} bias")
        if self.c.logs:
            args.append(f"float *{r} log")
        args += ["int M", "int N", "int K"]
        bounds = "" if template else " __launch_bounds__(THREADS)"
        linkage = "" if template else 'extern "C" '
        out += [f"{linkage}__global__{bounds} void gemm({', '.join(args)})", "{"]
        return "\n".join([*out, *("    " + x if x else "" for x in self._body()), "}"]) + "\n"

    def _body(self) -> list[str]:
        c = self.c
        tid = "threadIdx.y * (BN / TN) + threadIdx.x" if c.block_2d else "threadIdx.x"
        out = [f"const int tid = {tid};"]
        if c.shared != "in_loop":
            out += self._declared()
        if c.barriers == "scratch":
            out.append(f"__shared__ {ACCUMULATOR[c.element]} scratch[THREADS];")
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
        kind = ACCUMULATOR[c.element]
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
            first = self.element("As", f"tid / BK % {self._rows('As')}", "tid % BK")
            out += [f"{first} = {ZERO[c.element]};", "__syncthreads();"]
        loop = self.loop()
        out += ["if (K > 0) {", *("    " + x for x in loop), "}"] if c.outer == "branch" else loop
        if c.extra == "late_reuse":
            place = self.element("Bs", "tid / BN % BK", "tid % BN")
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
