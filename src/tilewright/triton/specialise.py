"""A kernel's parameters and a sidecar → what Triton's compiler takes: signature, constants, attributes.

Triton compiles a kernel anew for each launch that differs in a type, a constant, or in whether a number is a multiple
of 16. One compilation serves all size sets here, so only what holds at every one of them is told to the compiler; that
a number is 1 is never told.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundArray, BoundLaunch, BoundScalar, bind
from tilewright.launch.spec import ArgSpec, LaunchSpec, TritonSpec
from tilewright.triton.kernel_file import JitKernel

ALIGNMENT = 16
# Of the sidecar's types (ml_dtypes' names for the small floats); ``tl.float8e4nv`` is OCP's e4m3.
_TYPES: Mapping[str, str] = {
    "bool": "i1",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


@dataclass(frozen=True)
class Specialisation:
    """What ``ASTSource`` takes.

    Attributes:
        signature: parameter → ``*fp32``, ``i32``, ``constexpr``, in order.
        values: of the ``constexpr`` parameters.
        aligned: numbers of the parameters that are multiples of 16.
        constants: the values that are numbers, for the sidecar's expressions.
    """

    signature: Mapping[str, str]
    values: Mapping[str, Any]
    aligned: tuple[int, ...]
    constants: Mapping[str, int | float]


def specialise(kernel: JitKernel, spec: LaunchSpec, triton: TritonSpec, language: Any) -> Specialisation:
    """Fit a sidecar to a kernel.

    Args:
        language: ``triton.language``, for constants such as ``"tl.float16"``.

    Raises:
        TilewrightError: a parameter without a value, a value without a parameter, an order that differs; with the line.
    """
    params = list(kernel.function.params)
    values = _values(kernel, spec, triton, params, language)
    _check_order(kernel, spec, [p.name for p in params if p.name not in values])
    if not any(arg.is_pointer and arg.role != "in" for arg in spec.args):
        hint = 'Give role = "out" (or "inout") to what the kernel writes.'
        raise spec.error(("args",), "no_output", f"{kernel.name} has no output: nothing could be verified.", hint)
    constants = {name: value for name, value in values.items() if isinstance(value, int | float)}
    constants = {name: int(value) if isinstance(value, bool) else value for name, value in constants.items()}
    arguments = {arg.name: (index, arg) for index, arg in enumerate(spec.args)}
    signature = {
        p.name: "constexpr" if p.name in values else _type(spec, *arguments[p.name], p.annotation_type) for p in params
    }
    launches = [bind(spec, name, constants) for name in spec.sizes]
    aligned = tuple(p.num for p in params if p.name in arguments and _is_aligned(p, launches))
    return Specialisation(signature, values, aligned, constants)


def _values(
    kernel: JitKernel, spec: LaunchSpec, triton: TritonSpec, params: list[Any], language: Any
) -> dict[str, Any]:
    """Values of the parameters that are constant: by the sidecar, else by their default."""
    names = {p.name for p in params}
    given = {arg.name for arg in spec.args}
    for name in triton.constants:
        path = ("triton", "constants", name)
        if name not in names:
            raise spec.error(path, "argument_name", f"{kernel.name} has no parameter '{name}'.")
        if name in given:
            raise spec.error(path, "duplicate", f"'{name}' is an argument and a constant; it is one of them.")
    values: dict[str, Any] = {}
    for p in params:
        if p.name in triton.constants:
            values[p.name] = _value(spec, p.name, triton.constants[p.name], language)
        elif p.name in given:
            if p.is_constexpr:
                message = f"'{p.name}' is a constexpr: its value belongs into [triton] constants."
                raise spec.error(_place(spec, p.name), "argument_type", message)
        elif p.default is not inspect.Parameter.empty:
            values[p.name] = getattr(p.default, "value", p.default)
        elif p.is_constexpr:
            raise spec.error(("triton",), "missing_key", f"[triton] constants lacks '{p.name}' of {kernel.name}.")
    return values


def _value(spec: LaunchSpec, name: str, value: object, language: Any) -> object:
    if value == "None":
        return None
    if isinstance(value, str) and value.startswith("tl."):
        found = getattr(language, value.removeprefix("tl."), None)
        if found is None:
            message = f"triton.language has no '{value.removeprefix('tl.')}'."
            raise spec.error(("triton", "constants", name), "bad_value", message)
        return found
    return value


def _check_order(kernel: JitKernel, spec: LaunchSpec, need: list[str]) -> None:
    have = [arg.name for arg in spec.args]
    if have == need:
        return
    index = next((i for i, pair in enumerate(zip(have, need, strict=False)) if pair[0] != pair[1]), -1)
    message = f"{kernel.name} takes {', '.join(need) or 'no arguments'}; the sidecar has {', '.join(have) or 'none'}."
    where = ("args", index, "name") if index >= 0 else ("args",)
    hint = "Give one [[args]] per parameter that is no constexpr, in order."
    raise spec.error(where, "argument_name" if index >= 0 else "argument_count", message, hint)


def _place(spec: LaunchSpec, name: str) -> tuple[str | int, ...]:
    return "args", next(index for index, arg in enumerate(spec.args) if arg.name == name)


def _type(spec: LaunchSpec, index: int, arg: ArgSpec, annotation: str) -> str:
    """``*fp16`` or ``i32``; an annotation of the kernel's own must say the same."""
    base = _TYPES[arg.dtype.name]
    if not arg.is_pointer:
        base = {"i1": "u1"}.get(base, base)
    name = f"*{base}" if arg.is_pointer else base
    declared = annotation.replace("*k", "*")
    if declared and declared != name:
        message = f"'{arg.name}' is annotated as {declared}, and is {name} in the sidecar."
        raise spec.error(("args", index, "dtype"), "argument_type", message)
    return name


def _is_aligned(param: Any, launches: list[BoundLaunch]) -> bool:
    """Whether a pointer or a whole number is a multiple of 16 at every size set, as Triton itself would ask."""
    if getattr(param, "do_not_specialize", False) or getattr(param, "do_not_specialize_on_alignment", False):
        return False
    for launch in launches:
        argument = next(a for a in launch.arguments if a.name == param.name)
        if isinstance(argument, BoundScalar):
            if argument.dtype.kind not in ("int", "uint") or int(argument.value) % ALIGNMENT:
                return False
        elif isinstance(argument, BoundArray) and argument.offset * argument.dtype.item_bytes % ALIGNMENT:
            return False
    return True


def not_triton(spec: LaunchSpec) -> TilewrightError:
    message = "the sidecar has no [triton] table, and the kernel is a Python file's."
    return spec.error((), "missing_key", message, "Give [triton] with constants, num_warps and num_stages.")
