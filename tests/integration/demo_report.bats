#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The arithmetic of scripts/demo and scripts/learning-curve on made-up jobs; themselves they are `make demo` and
# `make learning-curve`.

load helpers

setup() { [ -x /usr/bin/python3 ] || skip "needs python3: run scripts/install-deps test"; }

# demo_says CODE: runs Python with the demo's names and some made-up jobs.
demo_says() {
  PYTHONPATH=$top/scripts /usr/bin/python3 -B - "$top/scripts/demo" <<PY
import runpy, sys
globals().update(runpy.run_path(sys.argv[1], run_name="demo"))

class Made:
    def __init__(self, user, train, node, interval, rewards, state="COMPLETED", digest="aa"):
        self.id, self.user, self.train, self.node, self.state = 7, user, train, node, state
        self._interval, self._rewards, self._digest = interval, rewards, digest
    def interval(self): return self._interval
    def steps(self): return [{"reward": r, "busy_s": 1.0, "wall_s": 2.0} for r in self._rewards]
    def busy_fraction(self): return 0.5
    def state_sha256(self): return self._digest if self.train == "full" else None

plan = PLANS[""]
rising = [0.1, 0.2, 0.3] + [0.4] * 24 + [0.7, 0.8, 0.9]
alone = [Made("a", "full", "node1", (0, 100), rising), Made("b", "lora", "node2", (0, 50), rising)]
shared = [Made("a", "full", "node1", (200, 310), rising), Made("b", "lora", "node1", (205, 260), rising)]
$1
PY
}

@test "device-seconds: sums alone, the union of a node's intervals shared" {
  demo_says '
assert union_length([(0, 10), (5, 12), (20, 21)]) == 13
assert union_length([(0, 10), (2, 3)]) == 10
assert union_length([]) == 0
summary = summarize(plan, alone, shared)
assert summary["device_s_exclusive"] == 150 and summary["device_s_shared"] == 110
assert abs(summary["saving"] - (1 - 110 / 150)) < 1e-3
assert summary["mean_slowdown"] == 1.1
'
}

@test "the summary has exactly the keys that it promises" {
  demo_says '
summary = summarize(plan, alone, shared)
assert set(summary) == {"slurm", "model", "jobs", "device_s_exclusive", "device_s_shared", "saving", "mean_slowdown"}
assert set(summary["jobs"][0]) == {"job_id", "user", "node", "train", "state", "steps", "reward_first",
    "reward_last", "reward_last_alone", "busy_fraction_alone", "wall_alone_s", "wall_shared_s", "slowdown",
    "state_sha256_alone", "state_sha256_shared"}
assert summary["jobs"][1]["state_sha256_alone"] is None
assert round(summary["jobs"][0]["reward_first"], 6) == 0.2 and round(summary["jobs"][0]["reward_last"], 6) == 0.8
'
}

@test "the demo complains about a reward that did not rise, missing steps and a state that differs" {
  demo_says '
assert list(complaints(plan, summarize(plan, alone, shared))) == []
flat = [Made("a", "full", "node1", (200, 310), [0.5] * 30), shared[1]]
assert any("did not rise" in text for text in complaints(plan, summarize(plan, alone, flat)))
short = [Made("a", "full", "node1", (200, 310), rising[:20] + rising[-3:]), shared[1]]
assert any("23 steps" in text for text in complaints(plan, summarize(plan, alone, short)))
other = [Made("a", "full", "node1", (200, 310), rising, digest="bb"), shared[1]]
assert any("changed its final state" in text for text in complaints(plan, summarize(plan, alone, other)))
'
}

@test "the demo of a real model complains about missing steps only" {
  demo_says '
plan = PLANS["smollm2-135m"]
flat = [Made("a", "lora", "node1", (200, 310), [0.0] * plan.steps), Made("b", "lora", "node1", (205, 260), [0.1])]
summary = summarize(plan, flat, flat)
assert summary["model"] == "smollm2-135m"
assert [text.partition(": ")[2] for text in complaints(plan, summary)] == ["1 steps instead of 4"]
'
}

# learning_says CODE: runs Python with the names of scripts/learning-curve and a job that learns.
learning_says() {
  PYTHONPATH=$top/scripts /usr/bin/python3 -B - "$top/scripts/learning-curve" <<PY
import runpy, sys
globals().update(runpy.run_path(sys.argv[1], run_name="learning"))

class Made:
    def __init__(self, sampled, user="a"):
        self.id, self.user, self.phase, self._sampled = 7, user, "alone", sampled
    def interval(self): return (0, 100)
    def steps(self, phase="grpo"):
        if phase != "evaluation": return [{"reward": 0.5}] * 3
        warm = [{"step": 0, "sampled": 0.1, "greedy": 0.1}]
        return warm + [{"step": 10 * i, "sampled": s, "greedy": s} for i, s in enumerate(self._sampled)]
$1
PY
}

@test "a learning curve begins after the warm start, and its rise is between its ends" {
  learning_says '
learnt = row(Made([0.4, 0.7, 0.55]))
assert [point["sampled"] for point in learnt["curve"]] == [0.4, 0.7, 0.55]
assert learnt["rise_sampled"] == 0.15 and learnt["wall_s"] == 100
'
}

@test "learning-curve complains about a small rise and about a curve that company changed" {
  learning_says '
good, other = [0.4, 0.5], [0.4, 0.6]
assert complaints([row(Made(s)) for s in (good, good, other)]) == []
assert complaints([row(Made(s)) for s in (good, other, good)]) == ["sharing changed what seed 1 learnt"]
assert "rose by 0.09 only" in complaints([row(Made(s)) for s in (good, good, [0.4, 0.49])])[0]
'
}
