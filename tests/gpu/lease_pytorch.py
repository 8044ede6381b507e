#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lease_pytorch.py BUILD [--gib N] [--steps N]: two PyTorch jobs take turns on one GPU by leases.

Each trains a model whose weights, gradients and Adam state take N GiB of memory from
libplexrl_torch_alloc.so: first alone, with a yield after every second step that is timed, then both at once.
Fails unless the weights end the same bit for bit and the memory of the job that waits is off the device.
Needs root, a GPU, a build with plexrld, plexrl and the allocator, and a python3 with torch. JSON on stdout.
"""
import argparse
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

GIB = 1 << 30
OTHERS = 3 * GIB  # contexts, workspaces and caches outside of the pool, of both jobs
SITE = """
cluster: lease
daemon:
  user: root
  run_dir: {directory}/run
  state_dir: {directory}/state
  yield_timeout_ms: 60000
models:
  - {{name: fake, path: {directory}/model, parameters: 100000, hidden_size: 64, layers: 2, intermediate_size: 128}}
pools:
  - name: gpu
    partition: gpu
    nodes: n1
    models: fake
    train_modes: [none]
    host_memory_mib: {memory}
    kv_host_mib: 8
    device_memory_mib: 64
    activation_memory_mib: 8
    lease_slice_s: 1
"""


def worker(arguments):
    """One job: prints what it saw as JSON."""
    import ctypes
    import torch

    path = str(pathlib.Path(arguments.build) / ".libs" / "libplexrl_torch_alloc.so")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "plexrl_torch_alloc", "plexrl_torch_free")
    plexrl = ctypes.CDLL(path)
    pool = torch.cuda.MemPool(allocator.allocator())
    alone, seen = arguments.role == "alone", {"yields_s": [], "free_min": None}
    width = 4096
    layers = max(1, arguments.gib * GIB // (4 * 4 * width * width))  # weights, gradients, m, v
    with torch.cuda.use_mem_pool(pool):
        torch.manual_seed(arguments.seed)
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)]).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        data = torch.randn(64, width, device="cuda")
        for step in range(arguments.steps):
            optimizer.zero_grad(set_to_none=False)
            (model(data) - data).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
            if plexrl.plexrl_torch_should_yield() or (alone and step % 2 == 1):
                start = time.monotonic()
                if plexrl.plexrl_torch_yield() != 0:
                    sys.exit("the yield failed")
                seen["yields_s"].append(time.monotonic() - start)
            if not alone:
                free = torch.cuda.mem_get_info()[0]
                seen["free_min"] = free if seen["free_min"] is None else min(free, seen["free_min"])
                time.sleep(0.1)  # so that a job has several turns
        seen["sum"] = [int(p.detach().view(torch.int32).sum(dtype=torch.int64)) for p in model.parameters()]
        seen["bytes"] = sum(s["total_size"] for s in pool.snapshot())
        seen["total"] = torch.cuda.mem_get_info()[1]
        seen["device"] = torch.cuda.get_device_name(0)
    print(json.dumps(seen), flush=True)
    os._exit(0)  # torch frees in any order


class Daemon:
    def __init__(self, build, gib):
        self.build, self.memory = pathlib.Path(build), (gib + 2) * 1024
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="plexrl-lease-"))
        for name in ("run", "state"):
            (self.directory / name).mkdir(mode=0o755)
        site = self.directory / "plexrl.yaml"
        site.write_text(SITE.format(directory=self.directory, memory=2 * self.memory + 64))
        self.socket = self.directory / "run" / "plexrld.sock"
        self.log = open(self.directory / "log", "wb")
        self.process = subprocess.Popen(
            [self.build / "plexrld", "--config", site, "--node", "n1", "--fake-engine"], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 120
        while subprocess.run([self.build / "plexrl", "status", "--socket", self.socket], capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                sys.exit(f"plexrld did not start ({self.process.poll()}): " + (self.directory / "log").read_text())
            time.sleep(0.2)

    def start(self, job, options):
        grant = f"v1:pool=gpu:share=50:mem={self.memory}:mode=none:rank=0:slowdown=0:models=fake"
        opened = subprocess.run([self.build / "plexrl", "job", "open", "--socket", self.socket, "--job-id", str(job),
                                 "--user", "root", "--grant", grant, "--json"], check=True, capture_output=True, text=True)
        environment = {**os.environ, **json.loads(opened.stdout), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        return subprocess.Popen([sys.executable, __file__, str(self.build), *options], env=environment,
                                stdout=subprocess.PIPE, text=True)

    def result(self, job, process):
        out, _ = process.communicate(timeout=200)
        if process.returncode != 0:
            sys.exit(f"job {job} failed: {out}\n" + (self.directory / "log").read_text())
        subprocess.run([self.build / "plexrl", "job", "close", "--socket", self.socket, "--job-id", str(job)], check=True)
        return json.loads(out)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def run(arguments):
    def options(role, seed):
        return ["--gib", str(arguments.gib), "--steps", str(arguments.steps), "--role", role, "--seed", str(seed)]

    daemon = Daemon(arguments.build, arguments.gib)
    try:
        alone = [daemon.result(seed, daemon.start(seed, options("alone", seed))) for seed in (1, 2)]
        started = [daemon.start(seed + 10, options("shared", seed)) for seed in (1, 2)]
        shared = [daemon.result(seed + 10, started[seed - 1]) for seed in (1, 2)]
    finally:
        daemon.stop()
    later = [seconds for one in alone for seconds in one["yields_s"][1:]]
    size = alone[0]["bytes"]
    print(json.dumps({
        "path": "lease-yield", "device": alone[0]["device"], "bytes": size,
        "first_s": round(max(one["yields_s"][0] for one in alone), 4), "out_and_in_s": round(statistics.median(later), 4),
        "gbps": round(2 * size / statistics.median(later) / 1e9, 2),
        "turns": [len(one["yields_s"]) for one in shared], "free_min": min(one["free_min"] for one in shared)}))
    if [one["sum"] for one in alone] != [one["sum"] for one in shared]:
        sys.exit("the weights are not those of the job alone")
    if not all(one["yields_s"] for one in shared):
        sys.exit("no job was asked to make way")
    if any(one["free_min"] < one["total"] - size - OTHERS for one in shared):
        sys.exit("memory of the waiting job was on the device")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--role", choices=["alone", "shared"], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        worker(arguments)
    else:
        run(arguments)


main()
