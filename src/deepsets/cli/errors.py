"""The one place where exceptions become sentences and exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from ..train import TrainingError

USER_ERROR, BUG, INTERRUPTED = 1, 70, 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_MEMORY = ("not enough memory", "bad_alloc", "can't allocate memory")  # of torch and of Arrow
_WORKER_ENDED = ("BrokenProcessPool", "RayActorError", "WorkerCrashedError", "OutOfMemoryError")


class Commands(TyperGroup):
    """Commands that end with a sentence on standard error and an exit code, never with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with user_errors():
            return super().invoke(ctx)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turn exceptions into a sentence and an exit code, and warnings into notes.

    Exit code 1: something in the data, the files or the machine. 70: a bug, with a log file that holds the traceback.
    130: interrupted by Ctrl-C.
    """
    counted: dict[str, Any] = {}  # warnings of batches that add up to one note

    def note(message: Any, *_: Any) -> None:
        if hasattr(message, "__add__"):
            counted[message.what] = counted[message.what] + message if message.what in counted else message
        else:
            typer.echo(f"Note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", ".*not seen in fit")  # also where two batches say the same
        warnings.showwarning = note  # type: ignore[assignment]
        try:
            yield
        except KeyboardInterrupt as error:
            typer.echo(f"Interrupted. {error}".strip(), err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if type(error).__module__.split(".")[0] in ("click", "typer"):  # usage errors, and the way to exit
                raise
            sentence, code = explain_error(error)
            with contextlib.suppress(BrokenPipeError):
                typer.secho(f"Error: {sentence}", err=True, fg="red")
            raise typer.Exit(code) from None
        finally:
            for message in counted.values():
                typer.echo(f"Note: {message}", err=True)


def explain_error(error: Exception) -> tuple[str, int]:
    """Return a sentence for an exception, and the exit code."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    if isinstance(error, BrokenPipeError):
        return "the program that reads the output has ended.", USER_ERROR
    if isinstance(error, OSError) and error.strerror:
        problem = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        if error.errno in _FULL:
            problem = f"the disk is full or a file became too large: {problem}. Free some space and try again"
        return f"{problem}.", USER_ERROR
    if isinstance(error, UnicodeError):
        return f"a text is not valid UTF-8: {text}.", USER_ERROR
    if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
        return f"there is not enough memory for this. Use smaller sets, fewer features or a larger machine. {text}", 1
    if name in _WORKER_ENDED:
        return f"a worker process ended unexpectedly, often for lack of memory: use fewer --workers. {text:.300}", 1
    if isinstance(error, ValueError | OSError | ImportError | TrainingError) and text:
        return text, USER_ERROR  # our own sentences, and those of scikit-learn and Arrow
    if type(error).__module__.split(".")[0] == "pyarrow":
        return f"Arrow cannot process the table: {text:.300}", USER_ERROR
    return f"this is a bug in deepsets ({name}: {text:.200}). Please report it with {_log(error)}.", BUG


def _log(error: Exception) -> str:
    """Write the traceback to a file; its name in words."""
    try:
        handle, name = tempfile.mkstemp(prefix="deepsets-bug-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return "the command that you ran"
    return f"the log file {name}"
