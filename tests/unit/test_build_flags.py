"""nvcc's flags in NVRTC's words."""

from __future__ import annotations

import pytest

from tilewright.build.flags import nvrtc_flags
from tilewright.errors import TilewrightError


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--use_fast_math",), ["--use_fast_math"]),
        (("-use_fast_math",), ["--use_fast_math"]),
        (("-maxrregcount=64",), ["--maxrregcount=64"]),
        (("--maxrregcount", "64"), ["--maxrregcount=64"]),
        (("--maxrregcount 64",), ["--maxrregcount=64"]),
        (("-Xptxas", "-O2,-v,--warn-on-spills"), ["--ptxas-options=-O2"]),
        (("-Xptxas=-dlcm=cg",), ["--ptxas-options=-dlcm=cg"]),
        (("-DN=4", "-D", "M=2", "-UX"), ["--define-macro=N=4", "--define-macro=M=2", "--undefine-macro=X"]),
        (("-std=c++20",), ["--std=c++20"]),
        (("--fmad=false", "-ftz=true"), ["--fmad=false", "--ftz=true"]),
        (("-diag-suppress=177",), ["--diag-suppress=177"]),
    ],
)
def test_what_nvrtc_knows_is_translated(flags: tuple[str, ...], expected: list[str]) -> None:
    assert nvrtc_flags(flags) == expected


def test_what_only_nvcc_needs_is_left_out() -> None:
    flags = (
        *("-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xcompiler", "-Wall,-fPIC", "-lcublas", "-L/usr/lib"),
        *("-gencode", "arch=compute_80,code=sm_80", "-arch=sm_86", "-o", "a.out", "-ccbin g++", "-rdc=true"),
    )
    assert nvrtc_flags(flags) == []


@pytest.mark.parametrize(
    ("flag", "code"),
    [
        ("--use-fast-math", "build/unknown_flag"),
        ("--bogus", "build/unknown_flag"),
        ("-maxrregcount", "build/unknown_flag"),
        ("-G", "build/unoptimised"),
        ("-I/opt/include", "build/include_flag"),
        ("-DTEXT='never closed", "build/bad_quotes"),
        ("-DX=a\\", "build/bad_quotes"),
    ],
)
def test_what_cannot_be_is_said(flag: str, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        nvrtc_flags((flag,))
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert flag in caught.value.message
