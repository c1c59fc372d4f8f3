"""A cubin becomes data, or a clear error."""

from __future__ import annotations

import contextlib
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sass_inputs.nvrtc import SETTINGS, cubin_of, listing_of

from tilewright.errors import TilewrightError
from tilewright.sass import nvdisasm
from tilewright.sass.elf import registers_of
from tilewright.sass.listing import disassemble, parse
from tilewright.sass.nvdisasm import find_nvdisasm, run_nvdisasm
from tilewright.settings import Settings

TEXT = """
	.target	sm_86
//--------------------- .text.one                  --------------------------
	.sectioninfo	@"SHI_REGISTERS=40"
        .other          one,@"STO_CUDA_ENTRY STV_DEFAULT"
one:
.text.one:
	//## File "lib.h", line 3 inlined at "one.cu", line 7
	//## File "one.cu", line 7 inlined at "one.cu", line 20
	//## File "one.cu", line 20
        /*0000*/              @!P0 LDG.E.128.CONSTANT R4, [R2.64+0x10] ;          /* 0x0000100402048981 */
                                                                                 /* 0x000ea8000c1e9d00 */
.L_x_0:
        /*0010*/          IMMA.16816.S8.S8 R24, R44.reuse.ROW, R64.COL, R24; /* 0x000000402c187237 */
                                                                                 /* 0x044fe80000405c18 */
	//## File "one.cu", line 9
  /*0020*/                   STL [R1], R0                                (*"SpillRefill"*) ;  /* 0x0000000001007387 */
                                                                                 /* 0x000fe80000100800 */
        /*0030*/              @!PT LDL R0, [R1] ;                                /* 0x0000000001007387 */
                                                                                 /* 0x000fe80000100800 */
        /*0040*/                   BRA `(.L_x_0);                                /* 0xfffffff000007947 */
                                                                                 /* 0x000fc0000383ffff */
//--------------------- .text.two                  --------------------------
two:
        /*0000*/                   EXIT ;                                        /* 0x000000000000794d */
                                                                                 /* 0x000fea0003800000 */
"""


def test_instructions_and_their_control_bits() -> None:
    one, two = parse(TEXT).functions
    assert (one.name, one.arch, one.registers, one.is_kernel) == ("one", "sm_86", 40, True)
    assert (two.name, two.is_kernel, len(two.instructions)) == ("two", False, 1)
    load, math = one.instructions[:2]
    assert (load.predicate, load.opcode, load.modifiers) == ("@!P0", "LDG", ("E", "128", "CONSTANT"))
    assert (load.operands, load.name) == ("R4, [R2.64+0x10]", "LDG.E.128.CONSTANT")
    # 0x000ea800...: stall 4, yield bit, write barrier 2, no read barrier
    assert (load.stall, load.yield_flag, load.write_barrier, load.read_barrier, load.wait_mask) == (4, True, 2, None, 0)
    # 0x044fe800...: waits for scoreboard 2, reuse of the first operand
    assert (math.stall, math.write_barrier, math.wait_mask, math.reuse) == (4, None, 0b000100, 1)
    assert one.labels == {"one": 0, ".L_x_0": 16}


def test_remarks_and_spills() -> None:
    one = parse(TEXT).functions[0]
    assert (one.spill_stores, one.spill_loads) == (1, 0), "what is predicated off is no spill"
    assert one.instructions[2].text == "STL [R1], R0"


def test_the_line_is_the_kernels_own() -> None:
    """Of an inlining chain: the innermost frame in the kernel's file, not the header's."""
    places = [(i.file, i.line) for i in parse(TEXT).functions[0].instructions]
    assert places[0] == places[1] == ("one.cu", 7)
    assert places[2] == ("one.cu", 9)


def test_several_kernels_in_one_cubin() -> None:
    listing = listing_of("mbarrier.cu", "sm_90a")
    names = {function.name for function in listing.functions}
    assert names == {"bulk_ring", "async_ring", "specialised", "unstaged", "loopless", "mathless"}
    assert all(function.registers >= 8 and function.is_kernel for function in listing.functions)
    assert all(i.address == 16 * n for f in listing.functions for n, i in enumerate(f.instructions))
    assert listing.function("none") is None


