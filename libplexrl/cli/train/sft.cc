// SPDX-License-Identifier: Apache-2.0
#include "cli/train/sft.h"

namespace plexrl::cli {
namespace {

// Weight 1 on answer positions.
Result<Datum> datum_of(const Problem& problem, std::int32_t stop, const TextTokenizer& tokenizer,
                       const EncodeProblem& prompt_of) {
  PLEXRL_ASSIGN(const Tokens prompt, prompt_of(problem));
  PLEXRL_ASSIGN(Tokens answer, tokenizer.encode(problem.answer));
  answer.push_back(stop);
  Tokens all = prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  Datum datum;
  datum.tokens.assign(all.begin(), all.end() - 1);
  datum.targets.assign(all.begin() + 1, all.end());
  datum.weights.assign(datum.tokens.size(), 0.0F);
  for (std::size_t i = prompt.size() - 1; i < datum.weights.size(); ++i) datum.weights[i] = 1.0F;
  return datum;
}

}  // namespace

Result<std::vector<Datum>> sft_batch(Environment& environment, const TextTokenizer& tokenizer,
                                     const EncodeProblem& prompt_of, std::int32_t stop,
                                     std::uint32_t batch, std::uint64_t seed, std::uint64_t step) {
  ProblemSource source{Random(seed, Stream::kSftProblems, step), Stream::kSftOrder, step * batch};
  std::vector<Datum> data;
  data.reserve(batch);
  double answer_tokens = 0.0;
  for (std::uint32_t i = 0; i < batch; ++i) {
    const Problem problem = environment.training_problem(source);
    auto datum = datum_of(problem, stop, tokenizer, prompt_of);
    if (!datum.has_value()) return datum.error().within("problem '" + problem.prompt + "'");
    for (const float weight : datum->weights) answer_tokens += static_cast<double>(weight);
    data.push_back(std::move(datum).value());
  }
  for (Datum& datum : data)
    for (float& weight : datum.weights)
      weight = static_cast<float>(static_cast<double>(weight) / answer_tokens);
  return data;
}

}  // namespace plexrl::cli
