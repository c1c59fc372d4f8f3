"""The host side of a kernel that takes tensor maps: a C++ function that makes them and launches it, as text.

The text is included behind the kernel's definition. It uses the CUDA runtime and the driver's header only: the one
function of the driver that it calls is asked for by name, so that nothing else is linked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.launch.bind import LaunchChange
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.expressions import FLAG_FUNCTIONS, Binary, Call, Name, Node, Number, Unary, parse
from tilewright.launch.tensor_maps import TensorMapArg, asked_about, element_of

_WIDTH = 120  # characters of a line
_OPERATORS = {"//": "/", **{symbol: symbol for symbol in ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=")}}


@dataclass(frozen=True)
class Signature:
    """A kernel as its caller sees it.

    Attributes:
        name: unqualified. callee: as other code names it, with template arguments: ``ns::gemm<64>``.
        params: (name, type) of its own parameters, template parameters replaced.
        constants: whole numbers that the file gives names to.
    """

    name: str
    callee: str
    params: tuple[tuple[str, str], ...]
    constants: Mapping[str, int | float]


def host_shim(signature: Signature, launch: LaunchChange, label: str) -> str:
    """The text of a header with one function, ``<kernel>_launch``.

    Args:
        label: of the variant, for the header's first line.

    Raises:
        TilewrightError: ``rewrite/host_shim``, where the launch depends on something that is no parameter of the kernel
            and no constant of the file.
    """
    writer = _Writer(signature, launch)
    return _HEAD.format(label=label, **writer.words) + _ENCODER.format(**writer.words) + writer.launcher()


class _Writer:
    def __init__(self, signature: Signature, launch: LaunchChange) -> None:
        self.signature, self.launch = signature, launch
        self.names = {name for name, _ in signature.params}
        self.words = {"kernel": signature.name, "space": f"{signature.name}_host"}

    def launcher(self) -> str:
        static = self.launch.shared_bytes
        count = "launch_shared_bytes" if static is None else str(static)
        lines = [*self._heading(), *self._signature(), f"    using {self.words['space']}::launch_wide;"]
        lines += [line for tensor in self.launch.tensor_maps for line in self._map(tensor)]
        lines += self._unexcused()
        for flag in self.launch.flags:
            value = self._bare(parse(flag.condition, functions=FLAG_FUNCTIONS).root)
            lines += [f"    int {flag.name} = {value};  // 0: the kernel takes its other way"]
        lines += [
            "",
            f"    const void *const launch_kernel = reinterpret_cast<const void *>(&{self.signature.callee});",
            "    // More than 48 KiB are allowed to a kernel that asks for them.",
            "    const cudaError_t launch_status = cudaFuncSetAttribute(",
            f"        launch_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>({count}));",
            "    if (launch_status != cudaSuccess) return launch_status;",
            *self._arguments(),
            f"    return cudaLaunchKernel(launch_kernel, launch_grid, launch_block, launch_arguments, {count},",
            "                            launch_stream);",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _heading(self) -> list[str]:
        own = "" if self.launch.shared_bytes is None else f" with {self.launch.shared_bytes} dynamic shared bytes"
        lines = [f"// Launches {self.signature.callee}{own}: its own arguments stand behind grid, block and stream."]
        if self._must():
            lines.append("// cudaErrorInvalidValue: a tensor map cannot be made for these arguments.")
        return lines

    def _signature(self) -> list[str]:
        fixed = ["dim3 launch_grid", "dim3 launch_block"]
        fixed += ["size_t launch_shared_bytes"] if self.launch.shared_bytes is None else []
        fixed += ["cudaStream_t launch_stream"]
        own = [_declared(name, text) for name, text in self.signature.params]
        head = f"inline cudaError_t {self.signature.name}_launch("
        return _wrapped(head, [*fixed, *own], ") {")

    def _map(self, tensor: TensorMapArg) -> list[str]:
        if tensor.swizzle_bytes:
            raise _unclear(
                f"the tensor map '{tensor.name}' with a swizzle, which this header cannot make", self.signature.name
            )
        item_bytes = DTYPES[tensor.dtype].item_bytes
        start = f"reinterpret_cast<const char *>({tensor.array})"
        if tensor.offset != "0":
            start += f" + {self._text(parse(tensor.offset).root)} * {item_bytes}"
        kind = f"CU_TENSOR_MAP_DATA_TYPE_{element_of(DTYPES[tensor.dtype]).upper()}"
        dims, pitches = (", ".join(self._bare(parse(t).root) for t in texts) for texts in (tensor.dims, tensor.pitches))
        box = ", ".join(map(str, tensor.box))
        space, name = self.words["space"], tensor.name
        return [
            "",
            f"    // Boxes of {' x '.join(map(str, tensor.box))} elements of {tensor.array}, columns first.",
            f"    CUtensorMap {name};",
            f"    const {space}::Shape {name}_shape{{",
            f"        {len(tensor.dims)}, {{{dims}}}, {{{pitches}}}, {{{box}}}}};",
            f"    const bool {name}_is_made = {space}::encode(",
            f"        &{name}, {kind}, {item_bytes}, {start},",
            f"        {name}_shape);",
        ]

    def _must(self) -> list[str]:
        """The maps without which there is no launch."""
        asked: set[str] = set()
        for flag in self.launch.flags:
            asked |= asked_about(parse(flag.condition, functions=FLAG_FUNCTIONS).root)
        return [tensor.name for tensor in self.launch.tensor_maps if tensor.name not in asked]

    def _unexcused(self) -> list[str]:
        must = " || ".join(f"!{name}_is_made" for name in self._must())
        return [f"    if ({must}) return cudaErrorInvalidValue;"] if must else []

    def _arguments(self) -> list[str]:
        added = [*(tensor.name for tensor in self.launch.tensor_maps), *(flag.name for flag in self.launch.flags)]
        pointers = [f"(void *)&{name}" for name in (*(name for name, _ in self.signature.params), *added)]
        return _wrapped("    void *launch_arguments[] = {", pointers, "};")

    def _bare(self, node: Node) -> str:
        """An expression without the parentheses around it."""
        text = self._text(node)
        is_wrapped = isinstance(node, Binary) or (isinstance(node, Call) and node.function == "encodable")
        return text[1:-1] if is_wrapped else text

    def _text(self, node: Node) -> str:
        match node:
            case Number(value) if isinstance(value, int):
                return str(value)
            case Name(name):
                return self._name(name)
            case Unary(symbol, operand):
                return f"({symbol}{self._text(operand)})"
            case Binary(symbol, left, right) if symbol in _OPERATORS:
                return f"({self._text(left)} {_OPERATORS[symbol]} {self._text(right)})"
            case Call("encodable", maps):
                return f"({' && '.join(f'{name}_is_made' for name in _named(maps))})"
            case Call("ceil_div", (a, b)):
                return f"(({self._text(a)} + {self._text(b)} - 1) / {self._text(b)})"
            case Call("min" | "max" as function, arguments):
                return f"std::{function}<long long>({{{', '.join(self._text(each) for each in arguments)}}})"
        raise _unclear("a power, a root or a number that is not whole", self.signature.name)

    def _name(self, name: str) -> str:
        if name in self.names:
            return f"launch_wide({name})"
        value = self.signature.constants.get(name)
        if isinstance(value, int):
            return f"{int(value)} /* {name} */"
        raise _unclear(
            f"'{name}', which is no parameter of the kernel and no constant of the file", self.signature.name
        )


def _wrapped(head: str, items: list[str], end: str) -> list[str]:
    """Items behind ``head`` and below one another's first, as many on a line as fit."""
    rows, row = [], head + items[0]
    for item in items[1:]:
        if len(row) + len(item) + len(end) + 2 > _WIDTH:
            rows.append(row + ",")
            row = " " * len(head) + item
        else:
            row += ", " + item
    return [*rows, row + end]


