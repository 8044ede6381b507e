# SPDX-License-Identifier: Apache-2.0
"""libplexrl through its C interface, by ctypes: what a program in another language would do.

Only what the interop tests need. Layouts follow plexrl.h; `size` comes first in structures.
"""
import ctypes as c
import pathlib


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("retry_after_ms", c.c_uint32), ("text", c.c_char * 512)]


class ConnectOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("socket_path", c.c_char_p), ("token", c.c_char_p),
                ("client_name", c.c_char_p), ("timeout_ms", c.c_int64)]


class ModelOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("base", c.c_char_p),
                ("train_mode", c.c_char_p), ("lora_rank", c.c_uint32), ("seed", c.c_uint64)]


class Tokens(c.Structure):
    _fields_ = [("data", c.POINTER(c.c_int32)), ("count", c.c_size_t)]


class Floats(c.Structure):
    _fields_ = [("data", c.POINTER(c.c_float)), ("count", c.c_size_t)]


class GenerateOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("version", c.c_uint64), ("prompts", c.POINTER(Tokens)),
                ("prompt_count", c.c_size_t), ("samples_per_prompt", c.c_uint32),
                ("max_new_tokens", c.c_uint32), ("temperature", c.c_float), ("top_p", c.c_float),
                ("seed", c.c_uint64), ("stop_tokens", c.POINTER(c.c_int32)),
                ("stop_token_count", c.c_size_t)]


class Datum(c.Structure):
    _fields_ = [("count", c.c_size_t), ("tokens", c.POINTER(c.c_int32)),
                ("target_tokens", c.POINTER(c.c_int32)), ("weights", c.POINTER(c.c_float)),
                ("logprobs", c.POINTER(c.c_float)), ("advantages", c.POINTER(c.c_float))]


class ForwardBackwardOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("loss", c.c_int), ("data", c.POINTER(Datum)),
                ("datum_count", c.c_size_t), ("clip_low", c.c_double), ("clip_high", c.c_double),
                ("forward_only", c.c_int), ("beta", c.c_double)]


class OptimOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("learning_rate", c.c_double), ("beta1", c.c_double),
                ("beta2", c.c_double), ("eps", c.c_double), ("weight_decay", c.c_double),
                ("grad_clip_norm", c.c_double)]


class TrainResult(c.Structure):
    _fields_ = [("size", c.c_size_t), ("loss_sum", c.c_double), ("token_count", c.c_uint64),
                ("ratio_mean", c.c_double), ("clip_fraction", c.c_double),
                ("logprob_drop_mean", c.c_double), ("entropy_mean", c.c_double)]


class SequenceResult(c.Structure):
    _fields_ = [("tokens", c.POINTER(c.c_int32)), ("logprobs", c.POINTER(c.c_float)),
                ("count", c.c_size_t), ("finish_stop", c.c_int)]


class SaveResult(c.Structure):
    _fields_ = [("size", c.c_size_t), ("version", c.c_uint64), ("step", c.c_uint64),
                ("bytes", c.c_uint64), ("sha256", c.c_char_p)]


CROSS_ENTROPY, IMPORTANCE_SAMPLING, PPO, CISPO, DRO = range(5)
CHECKPOINT, WEIGHTS = 0, 1


def _made(kind, **values):
    """A structure whose `size` is set."""
    return kind(size=c.sizeof(kind), **values)


def _tokens(values):
    array = (c.c_int32 * len(values))(*values)
    return Tokens(c.cast(array, c.POINTER(c.c_int32)), len(values)), array


class Model:
    """One model of a connected session. Every call waits for its result."""

    def __init__(self, build, socket, token, **model):
        path = next(pathlib.Path(build).glob(".libs/libplexrl.so"))
        self.lib = c.CDLL(str(path))
        self.session, self.handle = c.c_void_p(), c.c_void_p()
        options = _made(ConnectOptions, socket_path=socket.encode(), token=token.encode(),
                        client_name=b"interop", timeout_ms=30000)
        self.call("plexrl_connect", c.byref(options), c.byref(self.session))
        encoded = {k: v.encode() if isinstance(v, str) else v for k, v in model.items()}
        self.call("plexrl_model_create", self.session, c.byref(_made(ModelOptions, **encoded)),
                  c.byref(self.handle))

    def call(self, name, *args):
        err = Error()
        if getattr(self.lib, name)(*args, c.byref(err)) != 0:
            raise RuntimeError(f"{name}: {err.code}: {err.text.decode()}")

    def wait(self, name, *args):
        op = c.c_void_p()
        self.call(name, self.handle, *args, c.byref(op))
        self.call("plexrl_op_wait", op, c.c_int64(120000))
        return op

    def rows(self, op):
        rows, count = c.POINTER(Floats)(), c.c_size_t()
        self.call("plexrl_op_get_rows", op, c.byref(rows), c.byref(count))
        return [[rows[i].data[j] for j in range(rows[i].count)] for i in range(count.value)]

    def logprobs(self, version, sequences):
        kept = [_tokens(s) for s in sequences]
        array = (Tokens * len(kept))(*[t for t, _ in kept])
        return self.rows(self.wait("plexrl_logprobs", c.c_uint64(version), array, c.c_size_t(len(kept))))

    def generate(self, version, prompts, n, max_new_tokens, temperature, seed):
        kept = [_tokens(p) for p in prompts]
        array = (Tokens * len(kept))(*[t for t, _ in kept])
        options = _made(GenerateOptions, version=version, prompts=array, prompt_count=len(kept),
                        samples_per_prompt=n, max_new_tokens=max_new_tokens, temperature=temperature,
                        top_p=1.0, seed=seed)
        op = self.wait("plexrl_generate", c.byref(options))
        rows, count = c.POINTER(SequenceResult)(), c.c_size_t()
        self.call("plexrl_op_get_sequences", op, c.byref(rows), c.byref(count))
        return [([rows[i].tokens[j] for j in range(rows[i].count)],
                 [rows[i].logprobs[j] for j in range(rows[i].count)]) for i in range(count.value)]

    def forward_backward(self, loss, data, **options):
        kept, made = [], []
        for datum in data:
            arrays = {}
            for key, kind in (("tokens", c.c_int32), ("target_tokens", c.c_int32), ("weights", c.c_float),
                              ("logprobs", c.c_float), ("advantages", c.c_float)):
                if key in datum:
                    arrays[key] = (kind * len(datum[key]))(*datum[key])
                    kept.append(arrays[key])
            made.append(Datum(count=len(datum["tokens"]),
                              **{k: c.cast(a, c.POINTER(a._type_)) for k, a in arrays.items()}))
        array = (Datum * len(made))(*made)
        op = self.wait("plexrl_forward_backward",
                       c.byref(_made(ForwardBackwardOptions, loss=loss, data=array, datum_count=len(made), **options)))
        result = _made(TrainResult)
        self.call("plexrl_op_get_train_result", op, c.byref(result))
        return result, self.rows(op)

    def optim_step(self, **options):
        self.wait("plexrl_optim_step", c.byref(_made(OptimOptions, **options)))

    def publish(self):
        result = _made(SaveResult)
        self.call("plexrl_op_get_save_result", self.wait("plexrl_publish"), c.byref(result))
        return result.version

    def save(self, path, file_format):
        with open(path, "wb") as file:
            self.wait("plexrl_save_fd", c.c_int(file.fileno()), c.c_int(file_format))
