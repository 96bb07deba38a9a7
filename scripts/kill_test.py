#!/usr/bin/env python3
"""Kills a run with SIGKILL at random times, resumes it each time, and compares the end with a run that was never killed.

    scripts/kill_test.py --binary build/bin/hayfork --model demo/full [--kills 50] [--seed 0] [-- more flags of hayfork run]

Passes when every finished run has the digest of the undisturbed one (`hayfork db digest`: samples in order, choices,
metrics), holds every planned sample exactly once, and its database is sound after every kill.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/bin/hayfork")
    parser.add_argument("--model", required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("run_flags", nargs="*", help="what to run instead of a small grid")
    options = parser.parse_args()
    flags = options.run_flags or ["--tasks", "niah", "--lengths", "256-1k*2", "--depths", "0-100+25", "--samples", "4"]
    test = KillTest(options, flags)
    with tempfile.TemporaryDirectory(prefix="hayfork-kill-") as folder:
        sys.exit(test.run(pathlib.Path(folder)))


class KillTest:
    def __init__(self, options, flags):
        self.binary = os.path.abspath(options.binary)
        self.model = os.path.abspath(options.model)
        self.flags = flags
        self.kills = options.kills
        self.random = random.Random(options.seed)

    def run(self, folder):
        reference = folder / "reference.db"
        begin = time.monotonic()
        self.call(["run", "--model", self.model, *self.flags, "--db", str(reference)])
        wall = time.monotonic() - begin
        wanted = self.digest(reference)
        print(f"undisturbed: {wanted['samples']} samples in {wall:.2f} s, digest {wanted['sha256'][:16]}", flush=True)
        n_killed = n_runs = n_lost = 0
        while n_killed < self.kills:
            db = folder / f"killed-{n_runs}.db"
            while not self.finished(db):
                if n_killed >= self.kills:  # the last one may end in peace
                    self.call(self.next_command(db))
                    continue
                if self.killed(self.next_command(db), self.random.uniform(0.0, wall)):
                    n_killed += 1
                    n_lost += self.check(db)
            n_runs += 1
            found = self.digest(db)
            if found != wanted:
                print(f"FAIL: {db.name} after {n_killed} kills: {found}, want {wanted}")
                return 1
        print(f"ok: {n_killed} kills in {n_runs} runs ({n_lost} before the run was in the database); "
              f"every digest equals the undisturbed one")
        return 0

    def next_command(self, db):
        if self.has_run(db):
            return ["resume", "@last", "--db", str(db)]
        return ["run", "--model", self.model, *self.flags, "--db", str(db)]

    def killed(self, command, after):
        """Starts the command and kills it after so many seconds; False when it ended before."""
        process = subprocess.Popen([self.binary, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, errors = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return True
        if process.returncode != 0:
            raise SystemExit(f"FAIL: {' '.join(command)} ended with {process.returncode}\n{errors.decode()}")
        return False

    def call(self, command):
        done = subprocess.run([self.binary, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"FAIL: {' '.join(command)} ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    def runs(self, db):
        if not db.exists() or db.stat().st_size == 0:
            return []
        return json.loads(self.call(["list", "runs", "--db", str(db), "-o", "json"]))["runs"]

    def has_run(self, db):
        return len(self.runs(db)) > 0

    def finished(self, db):
        runs = self.runs(db)
        return len(runs) == 1 and runs[0]["status"] == "done"

    def check(self, db):
        """After a kill: the database is sound. 1 when the kill came before there was a run."""
        runs = self.runs(db)
        if len(runs) > 1:
            raise SystemExit(f"FAIL: {db} holds {len(runs)} runs")
        if runs:
            self.call(["db", "check", "--db", str(db)])
        return 0 if runs else 1

    def digest(self, db):
        found = json.loads(self.call(["db", "digest", "@last", "--db", str(db), "-o", "json"]))["digest"]
        return {"sha256": found["sha256"], "samples": found["samples"]}


if __name__ == "__main__":
    main()
