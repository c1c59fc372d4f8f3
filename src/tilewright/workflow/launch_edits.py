"""The launches in a file, as a variant needs them: dynamic bytes, the attribute that allows them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.launch.host_code import LaunchSite, bare, closing, definitions, launch_sites, split_spans
from tilewright.launch.kernel_names import kernel_meant, launches_of
from tilewright.receipt.record import Kernel, Launch, Variant
from tilewright.source.reader import KernelFunction, KernelSource, open_kernel, read_source
from tilewright.workflow.launch_mentions import surely_before, unseen_launch
from tilewright.workflow.template_arguments import evaluated, instantiations

ATTRIBUTE = "cudaFuncAttributeMaxDynamicSharedMemorySize"
Edit = tuple[int, int, str]
# What a statement in front of a launch may begin with for a block to take the launch's place.
_BLOCK_FITS = re.compile(r"(?:(?:else\s+)?(?:if|for|while|switch)\b.*\)|.*\belse|do|case\b[^?]*:|\w+\s*:)", re.DOTALL)


def with_launches(before: str, kernel: Kernel, variant: Variant, opt_in_bytes: int) -> tuple[str, tuple[str, ...]]:
    """The variant's text with its launches in that file brought along, and what was changed there.

    Args:
        before: the file as it is.
        opt_in_bytes: shared memory of a block, static and dynamic, above which a launch has to ask for leave.

    Raises:
        TilewrightError: ``apply/…`` (exit 4) where a launch would have to change and cannot be seen or edited.
    """
    text, launch = variant.source, variant.launch or Launch()
    name = kernel.name
    if len(launch_sites(text, name)) != len(launch_sites(before, name)):
        raise _refused(kernel, None, "launch_sites", "The variant's text does not hold the launches of the file.")
    source = read_source(before.encode(), kernel.file)
    function = _function(source, kernel)
    names = source.namesakes(function)
    sites, unclear = launches_of(text, function.qualified, names)
    if unclear and launch != Launch():
        what = f"The launch may be one of {' or of '.join(sorted(names))}; that of {function.qualified} changes."
        raise _refused(kernel, unclear[0].line, "launch_unclear", what)
    _check_instantiations(kernel, source, function)
    _check_alike(kernel, text, sites, launch.changed_bytes is not None)
    if launch.extra_args:
        wanted = ", ".join(launch.extra_args)
        message = f"{variant.label} takes further arguments ({wanted}), which the host has to make for every launch."
        raise _refused(kernel, sites[0].line if sites else None, "extra_arguments", message)
    if launch.changes_grid:
        _check_grid(kernel, text, sites, launch)
    if sites and (launch.changes_grid or launch.changed_bytes is not None):
        _check_in_sight(kernel, text, launch_sites(text, name))
    if launch.changed_bytes is None:
        return text, ()
    if not sites:
        message = f"{variant.label} needs {launch.changed_bytes} dynamic bytes, and no launch of {name} is in the file."
        raise _refused(kernel, None, "no_launch_site", message)
    asks = (variant.resources.smem_bytes or launch.changed_bytes) > opt_in_bytes
    edits: list[Edit] = []
    notes: list[str] = []
    for site in sites:
        _check_editable(kernel, site)
        edits.append(_bytes_edit(site, launch.changed_bytes))
        notes.append(f"line {site.line}: launched with {launch.changed_bytes} dynamic bytes")
    if asks:
        present = _present(kernel, text, function.qualified, names)
        made, told = _attributes(kernel, text, sites, launch.changed_bytes, present)
        edits += made
        notes += told
    return _edited(text, edits), (*notes, f"launches of {name} in other files, if any, need the same bytes")


def _function(source: KernelSource, kernel: Kernel) -> KernelFunction:
    """The kernel that the receipt is about: of several of that name, the one at its line."""
    here = [k for k in source.kernels if k.name == kernel.name and k.line == kernel.line]
    return here[0] if len(here) == 1 else source.kernel(kernel.name)


def _check_instantiations(kernel: Kernel, source: KernelSource, function: KernelFunction) -> None:
    """The kernel's text serves every instantiation of it; the receipt has verified one."""
    if not kernel.template:
        return
    names = open_kernel(source, function, {}).constants.names()
    verified = tuple(evaluated(argument, names) for argument in kernel.template)
    for line, arguments in instantiations(source, function):
        if arguments != verified:
            listed = ", ".join(a if a is not None else "?" for a in arguments)
            message = f"{kernel.name} is launched as <{listed}>; <{', '.join(kernel.template)}> was verified."
            raise _refused(kernel, line, "other_instantiation", message)


def _check_alike(kernel: Kernel, text: str, sites: Sequence[LaunchSite], with_bytes: bool) -> None:
    """One launch was verified: others may have another grid, but neither other blocks nor other dynamic bytes."""
    for what, place in (("threads", 1), ("dynamic bytes", 2)):
        if place == 2 and not with_bytes:
            continue
        said = {_said(text, site, place): site for site in sites}
        if len(said) > 1:
            line = max(site.line for site in said.values())
            message = f"{kernel.name} is launched with other {what} here than elsewhere in the file; one was verified."
            raise _refused(kernel, line, "other_launch", message)


