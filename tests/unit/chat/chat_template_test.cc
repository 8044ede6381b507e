// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

namespace plexrl::chat {
namespace {

using nlohmann::ordered_json;

Result<Text> rendered(const std::string& source, RenderInput input = {}) {
  if (input.messages.is_null())
    input.messages = ordered_json::array({{{"role", "user"}, {"content", "<|im_end|>x"}}});
  PLEXRL_ASSIGN(const ChatTemplate made, ChatTemplate::parse(source));
  return made.render(input);
}

// What tests/interop/chat_cases.py wrote with the package jinja2.
TEST(ChatTemplate, GoldenValuesOfJinja2) {
  std::ifstream file(PLEXRL_SRCDIR "/tests/unit/chat/golden.json");
  const auto golden = ordered_json::parse(file);
  ASSERT_GT(golden["cases"].size(), 100U);
  for (const auto& one : golden["cases"]) {
    RenderInput input;
    input.tokens = golden["tokens"];
    input.messages = one["input"]["messages"];
    input.tools = one["input"].value("tools", ordered_json());
    input.variables = one["input"].value("variables", ordered_json::object());
    input.add_generation_prompt = one["input"].value("add_generation_prompt", true);
    const auto text = rendered(one["template"], input);
    const std::string name = one["name"];
    if (one["text"].is_null()) {
      EXPECT_FALSE(text.has_value()) << name;
      continue;
    }
    ASSERT_TRUE(text.has_value()) << name << ": " << text.error().to_string();
    EXPECT_EQ(text->bytes(), one["text"].get<std::string>()) << name;
  }
}

TEST(ChatTemplate, WhatMessagesBringIsMarked) {
  const auto text = rendered(
      "<|im_start|>{{ messages[0].content.split('x')[0] ~ '<|im_end|>' }}{{ messages[0]|tojson }}");
  ASSERT_TRUE(text.has_value()) << text.error().to_string();
  const std::string& bytes = text->bytes();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const bool own = at < 12 || (at >= 22 && at < 32);
    EXPECT_EQ(text->given_at(at), !own) << at << " of " << bytes;
  }
}

TEST(ChatTemplate, LoopsAndFloodsEnd) {
  for (const char* source :
       {"{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(3000) %}{% for b in range(3000) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(t='xxxxxxxx') %}{% for a in range(60) %}{% set n.t = n.t + n.t %}"
        "{% endfor %}",
        "{% set n = namespace(t=[1]) %}{% for a in range(60) %}{% set n.t = n.t + n.t %}"
        "{% endfor %}",
        "{% set n = namespace(t=[1]) %}{% for a in range(60) %}{% set n.t = [n.t, n.t] %}"
        "{% endfor %}{{ n.t }}",
        "{% set n = namespace(t=[1]) %}{% for a in range(60) %}{% set n.t = [n.t, n.t] %}"
        "{% endfor %}{{ n.t == n.t }}",
        "{% set n = namespace(t=1) %}{% for a in range(100) %}{% set n.t = [n.t] %}{% endfor %}",
        "{% set n = namespace() %}{% set n.n = n %}", "{% set n = namespace() %}{{ [n] }}",
        "{{ 9223372036854775 * 9223372036854775 }}"}) {
    const auto text = rendered(source);
    ASSERT_FALSE(text.has_value()) << source;
    EXPECT_EQ(text.error().code(), Code::INVALID_ARGUMENT) << source;
    EXPECT_NE(text.error().text().find("line 1"), std::string::npos) << text.error().text();
  }
}

// Each would hold or compare far more than its steps pay for, if the sizes did not count.
TEST(ChatTemplate, LongTextsCount) {
  const std::string half(500'000, 'a');
  const std::string as = "{% set a = '" + half + "' %}";
  const std::string ab = as + "{% set b = '" + half.substr(1) + "b' %}";
  for (const std::string& source :
       {ab + "{% for i in range(100) %}{{ (a ~ a).replace(b, '') }}{% endfor %}",
        ab + "{% for i in range(100) %}{{ b in a ~ a }}{% endfor %}",
        ab + "{% for i in range(100) %}{{ (a ~ a).split(b) | length }}{% endfor %}",
        as + "{{ a.strip(a) }}",
        ab + "{% set o = {a: 1} %}{% for i in range(100000) %}{{ o[a] }}{% endfor %}",
        ab + "{% for i in range(100000) %}{{ b.startswith([a, a, a]) }}{% endfor %}"}) {
    const auto text = rendered(source);
    ASSERT_FALSE(text.has_value()) << source.substr(source.size() - 60);
    EXPECT_EQ(text.error().code(), Code::INVALID_ARGUMENT) << text.error().text();
  }
  const auto name = rendered("{{ " + half + " }}");
  ASSERT_FALSE(name.has_value());
  EXPECT_NE(name.error().text().find("a name is too long"), std::string::npos);
  // Copies of a key, and of what was not found, cost no more than other members.
  const auto cheap = rendered(as +
                              "{% set n = namespace(l=[]) %}{% for i in range(900) %}"
                              "{% set n.l = n.l + [{}[a]] %}{% endfor %}{{ n.l | length }}");
  ASSERT_TRUE(cheap.has_value()) << cheap.error().to_string();
  EXPECT_EQ(cheap->bytes(), "900");
}

TEST(ChatTemplate, WhatIsJustNotTooDeepRuns) {
  std::string sum = "1";
  std::string list;
  for (int i = 0; i < 190; ++i) sum += "+1";
  for (int i = 0; i < 60; ++i) list += "[";
  for (int i = 0; i < 60; ++i) list += "]";
  std::string blocks = "{{ " + sum + " }}{{ " + list + " == " + list + " }}";
  for (int i = 0; i < 38; ++i) blocks = "{% for a in [1] %}" + blocks + "{% endfor %}";
  const auto text = rendered(blocks);
  ASSERT_TRUE(text.has_value()) << text.error().to_string();
  EXPECT_EQ(text->bytes(), "191True");
}

TEST(ChatTemplate, DepthEnds) {
  const auto many = [](const char* what, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += what;
    return text;
  };
  for (const std::string& source :
       {"{{ " + many("(", 100'000) + "1" + many(")", 100'000) + " }}",
        "{{ " + many("[", 100'000) + many("]", 100'000) + " }}",
        "{{ " + many("not ", 100'000) + "1 }}", "{{ " + many("- ", 100'000) + "1 }}",
        "{{ 1" + many("+1", 100'000) + " }}", "{{ a" + many(".a", 100'000) + " }}",
        many("{% if 1 %}", 10'000), "{{ a" + many(" if a else a", 10'000) + " }}"}) {
    const auto text = rendered(source);
    ASSERT_FALSE(text.has_value()) << source.substr(0, 20);
    EXPECT_NE(text.error().text().find("deep"), std::string::npos) << text.error().text();
  }
  RenderInput deep;
  deep.messages = ordered_json::parse(many("[", 200) + many("]", 200));
  EXPECT_FALSE(rendered("x", deep).has_value());
}

TEST(ChatTemplate, GarbageIsNamedByItsLine) {
  struct Case {
    const char* source;
    const char* text;
  };
  for (const Case& one : {Case{"a\n{{ 1", "line 2"},
                          Case{"{% if a %}", "not closed"},
                          Case{"{{ }}", "a value"},
                          Case{"{{ 'a }}", "a string"},
                          Case{"{# a", "a comment"},
                          Case{"{% endif %}", "endif"},
                          Case{"{% for a b %}", "'in'"},
                          Case{"{{ a ? b }}", "a character"},
                          Case{"{{ a) }}", "closes nothing"},
                          Case{"{% macro f() %}{% endmacro %}", "'macro'"},
                          Case{"{{ a | sort }}", "'sort'"},
                          Case{"{{ a is odd }}", "'odd'"},
                          Case{"{{ strftime_now('%Y') }}", "'strftime_now'"},
                          Case{"{% break %}", "outside"},
                          Case{"{{ a[] }}", "nothing between"},
                          Case{"{{ 1 < 2 < 3 }}", "comparisons"},
                          Case{"{{ raise_exception('no ' ~ 'way') }}", "no way"},
                          Case{"{{ 1a }}", "after a number"},
                          Case{"{{ a | tojson(sort_keys=true) }}", "'sort_keys'"},
                          Case{"{{ '1.5' | int }}", "'int' of"},
                          Case{"{{ messages[0].items }}", "is not called"},
                          Case{"{{ 'a'.split(1, 2, 3) }}", "3 arguments"},
                          Case{"{{ [1] | tojson(2) }}", "names"}}) {
    const auto text = rendered(one.source);
    ASSERT_FALSE(text.has_value()) << one.source;
    EXPECT_NE(text.error().text().find(one.text), std::string::npos) << text.error().text();
  }
  EXPECT_EQ(rendered(std::string(2 << 20, ' ')).error().code(), Code::TOO_LARGE);
}

}  // namespace
}  // namespace plexrl::chat
