# SPDX-License-Identifier: Apache-2.0
"""GRPO with the real `tinker` client: BASE_URL STEPS. Says `restart` on its own line in the middle of the
steps, with training calls under way, and goes on when it is told to. Runs in the environment that
test_tinker.py makes for one version of the client.
"""
import random
import sys

import tinker
from tinker import types

SEPARATOR, DIGITS, LENGTH = 10, 3, 3
PROMPTS, GROUP = 12, 16


def reward_of(prompt, answer):
    """Of the places of the sorted digits those that are right."""
    wanted = sorted(prompt[:LENGTH])
    return sum(a == w for a, w in zip(answer, wanted)) / LENGTH


def datum_of(prompt, sequence, advantage):
    tokens, before = prompt + list(sequence.tokens), len(prompt) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": [0.0] * before + list(sequence.logprobs),
                        "advantages": [0.0] * before + [advantage] * len(sequence.tokens)})


def restart():
    print("restart", flush=True)
    assert sys.stdin.readline().strip() == "restarted"


def learn(training, steps, draw):
    rewards = []
    for step in range(steps):
        sampler = training.save_weights_and_get_sampling_client()
        prompts = [[draw.randrange(DIGITS) for _ in range(LENGTH)] + [SEPARATOR] for _ in range(PROMPTS)]
        params = types.SamplingParams(max_tokens=LENGTH, temperature=1.0, seed=step)
        asked = [sampler.sample(prompt=types.ModelInput.from_ints(p), num_samples=GROUP, sampling_params=params)
                 for p in prompts]
        data, all_rewards = [], []
        for prompt, answer in zip(prompts, asked):
            sequences = answer.result().sequences
            assert len(sequences) == GROUP and all(len(s.logprobs) == len(s.tokens) for s in sequences)
            of_group = [reward_of(prompt, list(s.tokens)) for s in sequences]
            mean = sum(of_group) / GROUP
            all_rewards += of_group
            data += [datum_of(prompt, s, r - mean) for s, r in zip(sequences, of_group) if r != mean]
        rewards.append(sum(all_rewards) / len(all_rewards))
        if not data:
            continue
        passed = training.forward_backward(data, "importance_sampling")
        stepped = training.optim_step(types.AdamParams(learning_rate=0.004, beta1=0.9, beta2=0.95, eps=1e-8))
        if step == steps // 2:
            restart()
        outputs, metrics = passed.result().loss_fn_outputs, passed.result().metrics
        assert len(outputs) == len(data) and "logprobs" in outputs[0]
        assert abs(metrics["ratio:mean"] - 1) < 0.01, metrics  # the policy is the one that was sampled
        assert stepped.result() is not None
    return rewards


def check_losses(training, tokens):
    positions = len(tokens) - 1
    inputs = {"target_tokens": tokens[1:], "logprobs": [-3.0] * positions, "advantages": [0.5] * positions}
    weighted = {"target_tokens": tokens[1:], "weights": [1.0, -1.0] + [0.0] * (positions - 2)}
    for loss in ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro"):
        datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                            loss_fn_inputs=weighted if loss == "cross_entropy" else inputs)
        result = training.forward([datum] * 2, loss).result()
        assert len(list(result.loss_fn_outputs[1]["logprobs"].data)) == positions
        assert "loss:sum" in result.metrics, result.metrics


def check_weights(service, training, tokens):
    """What was saved is sampled and loaded as it was."""
    prompt = types.ModelInput.from_ints(tokens)
    now = training.save_weights_and_get_sampling_client().compute_logprobs(prompt).result()
    assert now[0] is None and all(value < 0 for value in now[1:]), now
    saved = training.save_state("a").result().path
    named = training.save_weights_for_sampler("b").result().path
    assert saved.startswith("tinker://") and "/sampler_weights/" in named
    close = lambda a, b: all(abs(x - y) < 1e-4 for x, y in zip(a[1:], b[1:]))
    of_path = service.create_sampling_client(model_path=named).compute_logprobs(prompt).result()
    assert close(of_path, now), (of_path, now)
    of_base = service.create_sampling_client(base_model="tiny").compute_logprobs(prompt).result()
    assert not close(of_base, now), of_base
    again = service.create_training_client_from_state_with_optimizer(saved)
    loaded = again.save_weights_and_get_sampling_client().compute_logprobs(prompt).result()
    assert close(loaded, now), (loaded, now)
    rest = service.create_rest_client()
    ids = {c.checkpoint_id for c in rest.list_user_checkpoints().result().checkpoints}
    assert ids == {"weights/a", "sampler_weights/b"}, ids
    rest.delete_checkpoint_from_tinker_path(named).result()
    assert len(rest.list_user_checkpoints().result().checkpoints) == 1
    rest.delete_checkpoint_from_tinker_path(saved).result()


def check_mistakes(training, tokens):
    datum = types.Datum(model_input=types.ModelInput.from_ints([100000] * (len(tokens) - 1)),
                        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
    try:
        training.forward_backward([datum], "cross_entropy").result()
    except tinker.RequestFailedError as failure:
        assert "vocabulary" in str(failure), failure
    else:
        raise AssertionError("a token that is none was trained on")
    # The calls behind it go on.
    check_losses(training, tokens)


def main():
    url, steps = sys.argv[1], int(sys.argv[2])
    service = tinker.ServiceClient(base_url=url)
    assert [m.model_name for m in service.get_server_capabilities().supported_models] == ["tiny"]
    training = service.create_lora_training_client(base_model="tiny", rank=8, seed=1)
    assert training.get_info().model_data.model_name == "tiny"
    rewards = learn(training, steps, random.Random(7))
    first, last = sum(rewards[:3]) / 3, sum(rewards[-6:]) / 6
    print(f"  tinker {tinker.__version__}: reward {first:.3f} to {last:.3f} in {steps} steps", flush=True)
    assert last > 2 * first, rewards
    tokens = [1, 3, 0, SEPARATOR, 0, 1, 3]
    check_losses(training, tokens)
    check_weights(service, training, tokens)
    check_mistakes(training, tokens)


if __name__ == "__main__":
    main()
