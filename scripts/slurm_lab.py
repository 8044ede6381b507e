# SPDX-License-Identifier: Apache-2.0
"""What scripts that show jobs on a throw-away Slurm cluster share: the cluster, its jobs, how long they ran."""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(sys.argv[0]).name
ENDED_WELL = "COMPLETED"
UNFINISHED = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def fail(text):
    sys.exit(f"{PROGRAM}: {text}")


def say(text):
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def end_on_signals():
    """A signal ends the program by an exception; more of them do not disturb what it then takes down."""
    def ended(*_):
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        fail("ended by a signal")
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        signal.signal(number, ended)


class Lab:
    """The throw-away cluster; every client call has a deadline."""

    def __init__(self, build, site):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"plexrl-{PROGRAM}."))
        self.folder.chmod(0o755)
        self.environment = dict(os.environ, PLEXRL_LAB=str(self.folder), PLEXRL_BUILD=str(build))
        self.site = site
        self.jobs = []  # all submissions

    def call(self, *words, check=True, limit=60):
        done = subprocess.run([str(TOP / "scripts/lab"), *words], env=self.environment, text=True, timeout=limit,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if check and done.returncode != 0:
            fail(f"lab {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def up(self, *options):
        self.call("up", *options, "--config", str(self.site), limit=120)

    def down(self):
        self.call("down", "--keep", check=False, limit=120)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def journals(self):
        """Of the nodes' schedulers, whole once the cluster is down."""
        return sorted(self.folder.glob("nodes/*/journal/*.journal"))

    def run(self, user, *command, check=True):
        return self.call("run", user, "--", "timeout", "30", *command, check=check)

    def home(self, user):
        return self.folder / "home" / user

    def copy(self, source, *where):
        """The folder `source`, for everybody to read."""
        target = self.folder.joinpath(*where)
        shutil.copytree(source, target)
        target.parent.chmod(0o755)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return target


class Job:
    """One submission of one job that trains in the pool `demo`."""

    def __init__(self, lab, name, user, train, share, command, model, phase=None):
        self.lab, self.name, self.user, self.train = lab, name, user, train
        self.phase = phase or name
        script = lab.home(user) / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n#SBATCH --plexrl-pool=demo --plexrl-model={model}\n"
                          f"#SBATCH --plexrl-train={train} --plexrl-share={share}\nexec {command}\n")
        script.chmod(0o755)
        self.id = int(lab.run(user, "sbatch", "--parsable", "-J", name, "-o", f"{name}.out", str(script)))
        self.facts = {}
        lab.jobs.append(self)

    def path(self, suffix):
        return self.lab.home(self.user) / f"{self.name}.{suffix}"

    def update(self):
        text = self.lab.run(self.user, "scontrol", "show", "job", "-o", str(self.id), check=False)
        self.facts = dict(word.partition("=")[::2] for word in text.split() if "=" in word) or self.facts
        return self.state not in UNFINISHED

    @property
    def state(self):
        return self.facts.get("JobState", "PENDING")

    @property
    def node(self):
        return self.facts.get("NodeList", "")

    def interval(self):
        return tuple(time.mktime(time.strptime(self.facts[key], "%Y-%m-%dT%H:%M:%S"))
                     for key in ("StartTime", "EndTime"))

    def steps(self, phase="grpo"):
        """The step records of the log so far; a line that is being written is left for later."""
        records = []
        if self.path("log").exists():
            for line in self.path("log").read_text().splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:
                    continue
                if record.get("phase") == phase:
                    records.append(record)
        return records

    def busy_s_per_step(self):
        return statistics.median(step["busy_s"] for step in self.steps())

    def busy_fraction(self):
        return sum(step["busy_s"] for step in self.steps()) / sum(step["wall_s"] for step in self.steps())

    def state_sha256(self):
        """Of the file with weights, both moments and the step count; None for LoRA."""
        return hashlib.sha256(self.path("state").read_bytes()).hexdigest() if self.train == "full" else None

    def progress(self):
        steps, warm = self.steps(), self.steps("sft")
        if warm and not steps:
            return f"{self.name} {self.node} warm start step {len(warm)} loss {warm[-1]['loss']:.2f}"
        done = f"step {len(steps)} reward {steps[-1]['reward']:.2f}" if steps else self.state.lower()
        return f"{self.name.rpartition('-')[0]} {self.node or 'waits'} {done}"


def wait_for(jobs, title, limit_s, show_every_s=4):
    end, shown = time.monotonic() + limit_s, 0.0
    while not all([job.update() for job in jobs]):
        if time.monotonic() > end:
            fail(f"{title}: not over after {limit_s} s: " + "; ".join(job.progress() for job in jobs))
        if time.monotonic() - shown > show_every_s:
            shown = time.monotonic()
            say(f"{title:11s} " + " | ".join(job.progress() for job in jobs))
        time.sleep(0.3)
    for job in jobs:
        if job.state != ENDED_WELL:
            output = job.path("out").read_text()[-3000:] if job.path("out").exists() else "(no output)"
            fail(f"{title}: job {job.id} ({job.name}) is {job.state}:\n{output}")


def write_summary(path, summary):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(summary, indent=1) + "\n")
    new.rename(path)
