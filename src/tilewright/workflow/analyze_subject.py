"""What `tilewright analyze` looks at, whatever it was handed: machine code, PTX, resources, and a launch if known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.analyze.record import InputKind
from tilewright.errors import TilewrightError
from tilewright.launch.executor import Program
from tilewright.launch.spec import LaunchSpec
from tilewright.receipt import record
from tilewright.settings import Settings
from tilewright.workflow.reading import Target, read_file, sidecar_for, target_for

if TYPE_CHECKING:
    from tilewright.sass.listing import Function
    from tilewright.workflow.opening import Opened

Say = Callable[[str], None]
_WARP = 32


@dataclass(frozen=True)
class Subject:
    """One kernel.

    Attributes:
        function: its machine code. program: what an executor needs; its PTX is "" where there is none.
        log: the compiler's, "" where there is none.
        smem_bytes: static. shared_bytes: dynamic, where the input says so.
        threads: of a block, where the input says so (launch bounds, Triton's warps); threads_source with it.
        spec: how it is launched; constants: for its expressions. opened: of a CUDA source.
        is_drafted: no sidecar was there, and one was drafted. assumptions: what was guessed.
    """

    kind: InputKind
    kernel: record.Kernel
    target: Target
    function: Function
    program: Program
    log: str
    toolchain: str
    registers: int
    smem_bytes: int
    spill_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int = 0
    threads: int | None = None
    threads_source: str = ""
    spec: LaunchSpec | None = None
    constants: Mapping[str, int | float] | None = None
    opened: Opened | None = None
    is_drafted: bool = False
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What names the subject: see `workflow.analyze`. ``default_arch``: of the GPU or of the card that was named."""

    path: Path
    kernel: str | None
    arch: str | None
    spec: Path | None
    default_arch: str | None
    settings: Settings
    use_cache: bool


def open_subject(asked: Asked, say: Say) -> Subject:
    """Read, compile where there is source, and disassemble.

    Raises:
        TilewrightError: no such file or kernel, neither CUDA nor a cubin, a corrupt one, no disassembler.
    """
    entry = triton_entry(asked.path)
    if entry is not None:
        return _of_triton_entry(asked, *entry)
    raw = read_file(asked.path)
    if raw[:4] == b"\x7fELF":
        return _of_cubin(asked, raw)
    if asked.path.suffix == ".cubin":
        from tilewright.sass.nvdisasm import corrupt_cubin

        raise corrupt_cubin("it does not begin as an ELF file")
    return _of_triton_source(asked, say) if asked.path.suffix == ".py" else _of_source(asked, raw, say)


def triton_entry(path: Path) -> tuple[Path, dict[str, Any]] | None:
    """(cubin, metadata) of an entry of Triton's cache: its folder, its cubin or its ``.json``; None for anything else.

    Raises:
        TilewrightError: ``analyze/triton_entry``: a folder with several cubins, or an entry that is not whole.
    """
    if path.is_dir():
        cubins = sorted(path.glob("*.cubin"))
        if not cubins:
            return None
        if len(cubins) > 1:
            raise _bad_entry(path, f"the folder holds {len(cubins)} cubins", f"Name one: {cubins[0]}.")
        cubin = cubins[0]
    elif path.suffix in (".cubin", ".json"):
        cubin = path.with_suffix(".cubin")
    else:
        return None
    meta = _metadata(cubin.with_suffix(".json"))
    if meta is None and path.suffix == ".cubin" and not path.is_dir():
        return None  # a plain cubin
    if meta is None or not cubin.is_file():
        raise _bad_entry(path, "cubin and metadata (.json with num_warps) do not stand side by side", "")
    return cubin, meta


def _metadata(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("num_warps"), int) else None


def _bad_entry(path: Path, what: str, hint: str) -> TilewrightError:
    message = f"An entry of Triton's cache was needed: {what}."
    return TilewrightError("analyze/triton_entry", message, {"file": str(path)}, hint)


def _of_triton_entry(asked: Asked, cubin: Path, meta: dict[str, Any]) -> Subject:
    found = _of_cubin(replace(asked, path=cubin, kernel=asked.kernel or str(meta.get("name") or "") or None), None)
    ptx = cubin.with_suffix(".ptx")
    text = ptx.read_text("utf-8", errors="replace") if ptx.is_file() else ""
    shared = meta.get("shared")
    return replace(
        found,
        kind="triton_cache",
        program=replace(found.program, ptx=text),
        toolchain=f"triton {meta.get('triton_version', '')}".strip(),
        smem_bytes=0,
        shared_bytes=shared if isinstance(shared, int) else 0,
        threads=meta["num_warps"] * _WARP,
        threads_source="Triton's num_warps",
    )


def _of_cubin(asked: Asked, raw: bytes | None) -> Subject:
    from tilewright.arch.arch import load_arch
    from tilewright.sass.elf import launch_facts_of
    from tilewright.sass.listing import disassemble

    data = raw if raw is not None else read_file(asked.path)
    listing = disassemble(data, asked.settings)
    function = _one_of([f for f in listing.functions if f.is_kernel], asked)
    arch = load_arch(function.arch)
    facts = launch_facts_of(data, function.name)
    # From Hopper on the section begins with what the system keeps for itself.
    kept = arch.smem_reserved_bytes if arch.compute_capability >= (9, 0) and facts.smem_bytes else 0
    spec = sidecar_for(asked.path, asked.spec, None) if asked.spec is not None else None
    return Subject(
        kind="cubin",
        kernel=record.Kernel(str(asked.path), function.name),
        target=Target(arch.name, "the cubin's"),
        function=function,
        program=Program(data, "", function.name, arch.name),
        log="",
        toolchain="",
        registers=function.registers,
        smem_bytes=max(facts.smem_bytes - kept, 0),
        spill_bytes=None,
        stack_bytes=None,
        threads=facts.max_threads,
        threads_source="the launch bounds in the cubin" if facts.max_threads else "",
        spec=spec,
        constants={},
    )


def _one_of(functions: list[Function], asked: Asked) -> Function:
    """The kernel that was named, by its own or its mangled name; or the only one."""
    facts = {"file": str(asked.path)}
    have = ", ".join(f.name for f in functions) or "none"
    if asked.kernel is None:
        if len(functions) == 1:
            return functions[0]
        message = f"The cubin holds {len(functions)} kernels: {have}."
        raise TilewrightError("sass/several_kernels", message, facts, "Name one with --kernel.")
    name = asked.kernel
    exact = [f for f in functions if f.name == name]
    mangled = [f for f in functions if f.name.startswith("_Z") and f"{len(name)}{name}" in f.name]
    if not exact and len(mangled) != 1:
        raise TilewrightError(
            "sass/unknown_kernel", f"The cubin holds no kernel {name!r}; it holds {have}.", facts, "Name one of these."
        )
    return (exact or mangled)[0]


def _of_source(asked: Asked, raw: bytes, say: Say) -> Subject:
    from tilewright.workflow.drafting import draft_for, spec_of
    from tilewright.workflow.opening import open_file

    spec = sidecar_for(asked.path, asked.spec, asked.kernel)
    target = target_for(asked.arch, spec, asked.default_arch)
    say("compiling")
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_drafted = spec is None
    if spec is None:
        draft = draft_for(raw, asked.path, asked.kernel, target.arch, asked.settings, asked.use_cache, say)
        spec = spec_of(draft, asked.path)
        if spec is not None:
            assumptions = tuple(f"guessed: {guess}" for guess in draft.guesses)
            notes = ("No sidecar: one was drafted. `tilewright init` keeps it, to be checked.",)
        else:
            notes = (f"No sidecar, and none could be drafted: {draft.problem}.",)
    opened = open_file(raw, asked.path, asked.kernel, spec, target.arch, asked.settings, asked.use_cache)
    built = opened.baseline
    function = _listed(opened.compiler.function(built), built.kernel, asked)
    constants = opened.kernel.constants.names()
    bound = _bound(opened, constants)
    return Subject(
        kind="cuda",
        kernel=record.Kernel(str(asked.path), opened.function.name, opened.function.line, template=opened.template),
        target=target,
        function=function,
        program=Program(built.cubin, built.ptx, built.kernel, built.arch),
        log=built.log,
        toolchain=built.toolchain,
        registers=built.resources.registers,
        smem_bytes=built.resources.smem_bytes,
        spill_bytes=built.resources.spill_bytes,
        stack_bytes=built.resources.stack_bytes,
        threads=bound,
        threads_source="__launch_bounds__" if bound else "",
        spec=spec,
        constants=constants,
        opened=opened,
        is_drafted=is_drafted,
        assumptions=assumptions,
        notes=(*opened.notes, *notes),
    )


def _of_triton_source(asked: Asked, say: Say) -> Subject:
    from tilewright.sass.elf import launch_facts_of
    from tilewright.sass.listing import disassemble
    from tilewright.triton.build import build_triton

    spec = sidecar_for(asked.path, asked.spec, asked.kernel)
    if spec is None:
        raise TilewrightError(
            "analyze/no_sidecar",
            "Nothing says how the Triton kernel is specialised and launched.",
            {"file": str(asked.path), "need": f"{asked.path.stem}.toml beside it, or --spec"},
            "docs/triton.md shows one; or name an entry of Triton's cache instead.",
        )
    target = target_for(asked.arch, spec, asked.default_arch)
    say("compiling")
    made = build_triton(asked.path, spec, target.arch, asked.settings, use_cache=asked.use_cache)
    program = made.program
    function = _listed(disassemble(program.cubin, asked.settings).function(program.kernel), program.kernel, asked)
    return Subject(
        kind="triton",
        kernel=record.Kernel(str(asked.path), spec.kernel, made.line),
        target=target,
        function=function,
        program=program,
        log="",
        toolchain=made.toolchain,
        registers=function.registers,
        smem_bytes=0,
        spill_bytes=None,
        stack_bytes=None,
        threads=launch_facts_of(program.cubin, program.kernel).max_threads,
        threads_source="Triton's num_warps",
        spec=made.spec,
        constants=made.constants,
    )


def _listed(function: Function | None, name: str, asked: Asked) -> Function:
    if function is None:
        raise TilewrightError(
            "sass/unknown_kernel", f"The disassembly does not hold {name}.", {"file": str(asked.path)}
        )
    return function


def _bound(opened: Opened, constants: dict[str, int]) -> int | None:
    from tilewright.workflow.threads import bound_of

    return bound_of(opened.function.launch_bounds, constants)