def _named(arguments: tuple[Node, ...]) -> list[str]:
    return [argument.name for argument in arguments if isinstance(argument, Name)]


def _declared(name: str, text: str) -> str:
    """A parameter's declaration. A pointer that is written as an array is one."""
    bare = re.sub(r"\[[^\]]*\]", "*", text).replace("__grid_constant__", "").strip()
    return f"{bare[:-1].rstrip()} *{name}" if bare.endswith("*") else f"{bare} {name}"


def _unclear(what: str, kernel: str) -> TilewrightError:
    return TilewrightError("rewrite/host_shim", f"The launch of {kernel} depends on {what}.", {"kernel": kernel})


_HEAD = """\
// The host side of {kernel}, variant {label}: made by tilewright, to be included behind the kernel's definition.
//
// The kernel takes tensor maps behind its own parameters. They are made anew for each launch, from the pointers and the
// sizes that the kernel gets; the launch copies them, so that nothing of them has to outlive it. Needs CUDA 12.0 or
// later and compute capability 9.0 or later. Nothing but the CUDA runtime is linked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>

namespace {space} {{

"""

_ENCODER = """\
// cuTensorMapEncodeTiled of the driver that is there; nullptr where it has none.
inline decltype(&cuTensorMapEncodeTiled) encoder() {{
    static const decltype(&cuTensorMapEncodeTiled) found = [] {{
        void *entry = nullptr;
        cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
        const cudaError_t status =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
#else
        const cudaError_t status =
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &result);
#endif
        const bool is_there = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(is_there ? entry : nullptr);
    }}();
    return found;
}}

// A tensor, innermost dimension first: elements along each, bytes from one index to the next of all but the first, and
// the box that one copy moves.
struct Shape {{
    int rank;
    long long dims[5];
    long long pitches[4];
    unsigned box[5];
}};

template <typename T>
constexpr long long launch_wide(T value) {{ return static_cast<long long>(value); }}

// Makes a map without interleave and swizzle, zeros outside of the tensor. False, and a map of zeros, where a condition
// of the driver does not hold (CUDA Driver API, "Tensor Map Object Management", cuTensorMapEncodeTiled) or it refuses.
inline bool encode(CUtensorMap *map, CUtensorMapDataType type, int element_bytes, const void *address,
                   const Shape &shape) {{
    *map = CUtensorMap{{}};
    cuuint64_t dims[5] = {{}}, pitches[4] = {{}};
    cuuint32_t box[5] = {{}}, steps[5] = {{}};
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
    if (shape.box[0] * element_bytes % 16 != 0) return false;
    for (int i = 0; i < shape.rank; ++i) {{
        if (shape.dims[i] < 1 || shape.dims[i] > 1LL << 32 || shape.box[i] < 1 || shape.box[i] > 256) return false;
        dims[i] = static_cast<cuuint64_t>(shape.dims[i]);
        box[i] = shape.box[i];
        steps[i] = 1;
    }}
    for (int i = 0; i + 1 < shape.rank; ++i) {{
        if (shape.pitches[i] < 1 || shape.pitches[i] >= 1LL << 40 || shape.pitches[i] % 16 != 0) return false;
        pitches[i] = static_cast<cuuint64_t>(shape.pitches[i]);
    }}
    const auto call = encoder();
    if (call != nullptr &&
        call(map, type, static_cast<cuuint32_t>(shape.rank), const_cast<void *>(address), dims, pitches, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
        return true;
    *map = CUtensorMap{{}};
    return false;
}}

}}  // namespace {space}

"""
