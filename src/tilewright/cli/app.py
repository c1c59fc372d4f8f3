"""The application: the verbs, and what happens when one stops."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from tilewright import __version__
from tilewright.cli import analyze, apply, doctor, init, inspect, ladder, layout, pipeline, prove, tile, verify
from tilewright.cli.failures import EXIT_INTERRUPTED, refused_by_system, report, unexpected
from tilewright.cli.terminal import complain, mute
from tilewright.errors import EXIT_BAD_INPUT, EXIT_OK, TilewrightError
from tilewright.settings import Settings

HELP = """Turn a tiled CUDA kernel into a software-pipelined one, and prove it.

Decides whether it pays, rewrites the source, verifies bit for bit, times both, and shows the overlap in SASS.
Without a GPU it is verified in an emulator of PTX, races included, and everything but timing is done."""

EPILOGUE = """Example: tilewright pipeline igemm.cu --arch sm_86 --out out

Exit codes: 0 done, 1 a check failed, 2 bad input or usage, 3 something needed is missing, 4 refused.
`tilewright VERB --help` has each verb's options and an example."""

VERBS = (pipeline, apply, init, verify, prove, inspect, analyze, tile, layout, ladder, doctor)


def make_app() -> App:
    """The command-line application with every verb."""
    app = App(
        name="tilewright",
        version=f"tilewright {__version__}",
        help=HELP,
        help_epilogue=EPILOGUE,
        # Plain text needs no markup parser, which would cost a third of the time that --help may take.
        help_format="plaintext",
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for verb in VERBS:
        if verb in (layout, ladder):  # have operations of their own below them
            app.command(verb.command())
        else:
            app.command(verb.run, name=verb.NAME, help_epilogue=verb.EXAMPLE)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 to 4, 70 for a defect of Tilewright, 130 when interrupted."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in tokens
    settings = Settings.from_environment()
    code = _run(tokens, settings, as_json=as_json)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()  # what is left of --help: a full disk must show here, not in the interpreter's exit
    except (OSError, ValueError) as error:
        mute()
        return code or (EXIT_OK if isinstance(error, BrokenPipeError) else EXIT_BAD_INPUT)
    return code


def _run(tokens: Sequence[str], settings: Settings, *, as_json: bool) -> int:
    try:
        code = make_app()(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        return report(_usage(error, tokens), settings, as_json=as_json)
    except TilewrightError as error:
        return report(error, settings, as_json=as_json)
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        mute()  # the reader of --help has gone away
        return EXIT_BAD_INPUT
    except OSError as error:
        return report(refused_by_system(error, settings), settings, as_json=as_json)
    except Exception as error:
        return unexpected(error, settings, as_json=as_json)


def _usage(error: CycloptsError, tokens: Sequence[str]) -> TilewrightError:
    names = {verb.NAME for verb in VERBS}
    verb = tokens[0] if tokens and tokens[0] in names else ""
    command = f"tilewright {verb} --help" if verb else "tilewright --help"
    return TilewrightError("cli/usage", " ".join(str(error).split()), {}, f"See `{command}`.")
