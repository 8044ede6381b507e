// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets do with one input; the same functions replay the corpus in a unit test.
// They abort when a parser breaks its promise, and are otherwise silent.
#pragma once

#include <cstdint>
#include <span>

namespace plexrl::fuzz {

// The bytes as a peer would write them into a Channel.
void fuzz_frame(std::span<const std::uint8_t> bytes);
// The bytes as the payload of a frame of the client protocol.
void fuzz_message(std::span<const std::uint8_t> bytes);
// The same for the engine protocol.
void fuzz_engine_message(std::span<const std::uint8_t> bytes);
// A GGUF file.
void fuzz_gguf(std::span<const std::uint8_t> bytes);
// A safetensors file.
void fuzz_safetensors(std::span<const std::uint8_t> bytes);
// A chat template to the first zero byte, and behind it the text of a message.
void fuzz_chat(std::span<const std::uint8_t> bytes);
// The body of a request to the HTTP API.
void fuzz_http_body(std::span<const std::uint8_t> bytes);
// The body of a request of the Tinker API, a promise, or a checkpoint's path.
void fuzz_tinker(std::span<const std::uint8_t> bytes);
// A tokenizer.json to the first zero byte, and behind it a text for it.
void fuzz_tokenizer(std::span<const std::uint8_t> bytes);

}  // namespace plexrl::fuzz
