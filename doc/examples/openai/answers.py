# SPDX-License-Identifier: Apache-2.0
"""Asks the pool's model by the OpenAI client, as it is: base URL and key are in the job's environment."""
import openai

PROMPTS = ["1+2=", "12+30="]

client = openai.OpenAI()
model = client.models.list().data[0]
print(f"{model.id}, contexts of {model.max_model_len} tokens")
answers = client.completions.create(model=model.id, prompt=PROMPTS, n=2, max_tokens=3, logprobs=0, seed=1)
for choice in answers.choices:
    likely = sum(choice.logprobs.token_logprobs)
    print(f"{PROMPTS[choice.index // 2]} {choice.text!r} (log-probability {likely:.2f})")
