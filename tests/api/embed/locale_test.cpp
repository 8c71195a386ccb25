// The engine in a program that has a locale of its own.
#include "tests/api/embed/small_engine.hpp"
#include "tests/foreign_locale.hpp"

#include <filesystem>
#include <fstream>
#include <mutex>

#include <unistd.h>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// What an engine answers and says of itself.
std::string said_by_engine() {
  const auto chat = std::filesystem::temp_directory_path() /
    ("troupe-locale-test-" + std::to_string(getpid()) + ".txt");
  std::ofstream(chat) << "{{ '%.2f' % (0.5 + '1.25' | float) }}{{ 2.25 | round(1) }}"
                         "{% for m in messages %}{{ m.content }}{% endfor %}";
  auto options = small();
  options.chat_template = chat.string();
  options.compute.attention_threshold = 0.001f;
  std::mutex saying;
  std::string said;
  const auto e = engine::start(options, [&](const load_status& status) {
    const std::lock_guard lock(saying);
    if (status.line.find("attention_threshold") != status.line.npos)
      said += status.line + '|';
  });
  question asked{.messages = {{"user", "Once upon a time"}}, .max_tokens = 8};
  asked.sampling = sampling_params{.temperature = 0.7f, .top_p = 0.9f, .seed = 3};
  const auto answer = e.generate(asked);
  e.stop();
  std::filesystem::remove(chat);
  said += answer.text + '|' + std::to_string(answer.done.prompt_tokens) + '|';
  try {
    sampling_params hot;
    hot.temperature = 1234.5f;
    hot.validate(100);
  } catch (const failure& f) {
    said += f.what();
  }
  return said;
}

} // namespace

TEST_CASE("An engine answers the same whatever the program's locale") {
  const auto expected = said_by_engine();
  CHECK(expected.find("not 1234.5.") != std::string::npos);
  for (const auto* name : test::foreign_locales) {
    const test::foreign_locale chosen(name);
    CHECK(said_by_engine() == expected);
  }
}
