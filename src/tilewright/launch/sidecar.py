"""Reading ``KERNEL.toml``: strictly, so that a wrong sidecar is a message that names its line."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.dtypes import DTYPES, DType, contradiction, read_c_type
from tilewright.launch.expressions import Expression, Number, Place, parse_call
from tilewright.launch.kernel_names import is_same_kernel, kernel_and_template, kernel_of_file
from tilewright.launch.spec import ArgSpec, BuildSpec, Fill, LaunchSpec, Role, Triple
from tilewright.launch.structs import grouped, struct_of
from tilewright.launch.toml_lines import read_lines
from tilewright.launch.toml_table import Table, c_text, dotted
from tilewright.launch.triton_table import block_of, read_triton

ASSUMPTIONS = ("no_alias",)
# name of a fill -> (fewest arguments, most)
FILLS = {"randint": (2, 2), "uniform": (2, 2), "normal": (0, 2), "zeros": (0, 0), "arange": (0, 0)}
_STANDARDS = ("c++11", "c++14", "c++17", "c++20", "c++23")
_KEYS = ("kernel", "template", "arch", "build", "launch", "sizes", "args", "reference", "assume", "triton")
_ARRAY_KEYS = ("shape", "strides", "fill", "role", "alias_of", "offset")
MAX_DIMENSIONS = 32  # NumPy 1 has no arrays of more; NumPy 2 stops at 64
_ONE = Expression("1", Number(1))
_ZERO = Expression("0", Number(0))


def find_sidecar(kernel_file: Path, kernel: str | None = None) -> Path | None:
    """The sidecar beside a kernel file, or None.

    ``FILE.NAME.toml`` for the kernel that is asked for comes first, then ``FILE.toml`` unless it names another kernel.
    Without a name: ``FILE.toml``, else the only ``FILE.*.toml``. A kernel's namespace (``ns::gemm``) may be left out,
    here and there; in a file's name it always is.
    """
    plain = kernel_file.with_suffix(".toml")
    if kernel is not None:
        bare = kernel.split("::")[-1]
        named = kernel_file.with_name(f"{kernel_file.stem}.{bare}.toml")
        said = kernel_of_file(named)
        if named.is_file() and (said is None or said.split("::")[-1] != bare or is_same_kernel(said, kernel)):
            return named  # one for another kernel is an error of whoever named it so; of another namespace, none
        said = kernel_of_file(plain)
        return plain if plain.is_file() and (said is None or is_same_kernel(said, kernel)) else None
    if plain.is_file():
        return plain
    prefix = f"{kernel_file.stem}."
    folder = kernel_file.parent
    if not folder.is_dir():
        return None
    rivals = [file for file in folder.glob("*.toml") if file.name.startswith(prefix) and file.is_file()]
    return rivals[0] if len(rivals) == 1 else None


def load_sidecar(path: Path) -> LaunchSpec:
    """Read a sidecar. Anything unknown, missing or of a wrong type is a ``TilewrightError`` that names the line."""
    try:
        text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise Place(str(path), line).error("bad_toml", "the sidecar is not UTF-8 text.") from None
    except OSError as error:
        message = f"the sidecar cannot be read: {error.strerror or error}."
        raise Place(str(path)).error("no_sidecar", message, "Check the path given with --spec.") from None
    return parse_sidecar(text, path)


def parse_sidecar(text: str, path: Path) -> LaunchSpec:
    """The sidecar ``text``; ``path`` is for messages, and the folder that its file names are relative to."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad_toml(str(error), text, path) from None
    root = Table((), data, str(path), read_lines(text)).only(*_KEYS)
    launch = root.table("launch", required=True).only("grid", "block", "shared_bytes")
    triton = read_triton(root)
    kernel, template = kernel_and_template(root)
    return LaunchSpec(
        path=path,
        kernel=kernel,
        template=template,
        arch=root.optional_text("arch"),
        build=_build(root.table("build"), path.parent),
        grid=_triple(launch, "grid"),
        block=_triple(launch, "block") if triton is None or "block" in launch.data else block_of(triton),
        shared_bytes=launch.expression("shared_bytes", _ZERO),
        sizes=_sizes(root.table("sizes")),
        args=_args(root),
        reference=_reference(root.table("reference"), path.parent),
        assume=_assume(root.table("assume")),
        triton=triton,
        lines=root.lines,
    )


