# SPDX-License-Identifier: Apache-2.0
"""The worker side of `plexrl train --env-cmd`, see environments.md. Python 3.8, standard library only.

    class Task:
        def reset(self, seed, split):      # split: "train" or "held_out"
            return "2+2=?"                 # or [{"role": "user", "content": "2+2=?"}], with --chat
        def step(self, action, stopped):   # stopped: the model ended its answer itself
            return "", float(action == "4"), True      # observation, reward, done

    if __name__ == "__main__":
        plexrl_env.serve(Task())
"""
import json
import os
import sys

PROTOCOL = 1


def _observed(observation):
    return {"observation": observation} if isinstance(observation, str) else {"messages": observation}


def _reply(task, request):
    if request["op"] == "hello":
        return {"protocol": PROTOCOL}
    if request["op"] == "reset":
        return _observed(task.reset(request["seed"], request["split"]))
    if request["op"] == "step":
        observation, reward, done = task.step(request["action"], request["stopped"])
        reply = {"reward": float(reward), "done": bool(done)}
        return reply if done else {**reply, **_observed(observation)}
    raise ValueError(f"operation {request['op']!r} is not known")


def serve(task):
    """Answers requests until there are no more. What the task prints goes to standard error. An exception ends the
    worker: plexrl drops the episode, shows the end of the traceback and starts another worker."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "close":
            return
        reply = {**_reply(task, request), "id": request["id"]}
        # NaN is no JSON and would be refused: say so here, where the traceback tells where it comes from.
        out.write(json.dumps(reply, allow_nan=False) + "\n")
        out.flush()
