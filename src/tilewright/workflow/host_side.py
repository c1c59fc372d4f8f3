"""The host side that a variant with tensor maps needs: the kernel's signature, as its caller sees it, and the shim."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.errors import TilewrightError
from tilewright.receipt.record import variant_label
from tilewright.rewrite.host_shim import Signature, host_shim
from tilewright.rewrite.result import RewrittenSource
from tilewright.workflow.opening import Opened


def host_code(opened: Opened, written: RewrittenSource, constants: Mapping[str, int | float]) -> tuple[str, str]:
    """The text of the shim, and why there is none; both empty where the kernel's parameters stay as they are."""
    launch = written.launch
    if not (launch.tensor_maps or launch.flags):
        return "", ""
    function = opened.function
    given = {p.name: text for p, text in zip(function.template, opened.template, strict=False)}
    types = {p.name: given[p.name] for p in function.template if p.kind != "value" and p.name in given}
    params = tuple((name, _replaced(text, types)) for name, text in function.params)
    callee = opened.compiler.expression
    signature = Signature(function.name, callee, params, {**constants, **launch.constants})
    try:
        return host_shim(signature, launch, variant_label(written.variant, written.stages)), ""
    except TilewrightError as error:
        return "", f"no host function was written: {error.message}"


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """A parameter's type with the template's types in place."""
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: names.get(m[0], m[0]), text)
