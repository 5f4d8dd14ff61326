"""Run the benchmarks named on the command line (default: those of speed), and write results/ and docs/speed.md."""

from __future__ import annotations

import argparse
import importlib
import json

from .results import write
from .table import update

OWN_RESULTS = (
    "mil",
    "redshift",
    "tables",
    "earlier",
    "fit_threads",
    "baskets",
    "everyday",
)  # written by themselves, with data and seeds
QUICK = ("pooling", "heavy_tail", "point_clouds", "scorer", "startup", "memory", "threads")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    also = "expansion (7 GB), serving (12 minutes), and minutes each: optimizers; "
    also += "benchmarks.scaling, scaling_growth and scaling_faults are run by themselves: python -m benchmarks.scaling"
    parser.add_argument("names", nargs="*", default=QUICK, help=f"of {', '.join(QUICK)}; also {also}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    found = {}
    for name in args.names:
        found[name] = importlib.import_module(f"benchmarks.{name}").run()
        if name not in OWN_RESULTS:
            write(f"speed-{name.replace('_', '-')}", found[name])
        if not args.json:
            print(f"\n{name}")
            for row in found[name]:
                print("  " + "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()))
    update()
    if args.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
