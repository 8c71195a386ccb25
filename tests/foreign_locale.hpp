// The locale of a program that embeds the engine, for C's functions and for streams, until the end of its scope. Made by
// `localedef`, of Debian's packages libc-bin and locales.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <string>

#include <unistd.h>

// glibc's newlocale never frees its copy of LOCPATH; LeakSanitizer asks for this list.
extern "C" [[gnu::used]] inline const char* __lsan_default_suppressions() { return "leak:argz_add_sep"; }

namespace troupe::test {

/// German has a decimal comma and names of its own for months, Turkish another `I`.
inline constexpr std::array foreign_locales{"de_DE", "tr_TR"};

class foreign_locale {
public:
  explicit foreign_locale(const std::string& name)
    : folder_(std::filesystem::temp_directory_path() / ("troupe-locale-test-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    const auto full = name + ".UTF-8";
    const auto made = "localedef -i " + name + " -f UTF-8 " + (folder_ / full).string();
    REQUIRE_MESSAGE(std::system(made.c_str()) == 0, made);
    ::setenv("LOCPATH", folder_.c_str(), 1);
    std::locale::global(std::locale(full));
    REQUIRE(std::string(std::localeconv()->decimal_point) == ",");
  }
  ~foreign_locale() {
    std::locale::global(std::locale::classic());
    ::unsetenv("LOCPATH");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  foreign_locale(const foreign_locale&) = delete;
  foreign_locale& operator=(const foreign_locale&) = delete;

private:
  std::filesystem::path folder_;
};

} // namespace troupe::test
