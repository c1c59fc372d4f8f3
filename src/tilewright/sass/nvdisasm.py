"""Find and run the disassembler."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from pathlib import Path

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.settings import Settings

# Where the wheels nvidia-cuda-nvdisasm (13 and later) and -nvdisasm-cu12 put the program, below the package `nvidia`.
_PLACES = ("cu13/bin", "cu14/bin", "cuda_nvdisasm/bin", "cu13/bin/x64")
_NAMES = ("nvdisasm", "nvdisasm.exe")
_TIMEOUT_S = 120
# Code with encodings and the lines of inlined calls; without the analysis that only adds remarks, for a third of the
# time: spills and the targets of jump tables, neither of which is read (labels are printed all the same).
OPTIONS = ("-c", "-gi", "-hex", "-ndf")


def find_nvdisasm(settings: Settings) -> Path | None:
    """The disassembler: the one that the settings name, else the installed package's; None if there is none."""
    if settings.nvdisasm is not None:
        return settings.nvdisasm if settings.nvdisasm.is_file() else None
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for place in _PLACES:
            for name in _NAMES:
                path = Path(root) / place / name
                if path.is_file():
                    return path
    return None


def run_nvdisasm(cubin: bytes, settings: Settings) -> str:
    """The disassembly as text, with encodings and source lines (inlined frames too).

    Raises:
        TilewrightError: ``sass/no_disassembler`` (exit 3), ``sass/corrupt_cubin`` (exit 2).
    """
    program = find_nvdisasm(settings)
    if program is None:
        raise _missing(settings, "no nvdisasm was found")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [str(program), *OPTIONS, str(path)],
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise _missing(settings, f"{program.name} does not start: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise corrupt_cubin(f"the disassembler did not finish within {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").replace(str(path), "the cubin").strip().splitlines()
        raise corrupt_cubin(said[0] if said else f"the disassembler failed with status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def corrupt_cubin(reason: str) -> TilewrightError:
    """The error for bytes that are no cubin, or no longer one."""
    return TilewrightError(
        "sass/corrupt_cubin",
        f"A cubin (64-bit ELF for CUDA) was needed: {reason}.",
        hint="Compile the kernel again; of a fat binary, extract the cubin first (cuobjdump -xelf all).",
    )


def _missing(settings: Settings, what: str) -> TilewrightError:
    hint = "Install it with `pip install nvidia-cuda-nvdisasm`, or set TILEWRIGHT_NVDISASM to its path."
    facts = {"nvdisasm": str(settings.nvdisasm)} if settings.nvdisasm else {}
    named = f" at {settings.nvdisasm}" if settings.nvdisasm else ""
    return TilewrightError(
        "sass/no_disassembler",
        f"The disassembler is needed to read SASS: {what}{named}.",
        facts=facts,
        hint=hint,
        exit_code=EXIT_MISSING,
    )