@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
def test_registers_come_from_the_elf(arch: str) -> None:
    """Newer disassemblies no longer print them."""
    counts = registers_of(cubin_of("mbarrier.cu", arch))
    assert set(counts) >= {"bulk_ring", "loopless"}
    assert all(8 <= count <= 255 for count in counts.values())


def test_no_cubin() -> None:
    cubin = cubin_of("mbarrier.cu", "sm_90a")
    bad = {
        "empty": b"",
        "text": b"__global__ void kernel() {}",
        "zeros": bytes(4096),
        "magic only": b"\x7fELF",
        "another machine": cubin[:18] + struct.pack("<H", 62) + cubin[20:],
        "32 bits": cubin[:4] + b"\x01" + cubin[5:],
        "fat binary": struct.pack("<I", 0xBA55ED50) + bytes(200),
        "python": Path(sys.executable).resolve().read_bytes()[:100_000],
        "a third": cubin[: len(cubin) // 3],
        "one byte short": cubin[:-1],
    }
    for name, raw in bad.items():
        with pytest.raises(TilewrightError) as caught:
            disassemble(raw, SETTINGS)
        assert (caught.value.code, caught.value.exit_code) == ("sass/corrupt_cubin", 2), name
        assert caught.value.hint


def test_code_overwritten_with_rubbish() -> None:
    """The ELF is whole, the instructions are not: the disassembler's own message is passed on."""
    cubin = bytearray(cubin_of("mbarrier.cu", "sm_90a"))
    for at in range(0, len(cubin) - 8, 8):  # every instruction's first half ends in its opcode
        if cubin[at : at + 2] == b"\x4d\x79":  # EXIT
            cubin[at : at + 8] = b"\xff" * 8
    with pytest.raises(TilewrightError) as caught:
        disassemble(bytes(cubin), SETTINGS)
    assert caught.value.code == "sass/corrupt_cubin"
    assert "/tmp" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_elf_never_raises_anything_else(data: st.DataObject) -> None:
    cubin = bytearray(cubin_of("mbarrier.cu", "sm_90a"))
    table = int.from_bytes(cubin[40:48], "little")
    places = st.one_of(st.integers(0, 63), st.integers(table, len(cubin) - 1), st.integers(0, len(cubin) - 1))
    for at in data.draw(st.lists(places, max_size=8)):
        cubin[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TilewrightError):
        registers_of(bytes(cubin[: data.draw(st.integers(0, len(cubin)))]))


def test_finding_the_disassembler(tmp_path: Path) -> None:
    assert find_nvdisasm(SETTINGS) is not None
    assert find_nvdisasm(Settings(tmp_path, nvdisasm=tmp_path / "nowhere")) is None
    mine = tmp_path / "nvdisasm"
    mine.write_text("")
    assert find_nvdisasm(Settings(tmp_path, nvdisasm=mine)) == mine


def test_no_disassembler(tmp_path: Path) -> None:
    cubin = cubin_of("mbarrier.cu", "sm_90a")
    not_a_program = tmp_path / "nvdisasm"
    not_a_program.write_text("")
    for path in (tmp_path / "nowhere", not_a_program):
        with pytest.raises(TilewrightError) as caught:
            disassemble(cubin, Settings(tmp_path, nvdisasm=path))
        assert (caught.value.code, caught.value.exit_code) == ("sass/no_disassembler", 3)
        assert "TILEWRIGHT_NVDISASM" in caught.value.hint


@pytest.mark.parametrize("arch", ["sm_86", "sm_120a"])
def test_the_analysis_that_is_left_out_adds_only_remarks(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = cubin_of("remarks.cu", arch)
    without = run_nvdisasm(cubin, SETTINGS)
    monkeypatch.setattr(nvdisasm, "OPTIONS", tuple(o for o in nvdisasm.OPTIONS if o != "-ndf"))
    analysed = run_nvdisasm(cubin, SETTINGS)
    assert "SpillRefill" in analysed
    assert "BRANCH_TARGETS" in analysed
    assert "BRANCH_TARGETS" not in without
    assert parse(without) == parse(analysed)
