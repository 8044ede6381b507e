# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities and greedy decoding against `transformers` on torch, in float32, on the imported files of
SmolLM2-135M-Instruct. At the end of each prompt the most probable tokens are compared, not the given one only.
"""
import pathlib
import sys
import time

from peers import PROMPTS, Subject, row, skip

try:
    import torch
    import transformers
except ImportError as e:
    skip(f"torch or transformers cannot be loaded here: {e}")

ALLOWED = 1e-3  # of a log-probability in float32
MOST_PROBABLE = 32
NEW_TOKENS = 64


def table_of(model, tokens):
    """[T, vocab]: log p(next token) at each position."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)


def differences(name, tokens, subject, model):
    """The largest one; prints a row."""
    table = table_of(model, tokens)
    given = torch.tensor(subject.model.logprobs(0, [tokens])[0], dtype=torch.double)
    of_given = (given - table[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]).abs().max().item()
    best = table[-1].topk(MOST_PROBABLE)
    last = [values[-1] for values in subject.model.logprobs(0, [tokens + [int(t)] for t in best.indices])]
    of_best = (torch.tensor(last, dtype=torch.double) - best.values).abs().max().item()
    row("transformers", prompt=name, tokens=len(tokens), difference=round(of_given, 7), most_probable=MOST_PROBABLE,
        most_probable_difference=round(of_best, 7))
    return max(of_given, of_best)


def same_continuation(name, tokens, subject, model):
    """Whether greedy decoding gives the same tokens; prints a row."""
    mine, _, seconds = subject.greedy(tokens, NEW_TOKENS)
    begin = time.monotonic()
    context = torch.tensor([tokens])
    with torch.no_grad():
        out = model.generate(context, attention_mask=torch.ones_like(context), do_sample=False, max_new_tokens=NEW_TOKENS,
                             eos_token_id=None, pad_token_id=0)
    theirs = out[0, len(tokens):].tolist()
    row("transformers", prompt=name, compared=NEW_TOKENS, equal=sum(a == b for a, b in zip(mine, theirs)),
        all_equal=mine == theirs, seconds=round(seconds, 2), peer_seconds=round(time.monotonic() - begin, 2))
    return mine == theirs


def main():
    torch.set_num_threads(1)
    with Subject(pathlib.Path(sys.argv[1])) as subject:
        model = transformers.AutoModelForCausalLM.from_pretrained(subject.folder, torch_dtype=torch.float32, local_files_only=True)
        model.eval()
        named = [(text[:30], tokens) for text, tokens in zip(PROMPTS, subject.prompts)]
        worst = max(differences(name, tokens, subject, model) for name, tokens in named)
        same = [same_continuation(name, tokens, subject, model) for name, tokens in named]
    row("transformers", version=transformers.__version__, torch=torch.__version__, difference=round(worst, 7),
        allowed=ALLOWED, prompts=len(same), agree=sum(same))
    assert worst <= ALLOWED, "other log-probabilities than transformers'"
    assert all(same), "another continuation than transformers'"


if __name__ == "__main__":
    main()
