"""`python -m tests.chaos [--seed N] [--minutes M] [--faults N]`: a round, reported; exit code 1 after a violation."""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.nemesis import KINDS
from tests.chaos.report import report
from tests.chaos.round import Plan, play


def main() -> int:
    parser = argparse.ArgumentParser(description="Break everything for a while and see what became of the runs.")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="decides which faults, when, and where"
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--keep", action="store_true", help="keep logs and data, as after a violation")
    parser.add_argument("--only", action="append", choices=list(KINDS), default=[], help="a kind of faults; repeat it")
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.faults} faults in {options.minutes:g} minutes", flush=True)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # the model's clients are killed while it answers
    folder = Path(tempfile.mkdtemp(prefix="starling-chaos-"))
    folder.chmod(0o711)
    played = asyncio.run(
        play(Plan(options.seed, options.faults, options.minutes * 60, only=options.only, aloud=True), folder)
    )
    print(report(played))
    if options.keep or played.violations:
        print(f"logs and data are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if played.violations else 0


if __name__ == "__main__":
    sys.exit(main())
