#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""small_bpe.py DIR: writes a byte-level BPE of 300 tokens into DIR, as a Hugging Face folder has it: all bytes, a
few merges, <|im_start|>, <|im_end|> and <|endoftext|>."""
import json
import sys


CHAT = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def alphabet():
    """The printable stand-ins of bytes that byte-level BPE uses."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(moved)}


def main():
    signs = alphabet()
    vocab = {signs[byte]: byte for byte in range(256)}
    merges = []
    for pair in ("y e", "ye s", "1 0", "1 2", "Ġ i", "Ġi s"):
        merges.append(pair.replace("Ġ", signs[ord(" ")]))
        vocab[merges[-1].replace(" ", "")] = len(vocab)
    added = [{"id": len(vocab) + i, "content": text, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False}
             for i, text in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files = {
        "tokenizer.json": {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                           "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                           "decoder": byte_level,
                           "model": {"type": "BPE", "unk_token": None, "vocab": vocab, "merges": merges}},
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "bos_token": {"content": "<|im_start|>"},
                                  "chat_template": CHAT},
        "generation_config.json": {"eos_token_id": [added[2]["id"], added[0]["id"]]},
    }
    for name, content in files.items():
        with open(f"{sys.argv[1]}/{name}", "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)


main()
