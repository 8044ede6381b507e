# SPDX-License-Identifier: Apache-2.0
"""A Llama, Qwen2 or Qwen3 decoder in NumPy in double precision, differentiable by `autograd`: an oracle that shares
nothing with the engine. Weights are a dict of Hugging Face names.

Formulas: RMSNorm (Zhang and Sennrich 2019), rotary embedding in half-split form (Su et al. 2021),
grouped-query attention (Ainslie et al. 2023), SwiGLU (Shazeer 2020), AdamW (Loshchilov and Hutter 2019).
"""
import autograd.numpy as np
from autograd.tracer import getval

PREFIX = "model.layers.{}."


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def frequencies(size, config):
    """theta^(-2i/D), stretched as Llama 3.1 does where the configuration says so."""
    half = size // 2
    plain = config["rope_theta"] ** (-np.arange(half) * 2.0 / size)
    scaling = config.get("rope_scaling")
    if not scaling:
        return plain
    wavelength = 2 * np.pi / plain
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = (scaling["original_max_position_embeddings"] / wavelength - low) / (high - low)
    smooth = np.minimum(np.maximum(smooth, 0.0), 1.0)
    return (1 - smooth) * plain / scaling["factor"] + smooth * plain


def rotate(x, config):
    """x [T, heads, D]: pairs (i, i + D/2) turn by position * frequency i."""
    length, _, size = x.shape
    half = size // 2
    angles = np.arange(length)[:, None] * frequencies(size, config)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def project_heads(x, w, layer, which, count, config):
    """[T, count, D]: with the bias and the norm of each head, where the model has them."""
    name = PREFIX.format(layer) + "self_attn." + which
    y = x @ w[name + "_proj.weight"].T
    if name + "_proj.bias" in w:
        y = y + w[name + "_proj.bias"]
    y = y.reshape(x.shape[0], count, -1)
    return rms_norm(y, w[name + "_norm.weight"], config["rms_norm_eps"]) if name + "_norm.weight" in w else y


def attention(x, w, layer, config):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    length = x.shape[0]
    q = rotate(project_heads(x, w, layer, "q", heads, config), config)
    k = rotate(project_heads(x, w, layer, "k", kv_heads, config), config)
    v = project_heads(x, w, layer, "v", kv_heads, config)
    mask = np.where(np.tril(np.ones((length, length))) > 0, 0.0, -1e30)
    out = []
    for head in range(heads):
        group = head // (heads // kv_heads)
        scores = q[:, head] @ k[:, group].T / np.sqrt(q.shape[2]) + mask
        scores = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        out.append(scores / np.sum(scores, axis=-1, keepdims=True) @ v[:, group])
    return np.concatenate(out, axis=-1) @ w[PREFIX.format(layer) + "self_attn.o_proj.weight"].T


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


def entropy_mean(data, column, w, config):
    """Mean entropy in nats of the predictions where the datum's `column` is not 0."""
    values = []
    for datum in data:
        table = log_probabilities(datum["tokens"], w, config)
        values.append(-np.sum(np.exp(table) * table, axis=-1)[np.array(datum[column]) != 0])
    return np.mean(np.concatenate(values))


def policy_loss(data, w, config, gain):
    """-sum of gain(logp, q, advantage) where the advantage is not 0."""
    total = 0.0
    for datum in data:
        advantage, q = np.array(datum["advantages"]), np.array(datum["logprobs"])
        values = gain(target_logprobs(datum, w, config), q, advantage)
        total = total - np.sum(np.where(advantage != 0, values, 0.0))
    return total


def ppo_loss(data, w, config, low=0.8, high=1.2):
    def gain(logp, q, advantage):
        ratio = np.exp(logp - q)
        return np.minimum(ratio * advantage, np.clip(ratio, low, high) * advantage)
    return policy_loss(data, w, config, gain)


def cispo_loss(data, w, config, low=0.8, high=1.2):
    """The clipped ratio is a constant (MiniMax-M1, 2025)."""
    def gain(logp, q, advantage):
        return getval(np.clip(np.exp(logp - q), low, high)) * advantage * logp
    return policy_loss(data, w, config, gain)


def dro_loss(data, w, config, beta):
    """Direct reward optimisation with a quadratic penalty (Richemond et al. 2024)."""
    return policy_loss(data, w, config, lambda logp, q, advantage: advantage * logp - beta / 2 * (logp - q) ** 2)


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
