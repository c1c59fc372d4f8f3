"""What statements may do: which names they write, what memory they store to, which barriers they pass.

Everything not known to be harmless counts as harmful.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.source import ir

BARRIERS = frozenset({"__syncthreads"})
_OTHER_BARRIERS = re.compile(
    r"^(__syncthreads_\w+|__barrier_\w+|.*\b(?:sync|arrive|wait|arrive_and_wait)|cooperative_groups::.*|cg::.*)$"
)
_HARMLESS_SYNC = frozenset({"__syncwarp", "__activemask"})
# Intrinsics that neither write memory nor take references.
_PURE = re.compile(
    r"^(?:std::)?(?:f?(?:min|max|abs|fabs)[fl]?|fm(?:a|in|ax)f?|__?(?:ldg|ldcg|ldca|ldcs)|sqrtf?|rsqrtf?|expf?|exp2f?|logf?|"
    r"log2f?|tanhf?|erff?|powf?|floorf?|ceilf?|roundf?|rintf?|truncf?|sinf|cosf|"
    r"__\w*(?:2half|half2|2float|float2|half22\w+|bfloat16|2bfloat16\w*|_rn|_rz|_ru|_rd|2int\w*|2uint\w*|as_\w+)\w*|"
    r"__(?:fmaf|fadd|fmul|fsub|fdiv|frcp|hadd|hmul|hfma|hsub|hmax|hmin|hneg|expf|logf|dp4a|dp2a|popc|clz|ffs|brev|"
    r"byte_perm|funnelshift|sad|mul24|mulhi|umulhi|exp10f|powf|sinf|cosf|saturatef|fdividef|h2div|hadd2|hmul2|hfma2|hsub2)\w*|"
    r"__shfl_\w+|__ballot_sync|__any_sync|__all_sync|__reduce_\w+_sync|__cvta_generic_to_shared|__isShared|"
    r"make_\w+|h?float2half\w*|half|__half|float|int|unsigned|double|half2|__half2|__low2\w+|__high2\w+|__halves2half2|"
    r"nv_bfloat16|__nv_bfloat16|sizeof|clock|clock64|__nanosleep|printf|assert)$"
)
_FIRST_ARGUMENT = frozenset({"fill_fragment", "load_matrix_sync", "mma_sync"})  # writes its first argument, a fragment
_ASYNC_CALL = re.compile(
    r"__pipeline_|memcpy_async|cuda::pipeline|cuda::barrier|cp_async|mbarrier|cuda::ptx|wgmma|__mbarrier"
)
_ASYNC_ASM = re.compile(r"\b(?:cp\.async|mbarrier|wgmma|cp\.reduce\.async|tcgen05)\b")
_ASM_READS_ONLY = re.compile(
    r"^(?:@!?\S+\s+)?(?:mma|wmma\.(?:mma|load)|ldmatrix|ld|ldu|cvt|cvta|mov|movmatrix|add|addc|sub|subc|mul|mul24|mad|madc|fma|div|"
    r"rem|shl|shr|shf|and|or|xor|not|lop3|prmt|dp4a|dp2a|ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|setp|set|selp|slct|max|min|neg|"
    r"abs|bfe|bfi|bfind|brev|popc|clz|sad|shfl|vote|activemask|elect|redux|match|isspacep|testp|copysign|nop|pack|"
    r"unpack)\b(?!\.\w*\bst\b)"
)
_ASM_NOISE = re.compile(r"^(?:\.reg\b.*|\{|\}|)$")


@dataclass(frozen=True)
class Parameter:
    """How a ``__device__`` function takes one argument: ``value``, ``reference`` or ``pointer``; const or not."""

    how: str
    const: bool


@dataclass(frozen=True)
class DeviceFunction:
    """A function of the file that kernels call."""

    name: str
    params: tuple[Parameter, ...]
    effects: Effects


@dataclass
class Effects:
    """Collected over a group of statements.

    Attributes:
        reads, writes: symbol ids. A name passed where it may be changed counts as written.
        stores: (root symbol or None where unknown, line-bearing node) of stores through memory.
        barriers: spans of ``__syncthreads()``; other_barriers: anything else that may wait for other threads.
        jumps: return, break, continue, goto. unknown: what could not be classified, with its span.
        asynchronous: spans of asynchronous copies, pipelines or mbarriers.
        free_reads: names that are no symbols of the kernel (globals, constants).
    """

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    stores: list[tuple[int | None, ir.Span]] = field(default_factory=list)
    barriers: list[ir.Span] = field(default_factory=list)
    other_barriers: list[tuple[str, ir.Span]] = field(default_factory=list)
    jumps: list[tuple[str, ir.Span]] = field(default_factory=list)
    unknown: list[tuple[str, ir.Span]] = field(default_factory=list)
    asynchronous: list[ir.Span] = field(default_factory=list)
    free_reads: set[str] = field(default_factory=set)


def root(expr: ir.Expr) -> ir.Name | None:
    """The name that an lvalue or address hangs on: ``*(int4*)&As[r][c]`` → ``As``; None where it isn't one name."""
    match expr:
        case ir.Name():
            return expr
        case ir.Index(base=b) | ir.Member(base=b) | ir.Cast(operand=b):
            return root(b)
        case ir.Unary(op="*" | "&", operand=b):
            return root(b)
        case ir.Binary(op="+" | "-", left=a, right=b):
            left = root(a)
            return left if left is not None else root(b)
    return None


def is_pointer(symbol: ir.Symbol) -> bool:
    return symbol.pointers > 0 and not symbol.dims


