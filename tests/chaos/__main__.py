"""`python -m tests.chaos [--seed N] [--minutes M] [--faults N]`: run an experiment; exit code 1 after a violation."""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.experiment import ExperimentPlan, run_experiment
from tests.chaos.nemesis import REPLICATED_KINDS
from tests.chaos.report import report


def main() -> int:
    parser = argparse.ArgumentParser(description="Inject faults for a while, then check every invariant.")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="decides which faults, when, and where"
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--keep", action="store_true", help="keep logs and data, as after a violation")
    parser.add_argument(
        "--only", action="append", choices=list(REPLICATED_KINDS), default=[], help="a kind of faults; repeat it"
    )
    parser.add_argument("--crewai", action="store_true", help="members of teams are executed by CrewAI")
    parser.add_argument("--replicated", action="store_true", help="Postgres has a replica; primaries are killed, too")
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.faults} faults in {options.minutes:g} minutes", flush=True)
    logging.getLogger("aiohttp.server").setLevel(
        logging.CRITICAL
    )  # clients of the model server are killed while it answers
    folder = Path(tempfile.mkdtemp(prefix="starling-chaos-"))
    folder.chmod(0o711)
    plan = ExperimentPlan(
        options.seed,
        options.faults,
        options.minutes * 60,
        only=options.only or (list(REPLICATED_KINDS) if options.replicated else ()),
        team_runtime="crewai" if options.crewai else "native",
        replicated=options.replicated,
        verbose=True,
    )
    result = asyncio.run(run_experiment(plan, folder))
    print(report(result))
    if options.keep or result.violations:
        print(f"logs and data are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
