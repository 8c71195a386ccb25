#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::test {

namespace {

std::filesystem::path make_folder() {
  auto name = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
  if (!mkdtemp(name.data()))
    throw std::system_error(errno, std::generic_category(), "mkdtemp");
  return name;
}

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator(in), {}};
}

} // namespace

strings operator+(strings a, const strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string only_line(const std::string& text) {
  CHECK(text.ends_with('\n'));
  CHECK(text.find('\n') == text.size() - 1);
  return text.substr(0, text.size() - 1);
}

temporary_folder::temporary_folder() : path(make_folder()) {}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string temporary_folder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path / name) << text;
  return (path / name).string();
}

program::program(const std::string& file, strings arguments, const std::string& typed) {
  const auto in = files_.write("in", typed), out = files_.write("out", ""), err = files_.write("err", "");
  arguments.insert(arguments.begin(), file);
  std::vector<char*> pointers;
  for (auto& a : arguments)
    pointers.push_back(a.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_APPEND, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_APPEND, 0);
  const int failed = posix_spawn(&process_, file.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    throw std::system_error(failed, std::generic_category(), file);
}

program::~program() {
  if (process_ > 0) {
    signal(SIGKILL);
    wait();
  }
}

bool program::prints(const std::string& text) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (std::chrono::steady_clock::now() < until) {
    const bool last = ended();
    if (out().find(text) != std::string::npos || err().find(text) != std::string::npos)
      return true;
    if (last)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

std::string program::out() const { return contents(files_.path / "out"); }

std::string program::err() const { return contents(files_.path / "err"); }

void program::signal(int number) const { kill(process_, number); }

bool program::ended() const {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

outcome program::wait() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  for (; !ended(); std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (std::chrono::steady_clock::now() > until)
      signal(SIGKILL);
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR)
    ;
  process_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
}

outcome run_troupe(strings arguments, const std::string& typed) {
  return program(TROUPE_PROGRAM, std::move(arguments), typed).wait();
}

} // namespace troupe::test
