// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_file.h"

#include "small_gguf.h"

namespace plexrl::model {
namespace {

SmallGguf good() {
  SmallGguf file;
  file.integer("count", 7).real("eps", 0.5F).string("name", "small").strings("words", {"a", "b"});
  file.integers("types", {1, -3}).floats("t", {2, 3}, 1);
  return file;
}

Status refused(const std::string& bytes) {
  const UniqueFd fd = SmallGguf::file_of(bytes);
  return GgufFile::open(fd.get()).status();
}

TEST(GgufFile, ReadsWhatWasWritten) {
  const UniqueFd fd = SmallGguf::file_of(good().bytes());
  const auto file = GgufFile::open(fd.get()).value();
  EXPECT_EQ(file.integer("count").value(), 7);
  EXPECT_EQ(file.real("eps").value(), 0.5);
  EXPECT_EQ(file.text("name").value(), "small");
  EXPECT_EQ(file.texts("words").value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file.integers("types").value(), (std::vector<std::int64_t>{1, -3}));
  EXPECT_EQ(file.integer("name").error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(file.text("nothing").error().text().find("'nothing'"), std::string::npos);
  EXPECT_EQ(file.tensors().at("t").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.read("t").value(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(file.read("u").error().code(), Code::NOT_FOUND);
}

TEST(GgufFile, CutOffAnywhereItIsRefused) {
  const std::string bytes = good().bytes();
  for (std::size_t size = 0; size + 8 < bytes.size(); ++size) {
    const Status status = refused(bytes.substr(0, size));
    ASSERT_FALSE(status.ok()) << size;
    ASSERT_FALSE(status.text().empty());
  }
}

// Any byte may be anything: a clear refusal or a file, never more memory than the file is large.
TEST(GgufFile, DamagedAnywhereItIsReadOrRefused) {
  const std::string bytes = good().bytes();
  int refusals = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const char flip : {'\x01', '\x80', '\xFF'}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      refusals += refused(damaged).ok() ? 0 : 1;
    }
  EXPECT_GT(refusals, 100);
}

struct Lie {
  const char* name;
  std::function<std::string()> bytes;
  Code code;
  const char* said;
};
void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }
class LyingGguf : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingGguf, IsRefusedWithASentence) {
  const Status status = refused(GetParam().bytes());
  EXPECT_EQ(status.code(), GetParam().code) << status.to_string();
  EXPECT_NE(status.text().find(GetParam().said), std::string::npos) << status.text();
}

std::string with(std::string bytes, std::size_t at, const std::string& other) {
  return bytes.replace(at, other.size(), other);
}
std::string tensor_of(std::vector<std::uint64_t> shape, GgufType type = GgufType::kF32) {
  return SmallGguf().tensor("t", std::move(shape), type, std::string(64, '\0')).bytes();
}

INSTANTIATE_TEST_SUITE_P(
    All, LyingGguf,
    ::testing::Values(
        Lie{"not GGUF", [] { return std::string(64, 'x'); }, Code::INVALID_ARGUMENT, "not a GGUF"},
        Lie{"version 1", [] { return with(good().bytes(), 4, std::string("\1\0\0\0", 4)); },
            Code::UNSUPPORTED, "version 1"},
        Lie{"2^60 tensors",
            [] { return with(good().bytes(), 8, std::string("\0\0\0\0\0\0\0\x10", 8)); },
            Code::CORRUPT, "1152921504606846976 tensors"},
        Lie{"2^60 keys",
            [] { return with(good().bytes(), 16, std::string("\0\0\0\0\0\0\0\x10", 8)); },
            Code::CORRUPT, "keys"},
        Lie{"a terabyte",
            [] {
              return tensor_of({1U << 20, 1U << 18});
            },
            Code::CORRUPT, "outside the file"},
        Lie{"elements beyond 64 bits",
            [] {
              return tensor_of({1ULL << 40, 1ULL << 40});
            },
            Code::CORRUPT, "not sensible"},
        Lie{"no elements",
            [] {
              return tensor_of({0, 4});
            },
            Code::CORRUPT, "not sensible"},
        Lie{"five dimensions",
            [] {
              return tensor_of({1, 1, 1, 1, 1});
            },
            Code::CORRUPT, "5 dimensions"},
        Lie{"half a block", [] { return tensor_of({48}, GgufType::kQ8_0); }, Code::CORRUPT,
            "no whole blocks of Q8_0"},
        Lie{"unknown type", [] { return tensor_of({4}, static_cast<GgufType>(99)); },
            Code::UNSUPPORTED, "type 99"},
        Lie{"tensor twice",
            [] { return SmallGguf().floats("t", {4}, 1).floats("t", {4}, 1).bytes(); },
            Code::CORRUPT, "'t' occurs twice"},
        Lie{"key twice", [] { return SmallGguf().integer("a", 1).integer("a", 2).bytes(); },
            Code::CORRUPT, "occurs twice"},
        Lie{"unprintable name", [] { return SmallGguf().floats("t\n", {4}, 1).bytes(); },
            Code::CORRUPT, "not printable"},
        Lie{"a string of 2^62",
            [] { return SmallGguf().raw_key("a", 8, SmallGguf::plain(1ULL << 62U)).bytes(); },
            Code::CORRUPT, "a string of"},
        Lie{"an array of 2^40",
            [] {
              return SmallGguf()
                  .raw_key("a", 9, SmallGguf::plain(4U) + SmallGguf::plain(1ULL << 40U))
                  .bytes();
            },
            Code::CORRUPT, "an array of"},
        Lie{"an array of arrays",
            [] {
              return SmallGguf()
                  .raw_key("a", 9, SmallGguf::plain(9U) + SmallGguf::plain<std::uint64_t>(1))
                  .bytes();
            },
            Code::CORRUPT, "kind 9"},
        Lie{"alignment 3", [] { return SmallGguf().integer("general.alignment", 3).bytes(); },
            Code::CORRUPT, "alignment"},
        Lie{"kind 77", [] { return SmallGguf().raw_key("a", 77, "").bytes(); }, Code::CORRUPT,
            "kind 77"}));

}  // namespace
}  // namespace plexrl::model
