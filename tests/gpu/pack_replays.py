"""Makes the file of replays for ``replay_on_gpu.py``: needs the compiler, ptxas on the PATH, and the emulator.

    python tests/gpu/pack_replays.py REPLAYS.zip

Four groups. ``kernels``: the emulator's test kernels, compiled for sm_90a, with the outputs that the table expects.
``layouts`` and ``probes``: single instructions whose layout or rounding the PTX ISA leaves open. ``ops``: every launch
that the tests of single instructions (tests/emulator/test_op_*.py) make, with what the emulator computes; those that
ptxas refuses for sm_90a are left out, and counted.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

EMULATOR_TESTS = Path(__file__).parents[1] / "emulator"
sys.path.insert(0, str(EMULATOR_TESTS))

import matrix_probes  # noqa: E402
import op_harness  # noqa: E402
import pytest  # noqa: E402
import scalar_probes  # noqa: E402
import tensor_map_probes  # noqa: E402
from kernel_table import TABLE, TestKernel  # noqa: E402
from probes import Probe  # noqa: E402
from replays import BYTES, POINTER, TENSOR_MAP, Array, Blobs, Buffer, Param, Replay, Triple, save  # noqa: E402

from tilewright.build.artifact import Artifact  # noqa: E402
from tilewright.build.build import build  # noqa: E402
from tilewright.settings import Settings  # noqa: E402

ARCH = "sm_90a"
OTHER_ARCHITECTURES = ("mma_nvfp4",)  # sm_120a alone has it
ELEMENTS = {"bfloat16": "BFLOAT16", "float16": "FLOAT16", "float32": "FLOAT32"}
TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


# -- kernels ---------------------------------------------------------------------------------------------


def kernels(blobs: Blobs) -> Iterator[Replay]:
    for case in TABLE:
        if case.name in OTHER_ARCHITECTURES:
            continue
        artifact = build(replace(case.request, arch=ARCH), Settings.from_environment())
        if not isinstance(artifact, Artifact):
            raise SystemExit(f"{case.name}: {artifact.message}")
        inputs = case.inputs()
        expected = case.expected(inputs)
        buffers = tuple(
            Buffer(
                name,
                TYPES.get(array.dtype, f"b{inputs[name].itemsize * 8}"),
                blobs.add(inputs[name]),
                blobs.add(expected[name]) if name in expected else "",
            )
            for name, array in case.arrays.items()
        )
        params = tuple(_param(case, name) for name in case.args)
        code = blobs.add(artifact.cubin)
        yield Replay(
            case.name, "kernels", code, artifact.kernel, case.grid, case.block, case.shared_bytes, params, buffers
        )


def _param(case: TestKernel, name: str) -> Param:
    numbers = list(case.arrays)
    if name in case.scalars:
        return Param(BYTES, text=np.int32(case.scalars[name]).tobytes().hex())
    if name in case.arrays:
        return Param(POINTER, numbers.index(name))
    data = case.tensor_maps[name]
    swizzle = f"{data.swizzle_bytes}B" if data.swizzle_bytes else "NONE"
    element = ELEMENTS.get(data.dtype, "UINT8")
    return Param(TENSOR_MAP, numbers.index(data.array), "", element, data.dims, data.strides_bytes, data.box, swizzle)


# -- launches in PTX -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """A launch of the emulator's, as it was made."""

    name: str
    group: str
    ptx: str
    grid: Triple
    block: Triple
    shared_bytes: int
    types: tuple[str, ...]
    before: tuple[Array, ...]
    after: tuple[Array, ...]
    note: str = ""

    def replay(self, cubin: bytes, blobs: Blobs) -> Replay:
        open_ = merged_too_early(self.ptx)
        buffers = tuple(
            Buffer(
                f"array{k}", type_, blobs.add(old), "" if np.array_equal(old, new) else blobs.add(new), k not in open_
            )
            for k, (type_, old, new) in enumerate(zip(self.types, self.before, self.after, strict=True))
        )
        params = tuple(Param(POINTER, k) for k in range(len(buffers)))
        return Replay(
            self.name, self.group, blobs.add(cubin), "k", self.grid, self.block, self.shared_bytes, params,
            buffers, self.note,
        )  # fmt: skip


