# SPDX-License-Identifier: Apache-2.0
"""A plexrld of the build in a temporary folder, with one small model and one open job.

Needs root: jobs are opened as the Slurm hooks do it, and plexrld believes only uid 0 there.
"""
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import numpy
from safetensors.numpy import load_file, save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 24, "max_position_embeddings": 48,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
}
QWEN2 = {**CONFIG, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": False}
QWEN3 = {**CONFIG, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 12}
LLAMA3 = {**CONFIG, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_max_position_embeddings": 32}}
CONFIGS = {"llama": CONFIG, "qwen2": QWEN2, "qwen3": QWEN3, "llama with stretched rotation": LLAMA3}
SITE = """
cluster: interop
pools:
  - name: rl
    partition: plexrl
    nodes: interop1
    models: [tiny]
    train_modes: [lora, full, none]
    host_memory_mib: {memory}
    device_memory_mib: {memory}
    activation_memory_mib: {activations}
models:
  - {{name: tiny, path: {model}, parameters: {parameters}, hidden_size: {hidden_size}, layers: {layers}, intermediate_size: {inner},
     kv_size: {kv_size}}}
daemon:
  user: root
  run_dir: {directory}/run
  state_dir: {directory}/state
  engine_program: {engine}
"""


def free_port():
    """Below 1024: others are not taken, as any user could have them while plexrld is away."""
    for port in range(1023, 600, -1):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port below 1024")


class Service:
    def __init__(self, build, config, model=None, large=None, http_address=None):
        """`model`: a directory that is there, of a large model unless told; without one it is made by the configuration."""
        self.config, self.model, self.http_address = config, model, http_address
        self.large = model is not None if large is None else large
        self.build = pathlib.Path(build).resolve()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="plexrl-interop-"))
        self.daemon = None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        large = self.large
        if self.model is None:
            self._make_model()
        for name in ("run", "state"):
            (self.directory / name).mkdir(mode=0o755)
        site = self.directory / "plexrl.yaml"
        c = self.config
        site.write_text(SITE.format(
            model=self.model, parameters=140_000_000 if large else 40_000, hidden_size=c["hidden_size"],
            layers=c["num_hidden_layers"], inner=c["intermediate_size"], kv_size=c["num_key_value_heads"] * c["head_dim"],
            memory=3072 if large else 512, activations=512 if large else 128, directory=self.directory,
            engine=self.build / "plexrl-engine") + (f"  http_address: {self.http_address}\n" if self.http_address else ""))
        self.log = open(self.directory / "log", "wb")
        self.daemon = subprocess.Popen([self.build / "plexrld", "--config", site, "--node", "interop1"],
                                       stdout=self.log, stderr=self.log)
        path = self.directory / "run" / "plexrld.sock"
        deadline = time.monotonic() + 120  # a busy machine fills pools of gigabytes for long
        # The socket is there before it is listened to.
        while not self._answers(path):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("plexrld did not start: " + (self.directory / "log").read_text())
            time.sleep(0.02)

    def _answers(self, path):
        words = [self.build / "plexrl", "status", "--socket", path, "--timeout", "5"]
        return path.exists() and subprocess.run(words, capture_output=True, check=False).returncode == 0

    def _make_model(self):
        self.model = self.directory / "model"
        shape = self.directory / "shape.json"
        shape.write_text(json.dumps(self.config))
        subprocess.run([self.build / "plexrl-engine", "--init-model", self.model, "--config", shape, "--seed", "7"],
                       check=True)
        self._shake_vectors()

    def _shake_vectors(self):
        """Biases other than zero and norms other than one, as trained models have them."""
        path = self.model / "model.safetensors"
        weights, random = load_file(path), numpy.random.default_rng(3)
        for name, value in weights.items():
            if value.ndim == 1:
                weights[name] = (value + random.normal(scale=0.2, size=value.shape)).astype(numpy.float32)
        save_file(weights, path)

    def open_job(self, job_id, mode, rank=0, env=None):
        """Socket and token of a new job of root. `env`: what --plexrl-env would have."""
        grant = f"v1:pool=rl:share=100:mem=256:mode={mode}:rank={rank}:slowdown=0:models=tiny"
        grant += f":env={env}" if env else ""
        run = subprocess.run([self.build / "plexrl", "job", "open", "--socket", self.directory / "run" / "plexrld.sock",
                              "--job-id", str(job_id), "--user", "root", "--grant", grant, "--timeout", "120", "--json"],
                             check=True, capture_output=True, text=True)
        pairs = json.loads(run.stdout)
        return pairs["PLEXRL_SOCKET"], pairs["PLEXRL_TOKEN"]

    def stop(self):
        if self.daemon is not None:
            # By their files: an engine that has seen a restart is no child of this plexrld.
            engines = [path.read_text().strip() for path in (self.directory / "run" / "engines").glob("*.pid")]
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
            for pid in engines:  # engines outlive a plexrld by design
                subprocess.run(["kill", "-KILL", pid], check=False, capture_output=True)
            self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
