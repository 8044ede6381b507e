# SPDX-License-Identifier: Apache-2.0
"""sort.py [STEPS]: GRPO with the Tinker client, as it is: the model learns to sort three digits. Base URL
and key are in the job's environment. Prints the mean reward of each step.
"""
import random
import sys

import tinker
from tinker import types

DIGITS, LENGTH, SEPARATOR = 3, 3, 10  # of the model's tokens, 0 to 9 are the digits and 10 is '+'
PROMPTS, GROUP = 12, 16


def reward_of(digits, answer):
    """Of the places of the sorted digits those that are right."""
    return sum(a == w for a, w in zip(answer, sorted(digits))) / LENGTH


def datum_of(prompt, sequence, advantage):
    """The answer's tokens have an advantage, the prompt's none."""
    tokens, before = prompt + list(sequence.tokens), len(prompt) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": [0.0] * before + list(sequence.logprobs),
                        "advantages": [0.0] * before + [advantage] * len(sequence.tokens)})


def rollout(sampler, prompts, seed):
    params = types.SamplingParams(max_tokens=LENGTH, temperature=1.0, seed=seed)
    asked = [sampler.sample(prompt=types.ModelInput.from_ints(p), num_samples=GROUP, sampling_params=params)
             for p in prompts]
    return [one.result().sequences for one in asked]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    service = tinker.ServiceClient()
    base = service.get_server_capabilities().supported_models[0].model_name
    training = service.create_lora_training_client(base_model=base, rank=8)
    draw = random.Random(1)
    for step in range(steps):
        prompts = [[draw.randrange(DIGITS) for _ in range(LENGTH)] + [SEPARATOR] for _ in range(PROMPTS)]
        data, rewards = [], []
        for prompt, group in zip(prompts, rollout(training.save_weights_and_get_sampling_client(), prompts, step)):
            of_group = [reward_of(prompt[:LENGTH], list(s.tokens)) for s in group]
            mean = sum(of_group) / GROUP
            rewards += of_group
            data += [datum_of(prompt, s, r - mean) for s, r in zip(group, of_group) if r != mean]
        print(f"step {step}: reward {sum(rewards) / len(rewards):.3f}", flush=True)
        if data:
            training.forward_backward(data, "importance_sampling")
            training.optim_step(types.AdamParams(learning_rate=0.004)).result()


if __name__ == "__main__":
    main()