def check_against(
    spec: LaunchSpec,
    parameters: Sequence[tuple[str, str]],
    constants: Mapping[str, int | float],
    max_threads: int | None = None,
) -> None:
    """Compare a sidecar with the kernel's signature, and bind every size set.

    Args:
        parameters: (name, C type as written) of each parameter, in order; an unnamed one is "".
        constants: every constant of the file, template arguments included.
        max_threads: the first value of ``__launch_bounds__``: threads that a block may have at most; None without.

    Raises:
        TilewrightError: the first thing that does not fit, with its line.
    """
    groups = list(grouped([arg.name for arg in spec.args]))
    if len(groups) != len(parameters):
        signature = ", ".join(f"{kind} {name}".strip() for name, kind in parameters)
        message = f"{spec.kernel} takes {len(parameters)} arguments ({signature}); the sidecar has {len(groups)}."
        first = groups[len(parameters)][1][0] if len(groups) > len(parameters) else len(spec.args) - 1
        hint = "Give one [[args]] per parameter, in order; members of a structure as name.member."
        raise spec.error(("args", first), "argument_count", message, hint)
    for (_, indices), (name, kind) in zip(groups, parameters, strict=True):
        for index in indices:
            _check_argument(spec, index, spec.args[index], name, kind)
    if not any(arg.is_pointer and arg.role != "in" for arg in spec.args):
        hint = 'Give role = "out" (or "inout") to what the kernel writes.'
        raise spec.error(("args",), "no_output", f"{spec.kernel} has no output: nothing could be verified.", hint)
    for size_set in spec.sizes:
        _check_threads(spec, bind(spec, size_set, constants), max_threads)


def _check_threads(spec: LaunchSpec, launch: BoundLaunch, max_threads: int | None) -> None:
    threads = math.prod(launch.block)
    if max_threads is not None and threads > max_threads:
        shape = " x ".join(map(str, launch.block))
        message = f"a block of {shape} has {threads} threads; __launch_bounds__ of {spec.kernel} allows {max_threads}."
        raise spec.error(("launch", "block"), "out_of_range", message, "A launch with more fails.")


def _check_argument(spec: LaunchSpec, index: int, arg: ArgSpec, name: str, kind: str) -> None:
    owner = struct_of(arg.name)
    if owner is not None:
        _check_member(spec, index, owner, name, kind)
        return
    if name and arg.name != name:
        message = f"argument {index + 1} of {spec.kernel} is '{name}'; the sidecar has '{arg.name}' there."
        raise spec.error(("args", index, "name"), "argument_name", message, "Keep the order of the signature.")
    c_type = read_c_type(kind)
    if c_type.is_pointer != arg.is_pointer:
        need = "a pointer: give shape" if c_type.is_pointer else "a scalar: give value, and no shape"
        message = f"'{arg.name}' is '{' '.join(kind.split())}' in the signature, {need}."
        raise spec.error(("args", index), "argument_type", message)
    why = contradiction(c_type, arg.dtype)
    if why:
        raise spec.error(("args", index, "dtype"), "argument_type", f"'{arg.name}' does not fit: {why}.")


def _check_member(spec: LaunchSpec, index: int, owner: str, name: str, kind: str) -> None:
    """``owner``: the structure that the sidecar names. Its size is compared when the kernel is launched."""
    c_type = read_c_type(kind)
    shown = " ".join(kind.split())
    if name and owner != name:
        message = f"argument '{spec.args[index].name}' stands where {spec.kernel} takes '{name}'."
        raise spec.error(("args", index, "name"), "argument_name", message, "Keep the order of the signature.")
    if c_type.is_pointer or c_type.dtype is not None:
        message = f"'{owner}' is '{shown}' in the signature, which is no structure and has no members."
        raise spec.error(("args", index, "name"), "argument_type", message)


def _bad_toml(message: str, text: str, path: Path) -> TilewrightError:
    found = re.search(r"\(at line (\d+), column (\d+)\)", message)
    line = int(found.group(1)) if found else text.rstrip().count("\n") + 1
    what = re.sub(r"\s*\(at .*\)$", "", message)
    return Place(str(path), line).error("bad_toml", f"the sidecar is not valid TOML: {what}.")


