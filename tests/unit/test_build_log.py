"""Reading the compiler's log."""

from __future__ import annotations

from tilewright.build.artifact import Resources
from tilewright.build.log import first_error, resources

PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1gPf' for 'sm_86'
ptxas info    : Function properties for _Z1gPf
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 128 bytes smem, 360 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1fPf' for 'sm_86'
ptxas info    : Function properties for _Z6calleePf
ptxas         .     8 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads
ptxas info    : Function properties for _Z1fPf
ptxas         .     400 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 480 bytes cumulative stack size, 8192 bytes smem, 360 bytes cmem[0]
ptxas info    : Function properties for _Z4tailPf
ptxas         .     0 bytes stack frame, 96 bytes spill stores, 96 bytes spill loads
"""


def test_figures_are_those_of_the_wanted_kernel() -> None:
    assert resources(PTXAS, "_Z1gPf") == Resources(registers=10, smem_bytes=128, spill_bytes=0, stack_bytes=0)
    assert resources(PTXAS, "_Z1fPf") == Resources(registers=255, smem_bytes=8192, spill_bytes=64, stack_bytes=480)


def test_a_kernel_that_the_log_lacks() -> None:
    assert resources(PTXAS, "_Z1hPf") is None
    assert resources(PTXAS, "_Z6calleePf") is None, "a device function is no kernel"


def test_the_first_error_has_text_line_and_file() -> None:
    log = (
        'k.cu(3): warning #177-D: variable "x" was declared\n\nk.cu(7): error: identifier "b" is undefined\n  a = b;\n'
    )
    assert first_error(log) == ('identifier "b" is undefined', 7, "k.cu")
    missing = 'dir/h.h(2): catastrophic error: cannot open source file "n.h"\n'
    assert first_error(missing) == ('cannot open source file "n.h"', 2, "dir/h.h")


def test_errors_without_a_line() -> None:
    assert first_error("ptxas fatal   : Unknown option '-bogus'")[0] == "Unknown option '-bogus'"
    text, line, file = first_error("ptxas application ptx input, line 9; error   : Instruction 'x' not supported")
    assert (text, line, file) == ("Instruction 'x' not supported", None, None)
    assert first_error("")[0] == "the compiler gave no message"


def test_an_error_of_ptxas_stands_behind_a_nul_that_nvrtc_leaves() -> None:
    log = "ptxas info    : 0 bytes gmem\n\0ptxas error   : Entry function 'k' uses too much shared data (0x19000 bytes)"
    assert first_error(log)[0] == "Entry function 'k' uses too much shared data (0x19000 bytes)"


def test_a_brace_that_is_missing_is_an_error_at_the_end() -> None:
    log = 'k.cu(1): warning #177-D: variable "p" was not used\n\nAt end of source: error: expected a "}"\n'
    assert first_error(log)[0] == 'expected a "}"'
