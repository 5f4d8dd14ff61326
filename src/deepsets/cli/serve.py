"""`deepsets serve`: models over HTTP, with a page to explore them."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def serve(
    models: Annotated[
        list[Path] | None, typer.Argument(help="Model folders (default: the English words that come with the library).")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than this machine needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 chooses a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the access token (default: $DEEPSETS_TOKEN, or none).")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may send requests; may be repeated.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Largest request, in bytes.")] = 1 << 20,
    max_elements: Annotated[int, typer.Option(min=1, help="Largest number of members in a request.")] = 10_000,
    max_k: Annotated[int, typer.Option(min=1, help="Largest number of candidates in a response.")] = 1000,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are refused (429).")] = 256,
    timeout: Annotated[float, typer.Option(min=0.001, max=86400.0, help="Seconds for a request, then 504.")] = 10.0,
) -> None:
    """Serve models over HTTP, with a page to explore them, until SIGTERM or Ctrl-C.

    \b
    Examples:
      deepsets serve
      deepsets serve animals/ activity/ --port 9000
      deepsets serve animals/ --host 0.0.0.0 --token-file token.txt
    """
    try:
        from .. import serve as server
        from ..serve.server import BackgroundHandler, JsonFormatter, check_address
    except ImportError as error:
        raise ImportError(f'{error}: install the extra, pip install "deepsets[serve]".') from None

    token = _token(token_file)
    check_address(host, token)
    limits = server.Limits(body=max_body, elements=max_elements, k=max_k, queue=queue, timeout=timeout)
    found = server.load(models) if models else server.words()
    handler = BackgroundHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("deepsets.serve").setLevel(logging.INFO)
    names = ", ".join(model.name for model in found)
    server.serve(
        found,
        host,
        port,
        limits=limits,
        token=token,
        cors=cors or (),
        listening=lambda url: typer.echo(f"{names} on {url} (Ctrl-C ends it)"),
    )


def _token(path: Path | None) -> str | None:
    if path is not None:
        return path.read_text("utf-8").strip()
    return os.environ.get("DEEPSETS_TOKEN") or None
