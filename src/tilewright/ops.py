"""The ladder's families as PyTorch operators: ``tilewright.ops.softmax(x)``, usable under ``torch.compile``.

Each name is a family (``tilewright ladder list``). Its inputs are the arguments of the family's ``ladder.toml`` that
are read, in their order, as CUDA tensors; then come sizes that no tensor says (``bins``) and its numbers (``epsilon``).
Outputs are new tensors, contiguous, or in memory as the input that they correspond to element by element; what is read
and written (``inout``) is changed in place. The rung is the one meant for the sizes. What an operator does not take, it
refuses with a ``TilewrightError`` that names the limit. There is no backward pass, and none forward: PyTorch refuses
the first, and would take an operator for a constant in forward mode, so that it refuses that itself.

``matmul`` is called in a way of its own, for layouts, batches and epilogues, over the rungs of two families, and
``explain_matmul`` tells what it chooses.

An operator is registered with ``torch.library`` when its name is first asked for. A call goes to its function, which
hands to PyTorch's dispatcher (``softmax.operator``) whatever is no repeat of an earlier call: see ``ladder.repeats``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.ladder.family import KERNELS, Family, load_family
from tilewright.ladder.family_file import ELEMENT
from tilewright.ladder.matmul_op import explain_matmul, make_matmul
from tilewright.ladder.repeats import Again, Repeats, told_apart
from tilewright.ladder.specs import operation_spec
from tilewright.ladder.views import row_major
from tilewright.launch.expressions import Expression, Name, Number

if TYPE_CHECKING:
    from tilewright.launch.spec import ArgSpec, LaunchSpec

__all__ = ["explain_matmul", "make_operator"]  # and an operator for each family
NAMESPACE = "tilewright"
Launch = Callable[[str, dict[str, Any], dict[str, float]], Again | None]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not (KERNELS / name / "ladder.toml").is_file():
        raise AttributeError(f"tilewright.ops has no operator '{name}'")
    operator = make_matmul(check=_refuse_forward_mode) if name == "matmul" else make_operator(load_family(name))
    globals()[name] = operator  # the next one who asks finds it without this function
    return operator


def __dir__() -> list[str]:
    return sorted(file.parent.name for file in KERNELS.glob("*/ladder.toml"))


def make_operator(family: Family, launch: Launch | None = None) -> Any:
    """Register a family with PyTorch.

    Args:
        launch: what computes, called with the family's name, tensors by argument, numbers by argument; it returns what
            would launch the same on other addresses, in that order, or None where it must be asked each time. None
            for the ladder's own kernels.

    Returns:
        The operator: a function, and ``operator`` of it the ``torch.library.CustomOpDef`` behind it. It raises
        ``ops/forward_mode`` where PyTorch computes derivatives along with values.

    Raises:
        TilewrightError: ``ops/no_torch`` (exit 3).
    """
    try:
        import torch
    except ImportError:
        hint = "Install it: pip install 'tilewright[torch]'."
        raise TilewrightError("ops/no_torch", "PyTorch is not installed.", {}, hint, EXIT_MISSING) from None
    shape = _Signature(family)
    run = launch or _Launcher()
    repeats = Repeats(torch)
    count = len(shape.inputs)

    def compute(*values: Any) -> Any:
        _refuse_forward_mode(family.name)
        tensors, numbers = values[:count], shape.numbers_key(values[count:], {})
        assert numbers is not None, "PyTorch has compared the call with the schema"
        made = repeats.again(tensors, numbers)
        if made is None:
            inputs, asked, named = shape.split(values)
            outputs = shape.outputs(inputs, asked)
            again = run(family.name, {**inputs, **outputs}, named)
            made = tuple(outputs.values())
            if again is not None:
                repeats.keep(tensors, numbers, made, again)
        return shape.returned(made)

    def fake(*values: Any) -> Any:
        _refuse_forward_mode(family.name)
        inputs, asked, _ = shape.split(values)
        return shape.returned(tuple(shape.outputs(inputs, asked).values()))

    operator = torch.library.custom_op(
        f"{NAMESPACE}::{family.name}", compute, mutates_args=shape.changed, schema=shape.schema
    )
    operator.register_fake(fake)
    return _function(shape, operator, repeats)


def _function(shape: _Signature, operator: Any, repeats: Repeats) -> Any:
    """What is called: for a repeat nothing else is."""
    import torch

    is_compiling = torch.compiler.is_compiling
    count, is_one, numbers_key = len(shape.inputs), len(shape.made) == 1, shape.numbers_key
    changes_inputs = bool(shape.changed)  # of which PyTorch counts the versions

    def call(*values: Any, **named: Any) -> Any:
        if is_compiling() or changes_inputs:
            return operator(*values, **named)
        numbers = numbers_key(values[count:], named)
        made = None if numbers is None else repeats.direct(values[:count], numbers)
        if made is None:
            return operator(*values, **named)
        return made[0] if is_one else made

    call.__name__ = call.__qualname__ = shape.family.name
    call.__doc__ = f"{shape.family.op}\n\nAs PyTorch has it: {shape.family.name}{shape.schema}"
    call.operator, call.repeats = operator, repeats  # type: ignore[attr-defined]
    return call


def _refuse_forward_mode(name: str) -> None:
    """PyTorch drops the tangents of an operator without a formula, and would go on with zeros."""
    import torch

    if getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0:
        message = f"{name} has no derivative in forward mode (torch.func.jvp, jacfwd, dual numbers)."
        raise TilewrightError("ops/forward_mode", message, {}, "Call it outside, or use PyTorch's own operator.")


class _Launcher:
    """The ladder's kernels on PyTorch's current stream."""

    def __init__(self) -> None:
        self._ladder: Any = None

    def __call__(self, family: str, tensors: dict[str, Any], numbers: dict[str, float]) -> Again | None:
        import torch

        if self._ladder is None:
            from tilewright.ladder.launching import Ladder

            self._ladder = Ladder()
        first = next(iter(tensors.values()))
        stream = torch.cuda.current_stream(first.device).cuda_stream if first.is_cuda else 0
        again = self._ladder.launched(family, tensors, scalars=numbers, stream=stream).again
        if again is None:
            return None
        names = tuple(tensors)
        return lambda pointers, stream: again(dict(zip(names, pointers, strict=True)), stream)


class _Signature:
    """How a family's arguments look to PyTorch."""

    def __init__(self, family: Family) -> None:
        self.family = family
        # Which element type it is makes no difference to shapes.
        self.spec: LaunchSpec = operation_spec(family, family.dtypes[0])
        self.sizes = family.sizes["default"]
        self.inputs = [arg for arg in self.spec.args if arg.is_pointer and arg.role != "out"]
        self.made = [arg for arg in self.spec.args if arg.is_pointer and arg.role == "out"]
        self.numbers = [arg for arg in self.spec.args if arg.value is not None and not arg.value.names()]
        self.changed = tuple(arg.name for arg in self.inputs if arg.role == "inout")
        self.kept = {arg["name"]: arg["dtype"] for arg in family.args}
        said = {_bare(e) for arg in self.inputs for e in (*(arg.shape or ()), *(arg.strides or ()))}
        self.asked = [name for name in self.sizes if name not in said]  # sizes that no input says
        self.names = [*(arg.name for arg in self.inputs), *self.asked, *(arg.name for arg in self.numbers)]
        self._defaults = {arg.name: _default(arg) for arg in self.numbers}
        self._usual_key = tuple(map(told_apart, self._defaults.values()))

    @property
    def schema(self) -> str:
        parts = [
            f"Tensor({chr(97 + i)}!) {arg.name}" if arg.role == "inout" else f"Tensor {arg.name}"
            for i, arg in enumerate(self.inputs)
        ]
        parts += [f"SymInt {name}" for name in self.asked]
        parts += [
            f"{'float' if arg.dtype.kind == 'float' else 'int'} {arg.name}={_default(arg)!r}" for arg in self.numbers
        ]
        result = (
            "()"
            if not self.made
            else "Tensor"
            if len(self.made) == 1
            else f"({', '.join(['Tensor'] * len(self.made))})"
        )
        return f"({', '.join(parts)}) -> {result}"

    def split(self, values: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]]:
        """Tensors, sizes and numbers by argument."""
        found = dict(zip(self.names, values, strict=False))
        inputs = {arg.name: found.pop(arg.name) for arg in self.inputs}
        return inputs, {name: found.pop(name) for name in self.asked}, found

    def numbers_key(self, given: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...] | None:
        """Sizes and numbers of a call, in order, with those that it leaves out, as `Repeats` has them; None where a
        call has others."""
        if not given and not named and not self.asked:
            return self._usual_key
        names = self.names[len(self.inputs) :]
        said = dict(zip(names, given, strict=False))
        if len(given) > len(names) or said.keys() & named.keys():
            return None
        whole = {**self._defaults, **said, **named}
        return tuple([told_apart(whole[name]) for name in names]) if whole.keys() == set(names) else None

    def outputs(self, inputs: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        """New tensors for the outputs, on the device of the inputs: contiguous, or as the flat input of that shape."""
        import torch

        first = next(iter(inputs.values()))
        element = next((v.dtype for n, v in inputs.items() if self.kept[n] == ELEMENT), None)
        sizes = {**self._sizes(inputs), **asked}
        flat = next((arg for arg in self.inputs if arg.name in self.family.flat), None)
        line = inputs[flat.name] if flat is not None else None
        rest = len(flat.shape or ()) - 1 if flat is not None else 0  # dimensions that are not of the line
        out = {}
        for arg in self.made:
            is_element = element is not None and self.kept[arg.name] == ELEMENT
            dtype = element if is_element else getattr(torch, arg.dtype.name)
            extents = [_extent(e, sizes) for e in arg.shape or ()]
            if line is None or arg.name not in self.family.flat:
                out[arg.name] = torch.empty(extents, dtype=dtype, device=first.device)
            elif len(extents) == 1 and not rest:
                out[arg.name] = torch.empty_like(line, dtype=dtype)
            else:
                extents = [*line.shape[: line.dim() - rest], *extents[1:]]
                out[arg.name] = torch.empty(extents, dtype=dtype, device=first.device)
        return out

    def returned(self, made: tuple[Any, ...]) -> Any:
        return None if not made else made[0] if len(made) == 1 else made

    def _sizes(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """From the inputs' shapes and strides; symbolic ones stay so."""
        found: dict[str, Any] = {}
        for arg in self.inputs:
            tensor = inputs[arg.name]
            need = len(arg.shape or ())
            first = tensor.dim() - need + 1
            if arg.name in self.family.flat and first >= 0:
                extents = (math.prod(tensor.shape[:first]), *tensor.shape[first:])
                for expression, extent in zip(arg.shape or (), extents, strict=True):
                    _take(found, expression, extent, self.sizes)
                continue
            if tensor.dim() != need:
                message = f"'{arg.name}' of {self.family.name} has {tensor.dim()} dimensions; it needs {need}."
                hint = "Reshape it: rows are its first dimensions together."
                raise TilewrightError("ladder/shape", message, {}, hint)
            for expression, extent in zip(arg.shape or (), tensor.shape, strict=True):
                _take(found, expression, extent, self.sizes)
            packed = row_major(tuple(tensor.shape)) if arg.strides is None else tuple(tensor.stride())
            for expression, stride in zip(arg.strides or (), packed, strict=False):
                _take(found, expression, stride, self.sizes)
        return found


def _bare(expression: Expression) -> str:
    return expression.root.name if isinstance(expression.root, Name) else ""


def _take(found: dict[str, Any], expression: Expression, value: Any, names: Any) -> None:
    if isinstance(expression.root, Name) and expression.root.name in names:
        found.setdefault(expression.root.name, value)


def _extent(expression: Expression, sizes: dict[str, Any]) -> Any:
    if isinstance(expression.root, Name) and expression.root.name in sizes:
        return sizes[expression.root.name]
    if isinstance(expression.root, Number):
        return int(expression.root.value)
    return expression.evaluate_int({name: int(value) for name, value in sizes.items()})


def _default(arg: ArgSpec) -> float | int:
    assert arg.value is not None
    value = arg.value.evaluate({})
    return float(value) if arg.dtype.kind == "float" else int(value)