def _build(table: Table, folder: Path) -> BuildSpec:
    table.only("defines", "include", "std", "flags", "compile_commands")
    defines = table.table("defines")
    for name, value in defines.data.items():
        if not isinstance(value, str | int | float):
            raise defines.wrong_type("a text or a number", value, name)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise defines.place(name).error("bad_value", f"'{name}' is not the name of a macro.")
    std = table.optional_text("std")
    if std is not None and std not in _STANDARDS:
        message = f"build.std is '{std}'; known are {', '.join(_STANDARDS)}."
        raise table.place("std").error("bad_value", message)
    if table.optional_text("compile_commands") is not None:
        hint = "Name the folders, macros and flags with include, defines and flags."
        raise table.place("compile_commands").error(
            "not_supported", "build.compile_commands is not supported yet.", hint
        )
    return BuildSpec(
        defines={name: c_text(value) for name, value in defines.data.items()},
        include=_include(table, folder),
        std=std,
        flags=table.texts("flags"),
    )


def _include(table: Table, folder: Path) -> tuple[Path, ...]:
    folders = tuple(folder / text for text in table.texts("include"))
    for index, path in enumerate(folders):
        if not path.is_dir():
            message = f"the include folder '{table.data['include'][index]}' does not exist beside the sidecar."
            raise table.place("include", index).error("no_include", message)
    return folders


def _triple(table: Table, key: str) -> Triple:
    value = table.get(key)
    if value is None:
        raise table.missing(key)
    found = table.expressions(key) if isinstance(value, list) else (table.as_expression(value, key),)
    assert found is not None
    if not 1 <= len(found) <= 3:
        raise table.wrong_type("1 to 3 expressions", value, key)
    x, y, z = (*found, _ONE, _ONE)[:3]
    return x, y, z


def _sizes(table: Table) -> dict[str, dict[str, int]]:
    sizes: dict[str, dict[str, int]] = {}
    for name in table.data:
        row = table.table(name)
        for key, value in row.data.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise row.wrong_type("an integer", value, key)
            if value < 0:
                raise row.place(key).error("bad_value", f"{dotted((*row.path, key))} is {value}; a size is 0 or more.")
        sizes[name] = dict(row.data)
    if not sizes:
        return {"default": {}}
    if "default" not in sizes:
        raise table.place().error("missing_key", "sizes.default is missing: the set that is timed.")
    for name, values in sizes.items():
        odd = sorted(values.keys() ^ sizes["default"].keys())
        if odd:
            verb = "lacks" if odd[0] in sizes["default"] else "has, and sizes.default lacks,"
            raise table.place(name).error(
                "bad_value", f"sizes.{name} {verb} '{odd[0]}'; every set names the same sizes."
            )
    return sizes


def _args(root: Table) -> tuple[ArgSpec, ...]:
    value = root.get("args")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise root.wrong_type("a list of tables, [[args]]", value, "args")
    args: list[ArgSpec] = []
    for index, item in enumerate(value):
        table = Table(("args", index), item, root.file, root.lines).only("name", "dtype", "value", *_ARRAY_KEYS)
        arg = _array(table) if "value" not in item else _scalar(table)
        if any(arg.name == other.name for other in args):
            raise table.place("name").error("duplicate", f"two arguments are named '{arg.name}'.")
        if not re.fullmatch(r"[^.]+(\.[^.]+)?", arg.name):
            message = f"'{arg.name}' is neither a parameter nor one member of it, as param.member."
            raise table.place("name").error("bad_value", message)
        owner = struct_of(arg.name)
        if owner is not None and args and struct_of(args[-1].name) != owner and owner in map(_first_part, args):
            message = f"the members of '{owner}' do not stand next to one another."
            raise table.place("name").error("bad_value", message, "Keep the order of the structure.")
        args.append(arg)
    _check_aliases(args, root)
    return tuple(args)


def _first_part(arg: ArgSpec) -> str:
    return arg.name.partition(".")[0]


def _scalar(table: Table) -> ArgSpec:
    for key in _ARRAY_KEYS:
        if key in table.data:
            message = f"args.{key} is for arrays, and this argument has a value."
            raise table.place(key).error("bad_value", message, "Give value (a scalar) or shape (an array).")
    name, dtype, value = table.text("name"), _dtype(table), table.expression("value")
    return ArgSpec(name, dtype, None, None, None, "in", None, None, value, table.place().line)


