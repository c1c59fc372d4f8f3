"""Device functions that a kernel calls, put in place of the calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.errors import TilewrightError
from tilewright.ptx.module import (
    Address,
    BranchTargets,
    Function,
    Group,
    Instruction,
    Label,
    Module,
    Operand,
    Pair,
    Place,
    Register,
    Symbol,
    Variable,
    Vector,
)

_DEEPEST_CALLS = 64
_MOST_INSTRUCTIONS = 1_000_000
_JUMPS = frozenset({"bra", "brx"})

Item = Instruction | Label | BranchTargets


def inline_calls(module: Module, kernel: str) -> Function:
    """The kernel with every called function that has a body in place of the call.

    Registers, labels and local variables of a function are its own at each call; its shared variables exist once.
    Parameters and results become local variables of the kernel, and ``ld.param`` and ``st.param`` of them ``ld.local``
    and ``st.local``. Calls of functions without a body (``vprintf``) stay, with their ``call_params``. A ``Place`` of
    inlined code has the call as its outermost ``inlined_at``.

    Raises:
        TilewrightError: ``ptx/no_kernel``, or ``ptx/unsupported_call`` for recursion and calls through a pointer.
    """
    function = module.functions.get(kernel)
    if function is None:
        kernels = ", ".join(sorted(f.name for f in module.functions.values() if f.is_entry)) or "none"
        raise TilewrightError(
            "ptx/no_kernel",
            f"The PTX has no kernel {kernel}; it has {kernels}.",
            {"kernel": kernel},
            "Name one of these.",
        )
    if not any(isinstance(item, Instruction) and item.opcode == "call" for item in function.body):
        return function
    return _Inliner(module, function).result()


@dataclass
class _Site:
    """One function at one call: what its names become.

    Attributes:
        symbols: variables. as_local: variables (as the function names them) that were parameters and now are local.
        call_place: of the call; None for the kernel itself. end: label behind the inlined code.
    """

    function: Function
    suffix: str = ""
    symbols: dict[str, str] = field(default_factory=dict)
    as_local: frozenset[str] = frozenset()
    labels: dict[str, str] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    places: dict[Place | None, Place | None] = field(default_factory=dict)
    call_place: Place | None = None
    end: str = ""
    end_is_used: bool = False

    @property
    def is_kernel(self) -> bool:
        return not self.suffix


class _Inliner:
    def __init__(self, module: Module, kernel: Function) -> None:
        self.module = module
        self.kernel = kernel
        self.items: list[Item] = []
        self.registers = dict(kernel.registers)
        self.families = dict(kernel.families)
        self.shared = {variable.name: variable for variable in kernel.shared}
        self.local = {variable.name: variable for variable in kernel.local}
        self.call_params = {variable.name: variable for variable in kernel.call_params}
        self.names = {variable.name for variable in (*module.variables, *kernel.params)}
        self.names.update(self.shared, self.local, self.call_params, module.functions, module.declared)
        self.names.update(item.name for item in kernel.body if isinstance(item, Label | BranchTargets))
        self.shared_names: dict[str, dict[str, str]] = {}
        self.sites = 0

    def result(self) -> Function:
        self._emit(_Site(self.kernel, as_local=self._passed(self.kernel)), (self.kernel.name,))
        return replace(
            self.kernel,
            registers=self.registers,
            families=self.families,
            shared=tuple(self.shared.values()),
            local=tuple(self.local.values()),
            call_params=tuple(self.call_params.values()),
            body=tuple(self.items),
        )

    def _emit(self, site: _Site, stack: tuple[str, ...]) -> None:
        body = site.function.body
        if site.is_kernel:
            for variable in self.kernel.call_params:
                if variable.name in site.as_local:
                    self.local[variable.name] = replace(self.call_params.pop(variable.name), space="local")
        for index, item in enumerate(body):
            if isinstance(item, Label):
                self.items.append(Label(site.labels.get(item.name, item.name)))
            elif isinstance(item, BranchTargets):
                labels = tuple(site.labels.get(name, name) for name in item.labels)
                self.items.append(BranchTargets(site.labels.get(item.name, item.name), labels))
            elif item.opcode == "call" and (callee := self._callee(item)) is not None:
                self._call(item, callee, site, stack)
            elif item.opcode == "ret" and not site.is_kernel:
                if item.guard is None and index == len(body) - 1:
                    continue
                site.end_is_used = True
                self._append(_renamed(replace(item, opcode="bra", modifiers=(), operands=(Symbol(site.end),)), site))
            else:
                self._append(_renamed(item, site))
        if site.end_is_used:
            self.items.append(Label(site.end))

    def _append(self, item: Item) -> None:
        if len(self.items) >= _MOST_INSTRUCTIONS:
            message = f"{self.kernel.name} has more than {_MOST_INSTRUCTIONS} instructions once its calls are inlined."
            raise TilewrightError("ptx/unsupported_call", message, {"kernel": self.kernel.name})
        self.items.append(item)

    def _callee(self, call: Instruction) -> Function | None:
        """The function with a body that is called; None for one without."""
        name = _called(call)
        if not isinstance(name, Symbol):
            raise _unsupported(call, "a call through a pointer")
        return self.module.functions.get(name.name)

    def _call(self, call: Instruction, callee: Function, site: _Site, stack: tuple[str, ...]) -> None:
        if callee.name in stack:
            raise _unsupported(call, f"a recursive call of {callee.name}")
        if len(stack) > _DEEPEST_CALLS:
            raise _unsupported(call, f"calls nested deeper than {_DEEPEST_CALLS}")
        inner = self._site(call, callee, site)
        skip = ""
        if call.guard is not None:
            skip = self._fresh("$skip" + inner.suffix)
            guard = Register(call.guard.name, not call.guard.negated)
            self._append(_renamed(Instruction("bra", (), (Symbol(skip),), guard, call.place, call.ptx_line), site))
        self._emit(inner, (*stack, callee.name))
        if skip:
            self.items.append(Label(skip))

    def _site(self, call: Instruction, callee: Function, site: _Site) -> _Site:
        self.sites += 1
        suffix = f"_i{self.sites}_"
        inner = _Site(callee, suffix, call_place=_moved(call.place, site), end=self._fresh("$end" + suffix))
        inner.as_local = frozenset(v.name for v in (*callee.params, *callee.returns)) | self._passed(callee)
        self._bind(call, callee, site, inner)
        for variable in callee.local:
            self._copied(variable, inner, self.local)
        for variable in callee.call_params:
            if variable.name in inner.as_local:
                self._copied(replace(variable, space="local"), inner, self.local)
            else:
                self._copied(variable, inner, self.call_params)
        inner.symbols.update(self._shared_of(callee))
        for item in callee.body:
            if isinstance(item, Label | BranchTargets):
                inner.labels[item.name] = self._fresh(item.name + suffix)
        for name, type_ in callee.registers.items():
            inner.registers[name] = unique = self._fresh(name + suffix)
            self.registers[unique] = type_
        for stem, family in callee.families.items():
            self.families[stem + suffix] = family
        return inner

    def _bind(self, call: Instruction, callee: Function, site: _Site, inner: _Site) -> None:
        """The callee's parameters are the variables that the caller fills: no copy is needed, it only reads them."""
        groups = [operand.items for operand in call.operands if isinstance(operand, Group)]
        results = groups.pop(0) if call.operands and isinstance(call.operands[0], Group) else ()
        arguments = groups.pop(0) if groups else ()
        for given, wanted in ((results, callee.returns), (arguments, callee.params)):
            if len(given) != len(wanted):
                raise _unsupported(call, f"a call of {callee.name} with {len(given)} values where it has {len(wanted)}")
            for operand, variable in zip(given, wanted, strict=True):
                name = site.symbols.get(operand.name, operand.name) if isinstance(operand, Symbol) else ""
                held = self.local.get(name)
                if held is None:
                    raise _unsupported(call, f"a call of {callee.name} whose values are not .param variables")
                inner.symbols[variable.name] = name
                if variable.size_bytes > held.size_bytes or variable.align > held.align:
                    size, align = max(variable.size_bytes, held.size_bytes), max(variable.align, held.align)
                    self.local[name] = replace(held, size_bytes=size, align=align, is_array=True)

    def _copied(self, variable: Variable, inner: _Site, into: dict[str, Variable]) -> None:
        name = self._fresh(variable.name + inner.suffix)
        inner.symbols[variable.name] = name
        into[name] = replace(variable, name=name)

    def _shared_of(self, callee: Function) -> Mapping[str, str]:
        names = self.shared_names.get(callee.name)
        if names is None:
            names = self.shared_names[callee.name] = {}
            for variable in callee.shared:
                name = self._fresh(variable.name)
                names[variable.name] = name
                self.shared[name] = replace(variable, name=name)
        return names

    def _passed(self, function: Function) -> frozenset[str]:
        """Variables that carry values to and from functions with a body."""
        inlined: set[str] = set()
        kept: set[str] = set()
        for item in function.body:
            if isinstance(item, Instruction) and item.opcode == "call":
                names = {name.name for name in _symbols(item.operands) if isinstance(name, Symbol)}
                (kept if self._callee(item) is None else inlined).update(names)
                if both := inlined & kept & {variable.name for variable in function.call_params}:
                    raise _unsupported(item, f"the variable {min(both)} passed to functions of both kinds")
        return frozenset(inlined & {variable.name for variable in function.call_params})

    def _fresh(self, name: str) -> str:
        while name in self.names or name in self.registers:
            name += "_"
        self.names.add(name)
        return name


