"""The one place where exceptions become sentences and exit codes."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import typer

_P = ParamSpec("_P")

USER_ERROR, BUG, INTERRUPTED = 1, 70, 130


def user_errors(command: Callable[_P, None]) -> Callable[_P, None]:
    """Wrap a command: errors end it with a sentence on standard error and an exit code, never with a traceback.

    Exit code 1: something in the data, the files or the machine, and the sentence says what. 70: a bug, with the path
    of a log file that holds the traceback. 130: interrupted by Ctrl-C. Warnings become notes.

    Parameters
    ----------
    command : callable
        The command.
    """

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: typer.echo(f"Note: {message}", err=True)
            try:
                command(*args, **kwargs)
            except (typer.Exit, typer.Abort, typer.BadParameter):
                raise
            except KeyboardInterrupt as error:
                typer.echo(f"Interrupted. {error}".strip(), err=True)
                raise typer.Exit(INTERRUPTED) from None
            except Exception as error:
                if type(error).__module__.split(".")[0] in ("click", "typer"):
                    raise
                sentence, code = explain_error(error)
                with contextlib.suppress(BrokenPipeError):
                    typer.secho(f"Error: {sentence}", err=True, fg="red")
                raise typer.Exit(code) from None

    return wrapped


def explain_error(error: Exception) -> tuple[str, int]:
    """Return a sentence for an exception, and the exit code.

    Parameters
    ----------
    error : Exception
        What a command raised.
    """
    text = " ".join(str(error).split())
    name = type(error).__name__
    if isinstance(error, BrokenPipeError):
        return "the program that reads the output has ended.", USER_ERROR
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full or a file became too large: {_os_text(error)}. Free some space and try again.", 1
    if isinstance(error, OSError) and error.strerror:
        return f"{_os_text(error)}.", USER_ERROR
    if isinstance(error, UnicodeError):
        return f"a text is not valid UTF-8: {text}.", USER_ERROR
    if isinstance(error, ValueError | OSError | ImportError) and text:
        return text, USER_ERROR  # our own sentences, and those of scikit-learn and Arrow
    if isinstance(error, MemoryError) or "not enough memory" in text or "bad_alloc" in text:
        return f"there is not enough memory for this. Use smaller sets, fewer features or a larger machine. {text}", 1
    if name == "TrainingError":
        return text, USER_ERROR
    if name in ("BrokenProcessPool", "RayActorError", "WorkerCrashedError", "OutOfMemoryError"):
        return f"a worker process ended unexpectedly, often for lack of memory: use fewer --workers. {text:.300}", 1
    if type(error).__module__.split(".")[0] == "pyarrow":
        return f"Arrow cannot process the table: {text:.300}", USER_ERROR
    return f"this is a bug in deepsets ({name}: {text:.200}). Please report it with {_log(error)}.", BUG


def _os_text(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def _log(error: Exception) -> str:
    """Write the traceback to a file; its name in words."""
    try:
        handle, name = tempfile.mkstemp(prefix="deepsets-bug-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return "the command that you ran"
    return f"the log file {Path(name)}"