def first_line(ptx: str) -> str:
    """The first instruction that gives a program's first output more than a copy."""
    found = (line.strip() for line in ptx.splitlines() if "%o0" in line and ".reg" not in line)
    return next((re.sub(r"^mov\.\w+ %o0, %\w+;\s*", "", line)[:100] for line in found), "")


# What threads find depends on their order: the GPU's is another one, and as good. (``red`` with one final value stays.)
IN_ANY_ORDER = ("test_random_order_of_atomics", "test_uniform_addresses", "test_module_variables")
ENDS_BADLY = ("test_traps",)  # brkpt without a debugger is a fault


def is_open(name: str, ptx: str) -> bool:
    """Whether what a launch leaves behind is not for the emulator to say."""
    if name.startswith("test_integer_atomics"):
        return "atom." in ptx or re.search(r"red\.\S*(inc|dec)", ptx) is not None
    return name.startswith((*IN_ANY_ORDER, *ENDS_BADLY))


def merged_too_early(ptx: str) -> set[int]:
    """Arrays whose values are those of a guarded ``set`` or ``testp``.

    ptxas (13.0) merges the register's old value, which a guarded thread keeps, before the last step of what it makes of
    these instructions: old values come out converted to a float, or to 0 and 1. The unguarded forms are compared.
    """
    inputs = len(re.findall(r"\.param \.u64 in\d+", ptx))
    return {inputs + int(k) for k in re.findall(r"@!?%\w+ (?:set|testp)\.\S+ %o(\d+)", ptx)}


