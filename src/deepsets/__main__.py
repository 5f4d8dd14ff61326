"""`python -m deepsets`, the same as the command `deepsets`."""

from .cli import app

if __name__ == "__main__":
    app()
