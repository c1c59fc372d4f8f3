"""One thread, integers only, calls as calls: what a module does before anything is inlined. Slow and simple."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ptx.module import (
    TYPE_BYTES,
    Address,
    BranchTargets,
    Function,
    Group,
    Immediate,
    Instruction,
    Label,
    Module,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
)

MASK = (1 << 64) - 1
COMPARE = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}


@dataclass
class Machine:
    """Memory is one bytearray; ``printed`` has the arguments of every call without a body."""

    module: Module
    memory: bytearray = field(default_factory=lambda: bytearray(16))
    statics: dict[str, int] = field(default_factory=dict)
    printed: list[tuple[int, ...]] = field(default_factory=list)
    steps: int = 0

    def place(self, variable: Variable) -> int:
        at = -(-len(self.memory) // 16) * 16
        # 0xAA: what nobody has written is seen.
        content = variable.initial if variable.initial is not None else b"\xaa" * variable.size_bytes
        self.memory.extend(bytes(at - len(self.memory)) + content)
        return at

    def static(self, variable: Variable) -> int:
        if variable.name not in self.statics:
            self.statics[variable.name] = self.place(variable)
        return self.statics[variable.name]

    def run(self, function: Function, given: Mapping[str, int]) -> None:
        """``given``: the addresses of parameters and results."""
        names = dict(given)
        names.update({v.name: self.static(v) for v in (*self.module.variables, *function.shared)})
        names.update({v.name: self.place(v) for v in (*function.local, *function.call_params)})
        Frame(self, function, names).run()


@dataclass
class Frame:
    machine: Machine
    function: Function
    names: dict[str, int]
    registers: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        body = self.function.body
        labels = {item.name: index for index, item in enumerate(body) if isinstance(item, Label)}
        tables = {item.name: item.labels for item in body if isinstance(item, BranchTargets)}
        at = 0
        while at < len(body):
            item = body[at]
            at += 1
            self.machine.steps += 1
            assert self.machine.steps < 100_000
            if not isinstance(item, Instruction):
                continue
            if item.guard is not None and bool(self.registers[item.guard.name]) is item.guard.negated:
                continue
            if item.opcode in ("ret", "exit"):
                return
            if item.opcode in ("bra", "brx"):
                name = item.operands[-1]
                assert isinstance(name, Symbol)
                goal = name.name if item.opcode == "bra" else tables[name.name][self.value(item.operands[0])]
                at = labels[goal]
            elif item.opcode == "call":
                self.call(item)
            else:
                self.step(item)

    def call(self, item: Instruction) -> None:
        groups = [[o.name for o in g.items if isinstance(o, Symbol)] for g in item.operands if isinstance(g, Group)]
        name = next(o.name for o in item.operands if isinstance(o, Symbol))
        results = groups.pop(0) if isinstance(item.operands[0], Group) else []
        arguments = groups.pop(0) if groups else []
        callee = self.machine.module.functions.get(name)
        if callee is None:
            self.machine.printed.append(tuple(self.load(self.names[a], 4) for a in arguments))
            return
        pairs = [*zip(callee.returns, results, strict=True), *zip(callee.params, arguments, strict=True)]
        self.machine.run(callee, {variable.name: self.names[own] for variable, own in pairs})

    def step(self, item: Instruction) -> None:
        opcode, modifiers, operands = item.opcode, item.modifiers, item.operands
        width = TYPE_BYTES[modifiers[-1]]
        if opcode in ("ld", "st"):
            vector = operands[0 if opcode == "ld" else 1]
            items = vector.items if isinstance(vector, Vector) else (vector,)
            at = self.address(operands[1 if opcode == "ld" else 0])
            for index, one in enumerate(items):
                if opcode == "st":
                    content = (self.value(one) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
                    self.machine.memory[at + index * width : at + (index + 1) * width] = content
                else:
                    self.set(one, signed(self.load(at + index * width, width), modifiers[-1]))
            return
        a, b, c = ([signed(self.value(o), modifiers[-1]) for o in operands[1:]] + [0, 0, 0])[:3]
        if opcode == "bar":
            pass
        elif opcode == "setp":
            self.set(operands[0], int(COMPARE[modifiers[0]](a, b)))
        elif opcode == "selp":
            self.set(operands[0], a if c else b)
        else:
            self.set(operands[0], result(opcode, modifiers, a, b, c))

    def set(self, operand: Operand, value: int) -> None:
        assert isinstance(operand, Register)
        width = TYPE_BYTES[self.function.type_of(operand.name)]
        self.registers[operand.name] = value & ((1 << 8 * width) - 1)

    def value(self, operand: Operand) -> int:
        if isinstance(operand, Register):
            return self.registers[operand.name]
        if isinstance(operand, Immediate):
            return operand.value & MASK
        if isinstance(operand, Symbol):
            return self.names[operand.name] + operand.offset
        return 0

    def address(self, operand: Operand) -> int:
        assert isinstance(operand, Address)
        base = self.value(operand.base) if operand.base is not None else 0
        return (base + operand.offset) & MASK

    def load(self, at: int, width: int) -> int:
        assert 0 <= at <= len(self.machine.memory) - width
        return int.from_bytes(self.machine.memory[at : at + width], "little")


def result(opcode: str, modifiers: tuple[str, ...], a: int, b: int, c: int) -> int:
    by = min(b & 0xFFFFFFFF, 64)
    if opcode == "shl":
        return a << by
    if opcode == "shr":
        return a >> by
    if opcode == "cvt":
        return signed(a, modifiers[-2])
    results = {"mov": a, "cvta": a, "add": a + b, "sub": a - b, "mul": a * b, "mad": a * b + c, "neg": -a}
    return {**results, "and": a & b, "or": a | b, "xor": a ^ b}[opcode]


def signed(value: int, type_: str) -> int:
    bits = 8 * TYPE_BYTES[type_]
    value &= (1 << bits) - 1
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


def run_kernel(
    module: Module, function: Function, arguments: Mapping[str, bytes]
) -> tuple[bytes, list[tuple[int, ...]]]:
    """A kernel whose first parameter points to 64 bytes: what these are afterwards, and what was printed."""
    machine = Machine(module)
    out = Variable("out", "global", "b8", 64, 16, 1, True, bytes(64))
    at = machine.place(out)
    given = {}
    for index, parameter in enumerate(function.params):
        given[parameter.name] = machine.place(parameter)
        content = at.to_bytes(8, "little") if index == 0 else arguments.get(parameter.name, bytes(parameter.size_bytes))
        machine.memory[given[parameter.name] : given[parameter.name] + len(content)] = content
    machine.run(function, given)
    return bytes(machine.memory[at : at + 64]), machine.printed
