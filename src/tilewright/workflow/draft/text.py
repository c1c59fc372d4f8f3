"""A draft as the text of a sidecar, with its guesses as comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.launch.dtypes import read_c_type
from tilewright.launch.spec import Role
from tilewright.workflow.draft.extents import Shape
from tilewright.workflow.draft.plan import Parameter, Plan


@dataclass(frozen=True)
class Array:
    """What a run showed of an array argument."""

    shape: Shape
    role: Role


@dataclass(frozen=True)
class Head:
    """Which kernel it is, and how it is compiled: ``include`` relative to the sidecar."""

    kernel: str
    template: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


def sidecar_text(
    head: Head,
    plan: Plan,
    parameters: Sequence[Parameter],
    arrays: Mapping[str, Array],
    sets: Mapping[str, Mapping[str, int]],
    guesses: Sequence[str] = (),
) -> str:
    """``KERNEL.toml`` of a draft."""
    lines = ["# Drafted by Tilewright. Check it: what follows was guessed.", *(f"#   {guess}" for guess in guesses)]
    lines += _head(head)
    where = f"  # the launch at line {plan.launch_line}" if plan.launch_line is not None else "  # a guess"
    lines += ["", f"[launch]{where}", f"grid = {_list(plan.grid)}", f"block = {_list(plan.block)}"]
    if plan.shared != "0":
        lines.append(f"shared_bytes = {_item(plan.shared)}  # dynamic shared memory")
    if plan.sizes:
        lines += ["", "[sizes]  # `default` is timed; every set is verified"]
        for name, values in sets.items():
            lines.append(f"{name} = {{ {', '.join(f'{n} = {v}' for n, v in values.items())} }}")
    for parameter in parameters:
        lines += ["", "[[args]]", f'name = "{parameter.name}"', f'dtype = "{parameter.dtype.name}"']
        array = arrays.get(parameter.name)
        if array is None:
            lines.append(f"value = {_item(plan.scalars.get(parameter.name, '0'))}")
            continue
        note = f"  # {array.shape.note}" if array.shape.note else ""
        lines.append(f"shape = {_list(array.shape.extents)}{note}")
        if array.role != "in":
            lines.append(f'role = "{array.role}"')
        if array.role != "out":
            lines.append(f'fill = "{fill_of(parameter)}"')
    return "\n".join(lines) + "\n"


def skeleton_text(head: Head, parameters: Sequence[tuple[str, str]], problem: str) -> str:
    """A sidecar to be completed by hand: every TODO is a name that no size has, so that none can be overlooked."""
    lines = [
        "# Tilewright could not draft this sidecar. Replace every TODO; docs/sidecar.md has all keys.",
        f"#   {' '.join(problem.split())}",
        *_head(head),
        "",
        "[launch]",
        'grid = ["TODO", 1, 1]',
        'block = ["TODO", 1, 1]',
        "",
        "[sizes]  # `default` is timed; every set is verified",
        "default = { M = 1024, N = 1024, K = 1024 }",
    ]
    for name, kind in parameters:
        c_type = read_c_type(kind)
        is_struct = c_type.dtype is None and not c_type.is_pointer
        told = "; a structure: one entry for each member" if is_struct else ""
        lines += ["", f"[[args]]  # {' '.join(kind.split())} {name}{told}"]
        lines.append(f'name = "{name}.TODO"' if is_struct else f'name = "{name}"')
        lines.append(f'dtype = "{c_type.dtype or "TODO"}"')
        lines.append('shape = ["TODO"]' if c_type.is_pointer else 'value = "TODO"')
        if c_type.is_pointer and "const" not in kind.split("*")[0].split():
            lines.append('role = "out"')
    return "\n".join(lines) + "\n"


def _head(head: Head) -> list[str]:
    lines = [f'kernel = "{head.kernel}"']
    if head.template:
        lines.append(f"template = [{', '.join(map(_quoted, head.template))}]")
    if head.include:
        lines += ["", "[build]", f"include = [{', '.join(map(_quoted, head.include))}]"]
    return lines


def fill_of(parameter: Parameter) -> str:
    """Values with signs, small enough that products of 8-bit integers do not overflow."""
    match parameter.dtype.kind:
        case "float":
            return "normal(0, 1)"
        case "int":
            return "randint(-20, 20)"
        case "bool":
            return "randint(0, 2)"
        case _:
            return "randint(0, 20)"


def _item(text: str) -> str:
    return text if text.lstrip("-").replace(".", "", 1).isdigit() else _quoted(text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(items: Sequence[str]) -> str:
    return f"[{', '.join(_item(item) for item in items)}]"