class Recorder:
    """Stands before ``op_harness.launch`` and keeps what comes by: each program with its inputs once."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self._seen: set[int] = set()
        self._types: tuple[str, ...] = ()
        self._launch, self._run = op_harness.launch, op_harness.Program.run

    def install(self) -> None:
        op_harness.launch = self.launch
        recorder, run = self, self._run

        def typed(program: op_harness.Program, *args: Any, **kwargs: Any) -> Any:
            recorder._types = (*program.inputs, *program.outputs)
            try:
                return run(program, *args, **kwargs)
            finally:
                recorder._types = ()

        op_harness.Program.run = typed  # type: ignore[method-assign]

    def launch(self, ptx: str, data: Sequence[Array], grid: Triple, block: Triple, **options: Any) -> Any:
        before = tuple(np.ascontiguousarray(d).view(np.uint8).reshape(-1).copy() for d in data)
        done = self._launch(ptx, data, grid, block, **options)
        key = hash((ptx, *(d.tobytes() for d in before)))
        scalars = options.get("scalars", b"")
        name = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0]
        is_new = key not in self._seen and not scalars and not is_open(name, ptx)
        if is_new and done.error is None and not done.hazards:
            self._seen.add(key)
            after = tuple(np.ascontiguousarray(d).view(np.uint8).reshape(-1).copy() for d in data)
            types = self._types if len(self._types) == len(before) else ("b8",) * len(before)
            shared = int(options.get("dynamic_bytes", 0))
            self.taken.append(Taken(name, "ops", ptx, grid, block, shared, types, before, after, first_line(ptx)))
        return done


def taken_ops() -> list[Taken]:
    recorder = Recorder()
    recorder.install()
    files = map(str, sorted(EMULATOR_TESTS.glob("test_op_*.py")))
    status = pytest.main(["-q", "--no-header", "-n", "0", "-p", "no:cacheprovider", *files])
    if status != 0:
        print(f"the tests ended with {status}: what they launched before is taken all the same", file=sys.stderr)
    op_harness.launch, op_harness.Program.run = recorder._launch, recorder._run  # type: ignore[method-assign]
    return recorder.taken


def taken_probe(probe: Probe) -> Taken:
    program = probe.program
    data = [np.ascontiguousarray(a).view(np.uint8).reshape(-1).copy() for a in probe.inputs]
    data += [np.full(probe.threads * op_harness.SIZES[t], 0xEE, np.uint8) for t in program.outputs]
    before = tuple(d.copy() for d in data)
    grid, block = (probe.threads // probe.block, 1, 1), (probe.block, 1, 1)
    try:
        error = op_harness.launch(program.text(), data, grid, block).error
    except Exception as fault:  # a mistake of the emulator's is no reason not to ask the GPU
        error = repr(fault)
    if error is not None:
        print(f"{probe.name}: {error}", file=sys.stderr)  # the GPU's answer is kept, to compare with later
    types = (*program.inputs, *(probe.types or program.outputs))
    group = "layouts" if probe.is_exact else "probes"
    return Taken(probe.name, group, program.text(), grid, block, 0, types, before, tuple(data), probe.note)


def tensor_maps(blobs: Blobs) -> Iterator[Replay]:
    for probe in tensor_map_probes.probes():
        before = probe.inputs()
        try:
            after = probe.emulated()
        except Exception as fault:  # as above
            print(f"{probe.name}: {fault!r}", file=sys.stderr)
            after = before[1] ^ np.uint8(0xFF)
        cubin = assembled(probe.ptx())
        if isinstance(cubin, str):
            print(f"{probe.name}: {cubin.strip()[:300]}", file=sys.stderr)
            continue
        buffers = (
            Buffer("tensor", "b8", blobs.add(before[0])),
            Buffer("shared", "b8", blobs.add(before[1]), blobs.add(after)),
        )
        block = (tensor_map_probes.THREADS, 1, 1)
        name = f"tensor map: {probe.name}"
        yield Replay(name, "layouts", blobs.add(cubin), "k", (1, 1, 1), block, 0, probe.params, buffers, probe.note)


def assembled(ptx: str) -> bytes | str:
    """The cubin, or what ptxas says."""
    text = ptx
    for other in ("sm_100a", "sm_80", "sm_75", "sm_86", "sm_89", "sm_90"):
        text = text.replace(f".target {other}\n", f".target {ARCH}\n")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        command = ["ptxas", f"-arch={ARCH}", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return target.read_bytes() if done.returncode == 0 else done.stderr + done.stdout


def in_ptx(launches: Sequence[Taken], blobs: Blobs) -> Iterator[Replay]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cubins = list(pool.map(assembled, [one.ptx for one in launches]))
    refused = [(one, cubin) for one, cubin in zip(launches, cubins, strict=True) if isinstance(cubin, str)]
    for one, text in refused:
        if one.group != "ops":
            print(f"{one.name}: {text.strip()[:300]}", file=sys.stderr)
    print(f"{len(launches)} launches, {len(refused)} refused by ptxas for {ARCH}", file=sys.stderr)
    for one, cubin in zip(launches, cubins, strict=True):
        if isinstance(cubin, bytes):
            yield one.replay(cubin, blobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replays", type=Path)
    parser.add_argument("--only", choices=("kernels", "probes", "ops"), help="one group")
    options = parser.parse_args()
    if shutil.which("ptxas") is None:
        raise SystemExit("ptxas is not on the PATH; a CUDA toolkit has it")
    blobs = Blobs()
    replays: list[Replay] = []
    if options.only in (None, "kernels"):
        replays += kernels(blobs)
    if options.only in (None, "probes"):
        replays += in_ptx([taken_probe(probe) for probe in (*scalar_probes.probes(), *matrix_probes.probes())], blobs)
        replays += tensor_maps(blobs)
    if options.only in (None, "ops"):
        replays += in_ptx(taken_ops(), blobs)
    save(options.replays, replays, blobs)
    print(f"{options.replays}: {len(replays)} launches, {options.replays.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