def _called(call: Instruction) -> Operand | None:
    return next((operand for operand in call.operands if not isinstance(operand, Group)), None)


def _symbols(operands: Iterable[Operand]) -> list[Operand]:
    return [item for operand in operands if isinstance(operand, Group) for item in operand.items]


def _unsupported(call: Instruction, what: str) -> TilewrightError:
    facts: dict[str, object] = {"ptx_line": call.ptx_line}
    where = f"PTX line {call.ptx_line}"
    if call.place is not None:
        facts["line"] = call.place.line
        where = f"line {call.place.line} ({where})"
    hint = "The emulator inlines calls: declare the function __forceinline__, or call it by its name without recursion."
    return TilewrightError("ptx/unsupported_call", f"In {where}: {what} is not supported.", facts, hint)


def _renamed(item: Instruction, site: _Site) -> Instruction:
    if site.is_kernel:
        return _with_local(item, site) if site.as_local else item
    if item.opcode in _JUMPS:
        renamed: Sequence[Operand] = [
            Symbol(site.labels.get(o.name, o.name)) if isinstance(o, Symbol) else _operand(o, site)
            for o in item.operands
        ]
    else:
        item = _with_local(item, site)
        renamed = [_operand(operand, site) for operand in item.operands]
    guard = None if item.guard is None else Register(_register(item.guard.name, site), item.guard.negated)
    place = _moved(item.place, site)
    return Instruction(item.opcode, item.modifiers, tuple(renamed), guard, place, item.ptx_line)