class Collector:
    """Walks statements and fills :class:`Effects`."""

    def __init__(self, symbols: Mapping[int, ir.Symbol], functions: Mapping[str, DeviceFunction]) -> None:
        self._symbols = symbols
        self._functions = functions

    def collect(self, nodes: Iterable[ir.Stmt | ir.Expr]) -> Effects:
        out = Effects()
        for node in nodes:
            self._visit(node, out)
        return out

    def _visit(self, node: ir.Stmt | ir.Expr, out: Effects) -> None:
        match node:
            case ir.Name(symbol=None, id=name):
                out.free_reads.add(name)
            case ir.Name(symbol=int(s)):
                out.reads.add(s)
            case ir.Declare(symbols=symbols):
                out.writes.update(s.id for s in symbols)
                for declared in symbols:
                    # A reference or pointer to a local lets it change behind our back.
                    base = root(declared.init) if declared.reference and declared.init is not None else None
                    if base is not None and base.symbol is not None:
                        out.writes.add(base.symbol)
            case ir.Assign(left=left, op=op):
                self._write(left, out, node.span)
                if op == "=" and isinstance(left, ir.Name):
                    self._visit(node.right, out)
                    return
            case ir.Unary(op="++" | "--" | "p++" | "p--", operand=x):
                self._write(x, out, node.span)
            case ir.Call():
                self._call(node, out)
                return
            case ir.Asm():
                self._asm(node, out)
            case ir.Jump(kind=k):
                out.jumps.append((k, node.span))
            case ir.OpaqueStmt(what=w) | ir.Opaque(what=w):
                out.unknown.append((w, node.span))
        for child in ir.children(node):
            self._visit(child, out)

    def _write(self, target: ir.Expr, out: Effects, span: ir.Span) -> None:
        base = root(target)
        if base is None or base.symbol is None:
            out.stores.append((None, span))
            return
        symbol = self._symbols[base.symbol]
        if isinstance(target, ir.Name):
            out.writes.add(symbol.id)
            if symbol.reference:
                out.stores.append((None, span))
        elif symbol.kind == "shared" or is_pointer(symbol) or symbol.reference:
            out.stores.append((symbol.id, span))
        else:
            out.writes.add(symbol.id)  # an element of a local array, a lane of a local vector

    def _call(self, call: ir.Call, out: Effects) -> None:
        name = call.callee
        short = name.split("<")[0].split("::")[-1]
        if name in BARRIERS:
            out.barriers.append(call.span)
        elif _ASYNC_CALL.search(name):
            out.asynchronous.append(call.span)
        elif short in self._functions:
            self._device_call(self._functions[short], call, out)
        elif short in _FIRST_ARGUMENT and call.args:
            self._write(call.args[0], out, call.span)
        elif short == "store_matrix_sync" and call.args:
            base = root(call.args[0])
            out.stores.append((base.symbol if base is not None else None, call.span))
        elif name in _HARMLESS_SYNC or _PURE.match(name):
            pass
        elif _OTHER_BARRIERS.match(name):
            out.other_barriers.append((name, call.span))
        else:
            out.unknown.append((f"a call of {name}, whose body is not in this file", call.span))
        for arg in call.args:
            self._visit(arg, out)

    def _device_call(self, function: DeviceFunction, call: ir.Call, out: Effects) -> None:
        inner = function.effects
        out.barriers.extend(call.span for _ in inner.barriers)
        out.other_barriers.extend((w, call.span) for w, _ in inner.other_barriers)
        out.asynchronous.extend(call.span for _ in inner.asynchronous)
        out.unknown.extend((f"{w} in {function.name}()", call.span) for w, _ in inner.unknown)
        if len(call.args) > len(function.params):
            out.unknown.append((f"a call of {function.name} with other parameters", call.span))
            return
        for param, arg in zip(function.params, call.args, strict=False):
            base = root(arg)
            symbol = self._symbols.get(base.symbol) if base is not None and base.symbol is not None else None
            if param.how == "value" or param.const:
                continue
            if (
                param.how == "reference" and symbol is not None and symbol.kind != "shared" and not is_pointer(symbol)
            ) or (param.how == "pointer" and symbol is not None and symbol.kind == "local" and not is_pointer(symbol)):
                out.writes.add(symbol.id)
            else:
                out.stores.append((symbol.id if symbol is not None else None, call.span))
        if any(s is None for s, _ in inner.stores):
            out.stores.append((None, call.span))

    def _asm(self, node: ir.Asm, out: Effects) -> None:
        if _ASYNC_ASM.search(node.code):
            out.asynchronous.append(node.span)
        for piece in asm_instructions(node.code):
            if not _ASM_READS_ONLY.match(piece):
                if re.match(r"^(?:@!?\S+\s+)?(?:bar|barrier)\b", piece):
                    out.other_barriers.append((piece, node.span))
                elif re.match(r"^(?:@!?\S+\s+)?(?:st|stmatrix|red|atom|wmma\.store)\b", piece):
                    out.stores.append((None, node.span))
                else:
                    out.unknown.append((f"inline PTX `{piece.split()[0] if piece.split() else piece}`", node.span))
        for _, target in node.outputs:
            self._write(target, out, node.span)


def asm_instructions(code: str) -> list[str]:
    """The instructions of an inline-PTX string literal (or several, concatenated)."""
    literal = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', code))
    plain = re.sub(r"\\[nrt]", " ", literal)
    plain = re.sub(r"//.*?$|/\*.*?\*/", " ", plain)
    pieces = []
    for piece in plain.split(";"):
        cleaned = re.sub(r"^[\s{]*(?:\.reg[^;]*)?", "", piece).strip().rstrip("}").strip()
        if not _ASM_NOISE.match(cleaned):
            pieces.append(cleaned)
    return pieces
