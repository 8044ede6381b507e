# SPDX-License-Identifier: Apache-2.0
"""The engine against a NumPy oracle, through plexrld and the C library: log-probabilities, losses, the
gradients (by way of one AdamW step) and the files that it saves.
"""
import json
import pathlib
import sys

import numpy
from autograd import grad
from safetensors.numpy import load_file

import reference
from plexrl_c import CHECKPOINT, CISPO, CROSS_ENTROPY, DRO, PPO, WEIGHTS, Model
from service import CONFIGS, Service

BETA = 0.2  # of dro
CLIP = {"clip_low": 0.9, "clip_high": 1.3}  # of cispo
OPTIMIZER = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "grad_clip_norm": 1.0}


def close(name, got, expected, tolerance):
    worst = float(numpy.max(numpy.abs(numpy.asarray(got) - numpy.asarray(expected))))
    print(f"  {name}: largest difference {worst:.2e}, allowed {tolerance:.0e}")
    assert worst <= tolerance, name


def make_data(random, count, with_advantages, config):
    data = []
    for _ in range(count):
        length = int(random.integers(3, 20))
        tokens = random.integers(0, config["vocab_size"], length + 1).tolist()
        datum = {"tokens": tokens[:-1], "target_tokens": tokens[1:]}
        if with_advantages:
            datum["advantages"] = random.normal(size=length).tolist()
        else:
            datum["weights"] = random.normal(size=length).tolist()
        data.append(datum)
    return data


def check_logprobs(model, version, weights, random, config):
    sequences = [random.integers(0, config["vocab_size"], int(n)).tolist() for n in random.integers(2, 48, 9)]
    got = model.logprobs(version, sequences)
    for row, tokens in zip(got, sequences):
        table = reference.log_probabilities(tokens[:-1], weights, config)
        close(f"logprobs of {len(tokens)} tokens", row, table[numpy.arange(len(tokens) - 1), tokens[1:]], 2e-5)


def check_training(model, weights, folder, random, config):
    """One batch of each kind of loss, accumulated, then one step."""
    ppo, cispo, dro = (make_data(random, n, True, config) for n in (6, 3, 3))
    sft = make_data(random, 4, False, config)
    for datum in ppo + cispo + dro:
        noise = random.normal(scale=0.2, size=len(datum["tokens"]))
        datum["logprobs"] = (reference.target_logprobs(datum, weights, config) + noise).tolist()
        datum["advantages"][0], datum["logprobs"][0] = 0.0, 0.0  # a prompt position
    result, rows = model.forward_backward(PPO, ppo)
    close("entropy", result.entropy_mean, reference.entropy_mean(ppo, "advantages", weights, config), 1e-5)
    close("ppo loss", result.loss_sum, reference.ppo_loss(ppo, weights, config), 1e-3)
    for row, datum in zip(rows, ppo):
        close("target logprobs", row, reference.target_logprobs(datum, weights, config), 2e-5)
    result, _ = model.forward_backward(CROSS_ENTROPY, sft)
    close("cross entropy loss", result.loss_sum, reference.cross_entropy_loss(sft, weights, config), 1e-3)

    close("entropy", result.entropy_mean, reference.entropy_mean(sft, "weights", weights, config), 1e-5)
    result, _ = model.forward_backward(CISPO, cispo, **CLIP)
    close("cispo loss", result.loss_sum, reference.cispo_loss(cispo, weights, config, 0.9, 1.3), 1e-3)
    result, _ = model.forward_backward(DRO, dro, beta=BETA)
    close("dro loss", result.loss_sum, reference.dro_loss(dro, weights, config, BETA), 1e-3)

    def total(w):
        return (reference.ppo_loss(ppo, w, config) + reference.cross_entropy_loss(sft, w, config)
                + reference.cispo_loss(cispo, w, config, 0.9, 1.3) + reference.dro_loss(dro, w, config, BETA))

    gradients = grad(total)(weights)
    expected = reference.adamw_first_step(weights, gradients, OPTIMIZER["learning_rate"], 0.9, 0.95, 1e-8, 1.0)
    model.optim_step(**OPTIMIZER)
    path = folder / "after.safetensors"
    model.save(path, WEIGHTS)
    after = load_file(path)
    assert set(after) == set(weights), set(after) ^ set(weights)
    # Adam's first step is lr * sign(g) where |g| >> eps: where g is near 0 its sign is noise.
    certain = {n: numpy.abs(g) > 1e-5 for n, g in gradients.items()}
    # The bias of k hardly matters: what it adds to all scores of a row alike, softmax takes away.
    unclear = {n: c.mean() for n, c in certain.items() if c.mean() <= 0.9 and "embed" not in n and "k_proj.bias" not in n}
    assert not unclear, unclear
    close("weights after one step", numpy.concatenate([after[n][certain[n]] for n in weights]),
          numpy.concatenate([expected[n][certain[n]] for n in weights]), 2e-5)
    checkpoint = folder / "checkpoint.safetensors"
    model.save(checkpoint, CHECKPOINT)
    assert len(load_file(checkpoint)) >= 3 * len(weights)
    return {n: a.astype(numpy.float64) for n, a in after.items()}


def check_generate(model, version, weights, random, config):
    prompts = [random.integers(0, config["vocab_size"], int(n)).tolist() for n in (1, 5, 9)]
    for row, (tokens, logprobs) in enumerate(model.generate(version, prompts, 2, 12, 0.0, 3)):
        context = list(prompts[row // 2])
        for token, logprob in zip(tokens, logprobs):
            table = reference.log_probabilities(context, weights, config)[-1]
            assert table[token] >= table.max() - 1e-4, "greedy decoding took a token that is not the best"
            assert abs(table[token] - logprob) <= 2e-5
            context.append(token)
    print("  greedy decoding: 6 rows of 12 tokens as the oracle")


def check_family(build, config):
    service = Service(build, config)
    try:
        weights = {n: a.astype(numpy.float64) for n, a in load_file(service.model / "model.safetensors").items()}
        assert json.loads((service.model / "config.json").read_text())["model_type"] == config["model_type"]
        random = numpy.random.default_rng(1)
        base = Model(build, *service.open_job(1, "lora", 4), name="m", train_mode="lora", lora_rank=4, seed=5)
        check_logprobs(base, 0, weights, random, config)
        check_generate(base, 0, weights, random, config)
        full = Model(build, *service.open_job(2, "full"), name="m", train_mode="full")
        after = check_training(full, weights, pathlib.Path(service.directory), random, config)
        version = full.publish()
        check_logprobs(full, version, after, random, config)
        check_generate(full, version, after, random, config)
    finally:
        service.stop()


def main():
    for name, config in CONFIGS.items():
        print(name)
        check_family(sys.argv[1], config)


if __name__ == "__main__":
    main()
