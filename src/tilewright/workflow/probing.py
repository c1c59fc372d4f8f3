"""The compiler as witness: every fact that the reading rests on is asserted in a twin of the source."""

from __future__ import annotations

import re
from collections import defaultdict

from tilewright.build.artifact import CompileFailure
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.workflow.opening import Compiler

# Strips references and const, so that `const half &` and `half` are the same element type.
_SAME = (
    "template <class A> struct tilewright_bare { typedef A type; };"
    " template <class A> struct tilewright_bare<A &> { typedef typename tilewright_bare<A>::type type; };"
    " template <class A> struct tilewright_bare<A &&> { typedef typename tilewright_bare<A>::type type; };"
    " template <class A> struct tilewright_bare<const A> { typedef typename tilewright_bare<A>::type type; };"
    " template <class A, class B> struct tilewright_equal { static constexpr bool value = false; };"
    " template <class A> struct tilewright_equal<A, A> { static constexpr bool value = true; };"
    " template <class A, class B> struct tilewright_same {"
    " static constexpr bool value = tilewright_equal<typename tilewright_bare<A>::type,"
    " typename tilewright_bare<B>::type>::value; };\n"
)
_TAG = re.compile(r"tilewright: ([^\"\n]+?) @(\d+)")


def probe_text(kernel: TiledKernel) -> str:
    """The source with a ``static_assert`` for every fact; lines keep their numbers."""
    inserts: dict[int, list[str]] = defaultdict(list)
    for p in kernel.probes:
        check = f' static_assert({p.condition}, "tilewright: {p.tag} @{p.line}");'
        if p.wrap:
            inserts[p.at.start].append("{ ")
            inserts[p.at.end].append(check + " }")
        else:
            inserts[p.at.end].append(check)
    out, at = [f"{_SAME}#line 1\n"], 0
    for offset in sorted(inserts):
        out.append(kernel.text[at:offset].decode())
        pieces = inserts[offset]
        # Several facts about one statement share one pair of braces each: closers first, then openers.
        out.extend(x for x in pieces if x != "{ ")
        out.extend(x for x in pieces if x == "{ ")
        at = offset
    out.append(kernel.text[at:].decode())
    return "".join(out)


def confirm(kernel: TiledKernel, compiler: Compiler) -> Refusal | None:
    """Compile the twin; a fact that does not hold refuses the kernel."""
    outcome = compiler.build(probe_text(kernel))
    if not isinstance(outcome, CompileFailure):
        return None
    found = _TAG.search(outcome.log)
    if found is None:
        return Refusal(
            "not_understood", f"the compiler cannot confirm how the source was read: {outcome.message}", outcome.line
        )
    tag, line = found[1], int(found[2])
    if tag == "type of a copy":
        return Refusal(
            "converts_type",
            "the copy changes the type of its elements",
            line,
            "load elements in the type that the tile holds",
        )
    return Refusal("not_understood", f"the compiler disagrees about the {tag}", line)