def _with_local(item: Instruction, site: _Site) -> Instruction:
    """``ld.param`` of a variable that is local now becomes ``ld.local``; names are still the function's own."""
    if item.opcode not in ("ld", "st", "cvta") or not any(m.startswith("param") for m in item.modifiers):
        return item
    bases = [o.base if isinstance(o, Address) else o for o in item.operands]
    symbols = [base.name for base in bases if isinstance(base, Symbol)]
    # Through a register, a device function can only reach its own parameters, and a kernel those of its launch.
    is_local = any(name in site.as_local for name in symbols) if symbols else not site.is_kernel
    if not is_local:
        return item
    return replace(item, modifiers=tuple("local" if m.startswith("param") else m for m in item.modifiers))


def _operand(operand: Operand, site: _Site) -> Operand:
    if isinstance(operand, Register):
        return Register(_register(operand.name, site), operand.negated)
    if isinstance(operand, Symbol):
        return Symbol(site.symbols.get(operand.name, operand.name), operand.offset)
    if isinstance(operand, Address):
        base = operand.base
        if base is not None:
            moved = _operand(base, site)
            base = moved if isinstance(moved, Register | Symbol) else base
        return Address(base, operand.offset, tuple(_operand(item, site) for item in operand.coordinates))
    if isinstance(operand, Vector):
        return Vector(tuple(_operand(item, site) for item in operand.items))
    if isinstance(operand, Group):
        return Group(tuple(_operand(item, site) for item in operand.items))
    if isinstance(operand, Pair):
        return Pair(_operand(operand.first, site), _operand(operand.second, site))
    return operand


def _register(name: str, site: _Site) -> str:
    if site.is_kernel:
        return name
    found = site.registers.get(name)
    if found is None:
        stem = name.rstrip("0123456789")
        found = site.registers[name] = stem + site.suffix + name[len(stem) :]
    return found


def _moved(place: Place | None, site: _Site) -> Place | None:
    """The place with the call behind its outermost end."""
    if site.call_place is None:
        return place
    if place not in site.places:
        chain = place.chain() if place is not None else ()
        moved = site.call_place
        for found in reversed(chain):
            moved = Place(found.file, found.line, moved)
        site.places[place] = moved
    return site.places[place]
