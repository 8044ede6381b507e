# SPDX-License-Identifier: Apache-2.0
"""What `plexrl model export` and `merge` write: read by `safetensors`, and an adapter beside its base, the
two merged, and the engine on the merged directory have the same log-probabilities as the NumPy oracle.
"""
import json
import pathlib
import subprocess
import sys

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file

import reference
from plexrl_c import CROSS_ENTROPY, WEIGHTS, Model
from service import CONFIGS, Service
from test_reference import OPTIMIZER, close, make_data

RANK = 4


def run_plexrl(build, *words):
    done = subprocess.run([pathlib.Path(build) / "plexrl", "model", *map(str, words), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def with_adapter(weights, folder):
    """W + alpha / r * B A in double precision, by the PEFT directory alone."""
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["r"] == RANK and not config["use_rslora"]
    adapter = {n: a.astype(numpy.float64) for n, a in load_file(folder / "adapter_model.safetensors").items()}
    result, used = dict(weights), 0
    for name, a in adapter.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removesuffix(".lora_A.weight")
        assert module.split(".")[-1] in config["target_modules"], module
        plain = module.removeprefix("base_model.model.") + ".weight"
        result[plain] = result[plain] + config["lora_alpha"] / config["r"] * adapter[module + ".lora_B.weight"] @ a
        used += 2
    assert used == len(adapter) > 0
    return result


def wide(path):
    return {n: a.astype(numpy.float64) for n, a in load_file(path).items()}


def check_tables(name, got, want, config, random, tolerance):
    tokens = random.integers(0, config["vocab_size"], 24).tolist()
    close(name, reference.log_probabilities(tokens, got, config), reference.log_probabilities(tokens, want, config), tolerance)


def check_engine(name, model, version, weights, config, random):
    sequences = [random.integers(0, config["vocab_size"], n).tolist() for n in (5, 17, 40)]
    for row, tokens in zip(model.logprobs(version, sequences), sequences):
        table = reference.log_probabilities(tokens[:-1], weights, config)
        close(f"{name}, {len(tokens)} tokens", row, table[numpy.arange(len(tokens) - 1), tokens[1:]], 5e-5)


def train_adapter(build, service, config, random, path):
    model = Model(build, *service.open_job(1, "lora", RANK), name="m", train_mode="lora", lora_rank=RANK, seed=5)
    for _ in range(5):  # B is zero at first
        model.forward_backward(CROSS_ENTROPY, make_data(random, 8, False, config))
        model.optim_step(**{**OPTIMIZER, "learning_rate": 2e-2})
    model.save(path, WEIGHTS)
    return model, model.publish()


def check_adapter(build, service, config, random, folder):
    base = wide(service.model / "model.safetensors")
    model, version = train_adapter(build, service, config, random, folder / "lora.safetensors")
    run_plexrl(build, "export", folder / "lora.safetensors", folder / "peft", "--base", service.model)
    both = with_adapter(base, folder / "peft")
    distance = max(float(numpy.max(numpy.abs(both[n] - base[n]))) for n in base)
    print(f"  the adapter moves a weight by {distance:.3f}")
    assert distance > 1e-2, "an adapter that changes nothing would show nothing"
    check_engine("engine, base and adapter", model, version, both, config, random)
    run_plexrl(build, "merge", service.model, folder / "peft", folder / "merged")
    merged = wide(folder / "merged" / "model.safetensors")
    assert set(merged) == set(base)
    check_tables("merged against base and adapter", merged, both, config, random, 1e-5)
    run_plexrl(build, "export", folder / "lora.safetensors", folder / "again", "--base", service.model, "--format", "hf")
    assert (folder / "again" / "model.safetensors").read_bytes() == (folder / "merged" / "model.safetensors").read_bytes()
    return both


def check_merged_in_engine(build, config, folder, both, random):
    service = Service(build, config, folder / "merged", large=False)
    try:
        model = Model(build, *service.open_job(1, "lora", RANK), name="m", train_mode="lora", lora_rank=RANK, seed=5)
        check_engine("engine, merged", model, 0, both, config, random)
    finally:
        service.stop()


def check_types(build, service, folder):
    """Rounded to the nearest, of two equally near ones to the even one."""
    exact = load_file(folder / "merged" / "model.safetensors")
    run_plexrl(build, "merge", service.model, folder / "peft", folder / "half", "--dtype", "float16")
    for name, values in load_file(folder / "half" / "model.safetensors").items():
        assert values.dtype == numpy.float16 and numpy.array_equal(values, exact[name].astype(numpy.float16)), name
    run_plexrl(build, "merge", service.model, folder / "peft", folder / "brain", "--dtype", "bfloat16")
    raw = (folder / "brain" / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    for name, values in exact.items():
        begin, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "BF16"
        bits = values.view(numpy.uint32).ravel().astype(numpy.uint64)
        want = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
        assert numpy.array_equal(numpy.frombuffer(raw[8 + length + begin:8 + length + end], numpy.uint16), want), name
    with safe_open(folder / "brain" / "model.safetensors", "np") as file:
        assert set(file.keys()) == set(exact) and file.metadata() == {"format": "pt"}
    print("  float16 and bfloat16: rounded to the nearest")


def check_full(build, service, config, random, folder):
    model = Model(build, *service.open_job(2, "full"), name="m", train_mode="full")
    model.forward_backward(CROSS_ENTROPY, make_data(random, 4, False, config))
    model.optim_step(**OPTIMIZER)
    model.save(folder / "full.safetensors", WEIGHTS)
    run_plexrl(build, "export", folder / "full.safetensors", folder / "full", "--base", service.model)
    saved, exported = load_file(folder / "full.safetensors"), load_file(folder / "full" / "model.safetensors")
    assert set(saved) == set(exported) and all(numpy.array_equal(saved[n], exported[n]) for n in saved)
    assert json.loads((folder / "full" / "config.json").read_text())["model_type"] == config["model_type"]
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder / "full", check=True)
    print("  a full model: as it was saved")


def main():
    build = sys.argv[1]
    for name, config in CONFIGS.items():
        print(name)
        random = numpy.random.default_rng(11)
        service = Service(build, config)
        try:
            folder = pathlib.Path(service.directory) / "export"
            folder.mkdir()
            both = check_adapter(build, service, config, random, folder)
            check_types(build, service, folder)
            check_full(build, service, config, random, folder)
            check_merged_in_engine(build, config, folder, both, random)
        finally:
            service.stop()


if __name__ == "__main__":
    main()
