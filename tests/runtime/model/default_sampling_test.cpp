#include "runtime/model/default_sampling.hpp"
#include "runtime/support/json/json.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

generation_defaults of(const char* text) {
  const auto config = json::document::parse("{}", "config.json");
  const auto generation = json::document::parse(text, "generation_config.json");
  return parse_generation_config(&generation, config);
}

std::string told(const char* text, sampling_convention users) {
  return told_sampling(default_sampling(of(text), users));
}

constexpr auto openai = sampling_convention::openai, local = sampling_convention::local;

} // namespace

TEST_CASE("Where a model names no sampling, local users get llama.cpp's values and users of OpenAI's API its own") {
  for (const char* nothing : {"{}", R"({"do_sample": true, "eos_token_id": 2})"}) {
    CHECK(told(nothing, local) == "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05");
    CHECK(told(nothing, openai) == "temperature 1");
    CHECK(source_of_sampling(of(nothing)) == "defaults, as the model names none");
  }
  CHECK(told(R"({"repetition_penalty": 1.1})", local) ==
        "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, repetition_penalty 1.1");
}

TEST_CASE("A temperature or a filter that a model names holds for everybody, and nothing is added to it") {
  for (const auto users : {openai, local}) {
    CHECK(told(R"({"temperature": 0.6, "top_p": 0.9})", users) == "temperature 0.6, top_p 0.9");
    CHECK(told(R"({"temperature": 1.0})", users) == "temperature 1");
    CHECK(told(R"({"top_k": 64})", users) == "temperature 1, top_k 64");
    CHECK(told(R"({"temperature": 0})", users) == "temperature 0");
  }
  CHECK(source_of_sampling(of(R"({"min_p": 0.1})")) == "generation_config.json");
}
