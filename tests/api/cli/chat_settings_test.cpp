#include "api/cli/chat_settings.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::cli;

namespace {

std::string refusal(chat_settings& settings, std::string_view words) {
  try {
    settings.set(words);
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

model_info silent_model() {
  model_info model;
  model.max_context = 2048;
  return model;
}

} // namespace

TEST_CASE("A chat's settings are the sampling flags by their names, and those that other programs use") {
  sampling_options given;
  given.values.max_tokens = sampling_fields::most_int;
  chat_settings settings(given, "Be brief.");
  const auto model = silent_model();
  CHECK(settings.told(model) ==
        "sampling: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05 (defaults, as the model "
        "names none)\nmax-tokens: the rest of the context, which has 2048\nsystem: Be brief.\n");
  settings.set("temperature 0.5");
  settings.set("top_p  0.9");
  settings.set("parameter num_predict 7");
  settings.set("system \"Answer in rhyme.\"");
  settings.set("stop \"###\"");
  CHECK(settings.told(model) ==
        "sampling: temperature 0.5, top_p 0.9 as given; top_k 40, min_p 0.05 (defaults, as the model names none)\n"
        "max-tokens: 7\nstop: ###\nsystem: Answer in rhyme.\n");
  CHECK(settings.sampling().stop == std::vector<std::string>{"###"});
  settings.set("temp default");
  settings.set("max-tokens default");
  settings.set("system default");
  CHECK(settings.sampling().over(model.defaults).temperature == 0.8f);
  CHECK(settings.sampling().values.max_tokens == sampling_fields::most_int);
  CHECK(settings.system() == "Be brief.");
  settings.set("ignore-eos true");
  CHECK(settings.sampling().values.ignore_eos);
}

TEST_CASE("A setting that is wrong is refused by its name and changes nothing") {
  const sampling_options given;
  chat_settings settings(given, "");
  settings.set("seed 7");
  CHECK(refusal(settings, "temprature 1") ==
        "there is no `temprature` to set within a chat; did you mean `temperature`?");
  CHECK(refusal(settings, "num_ctx 4096") ==
        "there is no `num-ctx` to set within a chat; `troupe chat --max-context` begins another one with it");
  CHECK(refusal(settings, "frobnicate 1").find("`troupe chat --help-all`") != std::string::npos);
  CHECK(refusal(settings, "temperature hot") == "--temperature: must be a number from 0 to 2, found `hot`");
  CHECK(refusal(settings, "temperature").starts_with("/set takes a name and a value"));
  CHECK(refusal(settings, " ").starts_with("/set takes a name and a value"));
  CHECK(!refusal(settings, "mirostat 1").empty());
  CHECK(settings.sampling().seed == 7);
  CHECK(settings.sampling().given.empty());
}