def _said(text: str, site: LaunchSite, place: int) -> str:
    """A part of a launch's configuration, its locals replaced by what they are."""
    local = definitions(text, site)
    out = site.config[place] if len(site.config) > place else "0"
    for _ in range(4):
        out = re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: local.get(m[0], m[0]), out)
    out = re.sub(r"\s+", "", out)
    inside = re.fullmatch(r"(?:dim3)?\((.*)\)", out)
    return re.sub(r"(?:,1)+$", "", inside[1] if inside is not None else out)


def _check_grid(kernel: Kernel, text: str, sites: Sequence[LaunchSite], launch: Launch) -> None:
    """Constants of the file have other values: a launch follows by itself where it names them."""
    if not sites:
        message = f"The grid changes with {', '.join(launch.changed_constants)}, and no launch is in the file."
        raise _refused(kernel, None, "no_launch_site", message)
    for site in sites:
        local = definitions(text, site)
        said = " ".join([*site.config[:2], *(local.get(c, "") for c in site.config[:2])])
        for name in launch.changed_constants:
            if not re.search(rf"\b{re.escape(name)}\b", said):
                message = f"The grid changes with {name}, which the launch does not name."
                raise _refused(kernel, site.line, "launch_unclear", message)


def _check_in_sight(kernel: Kernel, text: str, sites: Sequence[LaunchSite]) -> None:
    """A launch by other means would stay as it was."""
    line = unseen_launch(text, kernel.name, sites)
    if line is not None:
        message = f"{kernel.name} may be launched from here too, in a way that is not read; its launch changes."
        raise _refused(kernel, line, "launch_out_of_sight", message)


def _check_editable(kernel: Kernel, site: LaunchSite) -> None:
    if site.in_macro:
        raise _refused(kernel, site.line, "launch_in_macro", "The launch stands in a macro, and its bytes change.")
    if len(site.config) < 2:
        raise _refused(kernel, site.line, "launch_unclear", "The launch has no grid and block that can be read.")


def _bytes_edit(site: LaunchSite, size_bytes: int) -> Edit:
    if len(site.config_spans) > 2:
        start, end = site.config_spans[2]
        return start, end, str(size_bytes)
    end = site.config_spans[1][1]
    return end, end, f", {size_bytes}"


def _attributes(
    kernel: Kernel,
    text: str,
    sites: Sequence[LaunchSite],
    size_bytes: int,
    present: Sequence[tuple[int, int, int]],
) -> tuple[list[Edit], list[str]]:
    """``cudaFuncSetAttribute``: calls that are there get the new bytes; a launch that none precedes gets its own."""
    edits: list[Edit] = []
    notes: list[str] = []
    if present:
        lines = sorted({text.count("\n", 0, start) + 1 for _, start, _ in present})
        notes.append(f"line {', '.join(map(str, lines))}: cudaFuncSetAttribute allows {size_bytes} bytes")
        edits += [(start, end, str(size_bytes)) for _, start, end in present]
    code = bare(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    for site in sites:
        if any(surely_before(text, call, site) for call, _, _ in present):
            continue
        head = text[site.start : site.config_spans[0][0]]
        function = re.sub(r"\s*<<<\s*$", "", head)
        call = f"cudaFuncSetAttribute({function}, {ATTRIBUTE}, {size_bytes});"
        lead = code[site.statement : site.start].strip()
        if not lead:
            indent = re.search(r"[ \t]*$", text[: site.start])
            edits.append((site.start, site.start, f"{call}{newline}{indent[0] if indent is not None else ''}"))
        elif _BLOCK_FITS.fullmatch(lead) and code[site.end : site.end + 1] == ";":
            edits.append((site.start, site.start, f"{{ {call} "))
            edits.append((site.end + 1, site.end + 1, " }"))
        else:
            message = "The launch is part of a larger statement; cudaFuncSetAttribute has no place in front of it."
            raise _refused(kernel, site.line, "launch_unclear", message)
        notes.append(f"line {site.line}: cudaFuncSetAttribute in front of the launch, for {size_bytes} bytes")
    return edits, notes


def _present(kernel: Kernel, text: str, own: str, names: Collection[str]) -> list[tuple[int, int, int]]:
    """Calls for this kernel: where each begins, and where it has its bytes."""
    code = bare(text)
    found: list[tuple[int, int, int]] = []
    for match in re.finditer(r"\b(?:cuda|hip)FuncSetAttribute\s*\(", code):
        end = closing(code, match.end() - 1)
        spans = list(split_spans(code, match.end(), end)) if end > 0 else []
        named = _named(kernel.name).search(code, *spans[0]) if spans else None
        if len(spans) != 3 or named is None or ATTRIBUTE not in code[slice(*spans[1])]:
            continue
        meant = own if len(names) == 1 else kernel_meant(code, named.start(), names)
        if meant is None:
            line = code.count("\n", 0, match.start()) + 1
            message = f"The call may be for one of {' or of '.join(sorted(names))}; that for {own} changes."
            raise _refused(kernel, line, "launch_unclear", message)
        if meant == own:
            found.append((match.start(), *spans[2]))
    return found


def _named(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:::\s*)?(?:\b\w+\s*::\s*)*\b{re.escape(name)}\b")


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, key=lambda e: (e[0], e[1]), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _refused(kernel: Kernel, line: int | None, reason: str, message: str) -> TilewrightError:
    facts: dict[str, object] = {"file": kernel.file} | ({"line": line} if line is not None else {})
    hint = "Take the variant's source from the receipt's folder and change the launch by hand; `launch` says how."
    return TilewrightError(f"apply/{reason}", message, facts, hint, EXIT_REFUSED)
