"""Options that hold a list: ``2,3,4``, ``ldg,cp_async``, ``64,64`` and ``M=4096,N=512``."""

from __future__ import annotations

from tilewright.errors import TilewrightError

# One buffer is no ring; the budget is computed up to eight.
FEWEST_STAGES, MOST_STAGES = 2, 8


def read_stages(text: str) -> tuple[int, ...]:
    """``"2,3,4"`` to numbers, ascending, each once.

    Raises:
        TilewrightError: ``cli/usage`` when one is no number from 2 to 8.
    """
    numbers = set()
    for item in _items(text, "--stages"):
        if not item.isdecimal() or not FEWEST_STAGES <= int(item) <= MOST_STAGES:
            raise TilewrightError(
                "cli/usage",
                f"--stages has {item!r}; each must be a whole number from {FEWEST_STAGES} to {MOST_STAGES}.",
                {},
                "Write for example --stages 2,3,4.",
            )
        numbers.add(int(item))
    return tuple(sorted(numbers))


def read_variants(text: str | None) -> tuple[str, ...] | None:
    """``"ldg,cp_async"`` to names, each once, in the order given; None when the option was not given.

    Raises:
        TilewrightError: ``cli/usage`` for a name that no variant has.
    """
    if text is None:
        return None

    from tilewright.receipt.record import VARIANT_NAMES

    names = list(dict.fromkeys(_items(text, "--variants")))
    for name in names:
        if name not in VARIANT_NAMES:
            raise TilewrightError(
                "cli/usage",
                f"--variants has {name!r}, which is no variant.",
                {},
                f"They are {', '.join(VARIANT_NAMES)}.",
            )
    return tuple(names)


def read_extents(option: str, text: str | None) -> tuple[int, int, int] | None:
    """``"64,32"`` to (64, 32, 1); None when the option was not given.

    Raises:
        TilewrightError: ``cli/usage`` unless it holds one to three whole numbers.
    """
    if text is None:
        return None
    items = _items(text, option)
    if len(items) > 3 or not all(item.isdecimal() for item in items):
        message = f"{option} is {text!r}; one to three whole numbers were needed."
        raise TilewrightError("cli/usage", message, {}, f"Write for example {option} 64,64.")
    x, y, z = (*map(int, items), *[1] * (3 - len(items)))
    return x, y, z


def read_sizes(option: str, texts: tuple[str, ...]) -> dict[str, int]:
    """``("M=4096", "N=512,K=512")`` to sizes by name; of a name that is given twice, the last one.

    Raises:
        TilewrightError: ``cli/usage``.
    """
    found: dict[str, int] = {}
    for item in (item for text in texts for item in _items(text, option)):
        name, sign, value = item.partition("=")
        if not sign or not name.strip().isidentifier() or not value.strip().isdecimal():
            raise TilewrightError(
                "cli/usage",
                f"{option} has {item!r}; NAME=NUMBER was needed.",
                {},
                f"Write for example {option} M=4096.",
            )
        found[name.strip()] = int(value)
    return found


def _items(text: str, option: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise TilewrightError("cli/usage", f"{option} has an empty item: {text!r}.", {}, "Separate items by one comma.")
    return items