def _array(table: Table) -> ArgSpec:
    name, dtype, role = table.text("name"), _dtype(table), _role(table)
    shape, strides = table.expressions("shape"), table.expressions("strides")
    if shape is None:
        message = f"'{name}' has neither shape (an array) nor value (a scalar)."
        raise table.place().error("missing_key", message)
    if len(shape) > MAX_DIMENSIONS:
        message = f"'{name}' has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are understood."
        raise table.place("shape").error("bad_value", message)
    if strides is not None and len(strides) != len(shape):
        message = f"'{name}' has {len(shape)} dimensions and {len(strides)} strides."
        raise table.place("strides").error("bad_value", message)
    alias_of = table.optional_text("alias_of")
    if "offset" in table.data and alias_of is None:
        raise table.place("offset").error("bad_value", "offset belongs to alias_of, which is missing.")
    offset = table.expression("offset", _ZERO) if alias_of is not None else None
    fill = _fill(table)
    if fill is not None and (role == "out" or alias_of is not None):
        why = "an output is poisoned before each run" if role == "out" else "an alias has its owner's values"
        raise table.place("fill").error("bad_value", f"'{name}' cannot have a fill: {why}.")
    if fill is not None and fill.function in ("uniform", "normal") and dtype.kind != "float":
        message = f"'{name}' is {dtype.name}; fill it with randint(lo, hi), zeros() or arange()."
        raise table.place("fill").error("bad_value", message)
    return ArgSpec(name, dtype, shape, strides, fill, role, alias_of, offset, None, table.place().line)


def _dtype(table: Table) -> DType:
    name = table.text("dtype")
    if name in DTYPES:
        return DTYPES[name]
    from difflib import get_close_matches

    close = get_close_matches(name, list(DTYPES), n=1)
    hint = (
        f"Did you mean '{close[0]}'?" if close else "Types narrower than a byte are given as the uint8 that hold them."
    )
    message = f"'{name}' is not a known dtype; known are {', '.join(DTYPES)}."
    raise table.place("dtype").error("unknown_dtype", message, hint)


def _role(table: Table) -> Role:
    match table.optional_text("role"):
        case None | "in":
            return "in"
        case "out":
            return "out"
        case "inout":
            return "inout"
        case other:
            raise table.place("role").error("bad_value", f"role is '{other}'; known are in, out, inout.")


def _fill(table: Table) -> Fill | None:
    text = table.optional_text("fill")
    if text is None:
        return None
    function, arguments = parse_call(text, table.place("fill"))
    if function not in FILLS:
        raise table.place("fill").error("bad_value", f"'{function}' is not a fill; known are {', '.join(FILLS)}.")
    fewest, most = FILLS[function]
    if not fewest <= len(arguments) <= most or (function == "normal" and len(arguments) == 1):
        message = f"{function} takes {most} arguments and got {len(arguments)}."
        raise table.place("fill").error("bad_value", message)
    return Fill(text, function, arguments)


def _check_aliases(args: list[ArgSpec], root: Table) -> None:
    by_name = {arg.name: arg for arg in args}
    for index, arg in enumerate(args):
        if arg.alias_of is None:
            continue
        place = root.place("args", index, "alias_of")
        owner = by_name.get(arg.alias_of)
        if owner is None or owner is arg or not owner.is_pointer or owner.alias_of is not None:
            message = f"alias_of names '{arg.alias_of}', which is not another array with a buffer of its own."
            raise place.error("bad_value", message)
        if owner.dtype.item_bytes != arg.dtype.item_bytes:
            message = f"'{arg.name}' and '{owner.name}' share a buffer, and their elements differ in width."
            raise place.error("bad_value", message)


def _reference(table: Table, folder: Path) -> Path | None:
    if not table.data:
        return None
    name = table.only("file").text("file")
    path = folder / name
    if not path.is_file():
        raise table.place("file").error("no_reference", f"the reference '{name}' is not beside the sidecar.")
    return path


def _assume(table: Table) -> dict[str, bool]:
    for key, value in table.only(*ASSUMPTIONS).data.items():
        if not isinstance(value, bool):
            raise table.wrong_type("true or false", value, key)
    return dict(table.data)
