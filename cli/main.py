"""`qgraph`: the verbs, and how errors reach a person."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from qgraph.cli.inspect import inspect
from qgraph.cli.passes import passes
from qgraph.cli.quantize import quantize
from qgraph.errors import QGraphError

INTERNAL_ERROR = 70
INTERRUPTED = 130

app = typer.Typer(
    name="qgraph",
    help="Turn trained networks into fixed-point ones, exact to the bit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(quantize)
app.command()(inspect)
app.command()(passes)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"qgraph {version('qgraph')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Turn trained networks into fixed-point ones, exact to the bit."""


def main() -> None:
    """Run the command line; exit codes are those of `qgraph.errors`."""
    debug = "--debug" in sys.argv
    # TensorFlow reads this when it is first imported, in the verbs that need it.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # `--debug` may stand anywhere: before the verb or after its arguments.
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(args=arguments, standalone_mode=True)
    except QGraphError as error:
        _fail(error, str(error), error.exit_code, debug)
    except KeyboardInterrupt as error:
        _fail(error, "interrupted: nothing was written", INTERRUPTED, debug)
    except Exception as error:
        text = f"internal error, please report it: {type(error).__name__}: {error}"
        _fail(error, f"{text}\n  --debug shows the traceback", INTERNAL_ERROR, debug)


def _fail(error: BaseException, text: str, code: int, debug: bool) -> None:
    if debug:
        raise error
    Console(stderr=True).print(f"[bold red]error:[/] {text}", highlight=False, soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
