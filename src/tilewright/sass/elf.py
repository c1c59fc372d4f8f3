"""The few facts of a cubin's ELF that the disassembly text does not show: register counts.

Source: the ELF-64 layout (System V ABI, gABI 4.1, chapters 4 and 5); ``.nv.info`` attributes as `nvdisasm` names them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tilewright.sass.nvdisasm import corrupt_cubin

_EM_CUDA = 190
_SHT_NOBITS = 8
_FAT_BINARY = 0xBA55ED50
_EIATTR_REGCOUNT = 0x2F
_EIATTR_MAX_THREADS = 0x05
_EIFMT_SVAL = 4  # attribute with a 16-bit size and a payload; the other formats hold their value in that half word


@dataclass(frozen=True)
class _Section:
    name: str
    body: bytes
    link: int
    size_bytes: int  # also of a section without contents in the file


@dataclass(frozen=True)
class LaunchFacts:
    """What a cubin says of one kernel's launch.

    Attributes:
        smem_bytes: static shared memory, from sm_90 on with the part that the system reserves.
        max_threads: of a block, by ``__launch_bounds__``; None without them.
    """

    smem_bytes: int
    max_threads: int | None


def registers_of(cubin: bytes) -> dict[str, int]:
    """Registers per thread of every function, by symbol name.

    Raises:
        TilewrightError: ``sass/corrupt_cubin`` when the bytes are no CUDA ELF, or a truncated one.
    """
    sections = _sections(cubin)
    symbols = next((_symbols(section, sections) for section in sections if section.name == ".symtab"), ())
    counts: dict[str, int] = {}
    for section in sections:
        if section.name == ".nv.info":
            for index, count in _register_counts(section.body):
                if index < len(symbols):
                    counts[symbols[index]] = count
    return counts


def launch_facts_of(cubin: bytes, kernel: str) -> LaunchFacts:
    """Static shared bytes and launch bounds of one kernel.

    Raises:
        TilewrightError: ``sass/corrupt_cubin``.
    """
    found = {section.name: section for section in _sections(cubin)}
    shared = found.get(f".nv.shared.{kernel}")
    info = found.get(f".nv.info.{kernel}")
    sizes = [body for code, body in _attributes(info.body) if code == _EIATTR_MAX_THREADS] if info else []
    threads = None
    if sizes and len(sizes[0]) >= 12:
        x, y, z = struct.unpack_from("<III", sizes[0])
        threads = x * y * z
    return LaunchFacts(shared.size_bytes if shared else 0, threads)


def _sections(cubin: bytes) -> tuple[_Section, ...]:
    if len(cubin) >= 4 and struct.unpack_from("<I", cubin)[0] == _FAT_BINARY:
        raise corrupt_cubin("this is a fat binary")
    if cubin[:4] != b"\x7fELF":
        raise corrupt_cubin(f"it does not begin as an ELF file ({len(cubin)} bytes)")
    if len(cubin) < 64 or cubin[4] != 2 or cubin[5] != 1:
        raise corrupt_cubin("this is no 64-bit little-endian ELF file, or one cut short")
    machine = struct.unpack_from("<H", cubin, 18)[0]
    if machine != _EM_CUDA:
        raise corrupt_cubin(f"this ELF file is for another machine (e_machine {machine}, CUDA is {_EM_CUDA})")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    if entry < 64 or table + entry * count > len(cubin):
        raise corrupt_cubin(f"it is cut short: {len(cubin)} bytes, section table up to {table + entry * count}")
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + entry * i) for i in range(count)]
    bodies: list[bytes] = []
    for _, kind, _, _, offset, size, *_ in headers:
        if kind != _SHT_NOBITS and offset + size > len(cubin):
            raise corrupt_cubin(f"it is cut short: {len(cubin)} bytes, a section ends at {offset + size}")
        bodies.append(b"" if kind == _SHT_NOBITS else cubin[offset : offset + size])
    names = bodies[names_at] if names_at < count else b""
    return tuple(
        _Section(_text(names, header[0]), body, header[6], header[5])
        for header, body in zip(headers, bodies, strict=True)
    )


def _symbols(section: _Section, sections: tuple[_Section, ...]) -> tuple[str, ...]:
    strings = sections[section.link].body if section.link < len(sections) else b""
    return tuple(_text(strings, struct.unpack_from("<I", section.body, at)[0]) for at in _steps(section.body, 24))


def _register_counts(info: bytes) -> list[tuple[int, int]]:
    bodies = (body for code, body in _attributes(info) if code == _EIATTR_REGCOUNT)
    return [struct.unpack_from("<II", body) for body in bodies if len(body) >= 8]


def _attributes(info: bytes) -> list[tuple[int, bytes]]:
    """(attribute, payload) of those that have a payload."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _EIFMT_SVAL:
            continue
        if at + size <= len(info):
            found.append((attribute, info[at : at + size]))
        at += size
    return found


def _steps(body: bytes, size: int) -> range:
    return range(0, len(body) - len(body) % size, size)


def _text(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset)
    return strings[offset : end if end >= 0 else len(strings)].decode("utf-8", "replace")
