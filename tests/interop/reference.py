# SPDX-License-Identifier: Apache-2.0
"""A Llama decoder in NumPy in double precision, differentiable by `autograd`: an oracle that shares
nothing with the engine. Weights are a dict of Hugging Face names.

Formulas: RMSNorm (Zhang and Sennrich 2019), rotary embedding in half-split form (Su et al. 2021),
grouped-query attention (Ainslie et al. 2023), SwiGLU (Shazeer 2020), AdamW (Loshchilov and Hutter 2019).
"""
import autograd.numpy as np

PREFIX = "model.layers.{}."


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, theta):
    """x [T, heads, D]: pairs (i, i + D/2) turn by position * theta^(-2i/D)."""
    length, _, size = x.shape
    half = size // 2
    angles = np.arange(length)[:, None] / theta ** (np.arange(half) * 2.0 / size)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(x, w, layer, config):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    name = PREFIX.format(layer) + "self_attn.{}_proj.weight"
    length = x.shape[0]
    q = rotate((x @ w[name.format("q")].T).reshape(length, heads, size), config["rope_theta"])
    k = rotate((x @ w[name.format("k")].T).reshape(length, kv_heads, size), config["rope_theta"])
    v = (x @ w[name.format("v")].T).reshape(length, kv_heads, size)
    mask = np.where(np.tril(np.ones((length, length))) > 0, 0.0, -1e30)
    out = []
    for head in range(heads):
        group = head // (heads // kv_heads)
        scores = q[:, head] @ k[:, group].T / np.sqrt(size) + mask
        scores = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        out.append(scores / np.sum(scores, axis=-1, keepdims=True) @ v[:, group])
    return np.concatenate(out, axis=-1) @ w[name.format("o")].T


def mlp(x, w, layer):
    name = PREFIX.format(layer) + "mlp.{}_proj.weight"
    gate = x @ w[name.format("gate")].T
    return (gate / (1 + np.exp(-gate)) * (x @ w[name.format("up")].T)) @ w[name.format("down")].T


def log_probabilities(tokens, w, config):
    """[T, vocab]: log p(next token) at each position."""
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][np.array(tokens)]
    for layer in range(config["num_hidden_layers"]):
        name = PREFIX.format(layer)
        x = x + attention(rms_norm(x, w[name + "input_layernorm.weight"], eps), w, layer, config)
        x = x + mlp(rms_norm(x, w[name + "post_attention_layernorm.weight"], eps), w, layer)
    x = rms_norm(x, w["model.norm.weight"], eps)
    head = w["model.embed_tokens.weight"] if config["tie_word_embeddings"] else w["lm_head.weight"]
    logits = x @ head.T
    logits = logits - np.max(logits, axis=-1, keepdims=True)
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


def target_logprobs(datum, w, config):
    table = log_probabilities(datum["tokens"], w, config)
    return table[np.arange(len(datum["tokens"])), np.array(datum["target_tokens"])]


def ppo_loss(data, w, config, low=0.8, high=1.2):
    total = 0.0
    for datum in data:
        advantage = np.array(datum["advantages"])
        ratio = np.exp(target_logprobs(datum, w, config) - np.array(datum["logprobs"]))
        total = total - np.sum(np.minimum(ratio * advantage, np.clip(ratio, low, high) * advantage))
    return total


def cross_entropy_loss(data, w, config):
    return -sum(np.sum(target_logprobs(d, w, config) * np.array(d["weights"])) for d in data)


def adamw_first_step(w, gradients, lr, beta1, beta2, eps, clip):
    """One step from m = v = 0, without decay, after clipping to the global norm."""
    norm = np.sqrt(sum(np.sum(g * g) for g in gradients.values()))
    factor = min(1.0, clip / norm) if clip > 0 else 1.0
    out = {}
    for name, value in w.items():
        g = gradients[name] * factor
        m, v = (1 - beta1) * g / (1 - beta1), (1 - beta2) * g * g / (1 - beta2)
        out[name] = value - lr * m / (np.sqrt(v) + eps)
    return out
