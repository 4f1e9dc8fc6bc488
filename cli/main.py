"""`qgraph`: the commands, and how errors are printed."""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
import typer.main

from qgraph.cli.analyze import analyze
from qgraph.cli.command import Command, CommandGroup
from qgraph.cli.doctor import doctor
from qgraph.cli.evaluate import evaluate
from qgraph.cli.export import export
from qgraph.cli.finalize import finalize
from qgraph.cli.inspect import inspect
from qgraph.cli.optimize import optimize
from qgraph.cli.passes import passes
from qgraph.cli.profiles import profiles
from qgraph.cli.quantize import quantize
from qgraph.cli.report import report
from qgraph.cli.run import run
from qgraph.cli.streams import checked_streams, discard_output
from qgraph.cli.train import train
from qgraph.cli.verify import verify
from qgraph.errors import (
    INTERNAL_ERROR,
    Interrupted,
    OutputError,
    PipeError,
    QGraphError,
    StreamError,
)
from qgraph.foreign import ClickObject
from qgraph.names import path_text
from qgraph.quiet import quiet_tensorflow
from qgraph.stopping import was_interrupted
from qgraph.words import duration

MIN_SECONDS_SHOWN = 2.0  # seconds after which a command prints how long it took
# Errors of a disk or its permissions, anywhere in a run: not a fault of qgraph.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG)


class MainGroup(CommandGroup):
    """The commands. `rl` is imported only when it is used: its options take time to generate.

    Handles Ctrl-C before typer does, whose message and exit code depend on its version.
    """

    def list_commands(self, ctx: ClickObject) -> list[str]:
        return [*super().list_commands(ctx), "rl"]

    def get_command(self, ctx: ClickObject, cmd_name: str) -> ClickObject:
        if cmd_name != "rl":
            return super().get_command(ctx, cmd_name)
        from qgraph.cli.rl import app as rl

        return typer.main.get_command(rl)

    def invoke(self, ctx: ClickObject) -> object:
        begin = time.monotonic()
        try:
            found: object = super().invoke(ctx)
        except (Interrupted, typer.Exit):
            raise
        except (KeyboardInterrupt, Exception) as error:
            # An extension module that is interrupted while it is imported raises ImportError.
            if not (isinstance(error, KeyboardInterrupt) or was_interrupted()):
                raise
            raise Interrupted(
                "interrupted; no partial output was written",
                hint="to start again, run the same command",
            ) from error
        seconds = time.monotonic() - begin
        if seconds >= MIN_SECONDS_SHOWN and "--json" not in sys.argv:
            print(f"took {duration(seconds)}", file=sys.stderr)
        return found


app = typer.Typer(
    name="qgraph",
    cls=MainGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Command)(quantize)
app.command(cls=Command)(train)
app.command(cls=Command)(finalize)
app.command(cls=Command)(inspect)
app.command(cls=Command)(optimize)
app.command(cls=Command)(analyze)
app.command(cls=Command)(run)
app.command(cls=Command)(evaluate)
app.command(cls=Command)(report)
app.command(cls=Command)(export)
app.command(cls=Command)(verify)
app.command(cls=Command)(passes)
app.command(cls=Command)(profiles)
app.command(cls=Command)(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from qgraph import __version__

        print(f"qgraph {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error. Works after any command."),
    ] = False,
) -> None:
    """Turn trained networks into fixed-point networks that are exact to the bit.

    Start with: `qgraph quantize model.pb -c samples.npz -o out`

    Exit codes: 0 success, 2 usage, 3 model file, 4 graph, 5 unsupported,
    6 calibration data, 7 profile, 8 output, 9 arithmetic, 10 pass, 11 training,
    12 process of a run, 13 standard output, 70 internal error, 130 Ctrl-C,
    141 closed pipe (docs/exit_codes.md).
    """


def main() -> None:
    """Run the command line; exit codes are those of `qgraph.errors`."""
    # TensorFlow reads this when it is first imported, here or in a process of a run.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # `--debug` may be anywhere: before the command or after its arguments.
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        with checked_streams(), quiet_tensorflow():
            app(args=arguments, prog_name="qgraph")
    except StreamError as error:
        discard_output()
        if isinstance(error, PipeError):
            sys.exit(error.exit_code)
        _fail(error, str(error), error.exit_code, debug)
    except QGraphError as error:
        _fail(error, str(error), error.exit_code, debug)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
            place = path_text(error.filename) if error.filename else None
            output_error = OutputError(f"cannot be written: {error.strerror}", node=place)
            _fail(error, str(output_error), output_error.exit_code, debug)
        text = f"internal error, please report it: {type(error).__name__}: {error}"
        _fail(error, f"{text}\n  --debug shows the traceback", INTERNAL_ERROR, debug)


def _fail(error: BaseException, text: str, code: int, debug: bool) -> NoReturn:
    from rich.console import Console
    from rich.text import Text

    with suppress(OSError):  # standard error is closed too: only the exit code is left
        if debug:
            _reveal_causes(error)
            traceback.print_exception(error)
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
        sys.stderr.flush()
    sys.exit(code)


def _reveal_causes(error: BaseException | None) -> None:
    """Undo `raise ... from None`, which hides causes unless --debug is given."""
    while error is not None:
        error.__suppress_context__ = error.__cause__ is not None
        error = error.__cause__ or error.__context__


if __name__ == "__main__":
    main()
