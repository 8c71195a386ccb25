// Lines of batch files, and where a run goes on.
#include "api/cli/batch_run.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

using namespace troupe;
using namespace troupe::cli;
using troupe::test::fault_of;

namespace {

/// A folder that is removed at the end.
class batch_folder {
public:
  batch_folder() {
    auto name = (std::filesystem::temp_directory_path() / "troupe-batch-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path_ = name;
  }
  ~batch_folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string request_line(const std::string& id) {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})" + "\n";
}

} // namespace

TEST_CASE("a line of a batch names its request, and says what is wrong with it") {
  const auto line = parse_batch_line(request_line("a"));
  CHECK(line.custom_id == "a");
  CHECK(line.url == "/v1/completions");
  CHECK(std::string_view(line.body["prompt"]) == "x");
  const auto wrong = [](const std::string& text) { return fault_of([&] { parse_batch_line(text); }).message; };
  CHECK(wrong("{") != "nothing was wrong");
  CHECK(wrong("[]") != "nothing was wrong");
  CHECK(wrong(R"({"url":"/v1/completions","body":{}})") == "`custom_id` is required");
  CHECK(wrong(R"({"custom_id":"","url":"/v1/completions","body":{}})") == "`custom_id` is required");
  CHECK(wrong(R"({"custom_id":"a","body":{}})") == "`url` is required");
  CHECK(wrong(R"({"custom_id":"a","url":"/v1/completions"})") == "`body` is required");
  CHECK(wrong(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})") ==
        "`method` must be \"POST\", not \"GET\"");
  CHECK(wrong(R"({"custom_id":")" + std::string(600, 'x') + R"(","url":"/v1/completions","body":{}})") ==
        "`custom_id` must have at most 512 bytes");
}

TEST_CASE("answers have the members that OpenAI's have") {
  const auto answered = json::document::parse(answered_line("a", 200, R"({"x":1})"), "it", errc::bad_request);
  CHECK(std::string_view(answered.root()["custom_id"]) == "a");
  CHECK(std::string_view(answered.root()["id"]).starts_with("batch_req_"));
  CHECK(std::int64_t(answered.root()["response"]["status_code"]) == 200);
  CHECK(std::int64_t(answered.root()["response"]["body"]["x"]) == 1);
  CHECK(answered.root()["error"].is_null());
  const auto failed = json::document::parse(failed_line("a", {errc::bad_request, "no", "n"}), "it", errc::bad_request);
  CHECK(std::int64_t(failed.root()["response"]["status_code"]) == 400);
  CHECK(std::string_view(failed.root()["response"]["body"]["error"]["param"]) == "n");
  const auto invalid = json::document::parse(invalid_line("", {errc::bad_request, "no", {}}), "it", errc::bad_request);
  CHECK(invalid.root()["custom_id"].is_null());
  CHECK(invalid.root()["response"].is_null());
  CHECK(std::string_view(invalid.root()["error"]["message"]) == "no");
}

TEST_CASE("a run goes on where its output ends, and not in another's") {
  const batch_folder folder;
  const batch_files files{folder.path() / "in.jsonl", folder.path() / "out.jsonl"};
  CHECK(fault_of([&] { prepare_batch(files); }).code == errc::not_found);
  for (const char* once : {"/dev/null", "/tmp"}) // as what a shell's <(...) names, which can be read once
    CHECK(fault_of([&] { prepare_batch({once, files.out}); }).message.find("not a regular file") != std::string::npos);
  write(files.in, request_line("a") + "\n" + request_line("b") + "not json\n" + request_line("c").substr(0, 70));
  auto state = prepare_batch(files);
  CHECK(state.requests == 4);
  CHECK(state.answered == 0);
  const auto first = answered_line("a", 200, "{}");
  write(files.out, first + answered_line("b", 200, "{}").substr(0, 30));
  state = {}; // which holds the output
  state = prepare_batch(files);
  CHECK(state.requests == 4);
  CHECK(state.answered == 1);
  CHECK(std::filesystem::file_size(files.out) == first.size());
  state = {};
  write(files.out, first + answered_line("b", 200, "{}") + invalid_line("", {errc::bad_request, "no", {}}));
  CHECK(prepare_batch(files).answered == 3);
  write(files.out, answered_line("b", 200, "{}"));
  CHECK(fault_of([&] { prepare_batch(files); }).message.find("line 1 answers another request") != std::string::npos);
}

TEST_CASE("an output that has other lines than answers is left as it is, unless it is to be replaced") {
  const batch_folder folder;
  const batch_files files{folder.path() / "in.jsonl", folder.path() / "out.jsonl"};
  write(files.in, "{}\n" + request_line("b"));
  const auto mine = answered_line("", 400, "{}");
  for (const std::string text : {R"({"notes": "of years"})", "{\"notes\": \"of years\"}\n", "x", "\n\nx\n"}) {
    for (const auto& before : {std::string(), mine}) {
      write(files.out, before + text);
      const auto fault = fault_of([&] { prepare_batch(files); });
      CHECK(fault.code == errc::bad_request);
      CHECK(fault.message.find(" is no answer that this command wrote") != std::string::npos);
      CHECK(std::filesystem::file_size(files.out) == before.size() + text.size());
    }
  }
  CHECK(prepare_batch({files.in, files.out, true}).answered == 0);
  CHECK(!std::filesystem::exists(files.out)); // nothing was written
  for (const std::size_t bytes : {std::size_t(1), std::size_t(9), mine.size() - 1}) {
    write(files.out, mine.substr(0, bytes));
    CHECK(prepare_batch(files).answered == 0);
  }
  write(files.out, mine);
  const auto first = prepare_batch(files);
  CHECK(first.answered == 1);
  CHECK(fault_of([&] { prepare_batch(files); }).message.find("another process is writing it") != std::string::npos);
  CHECK(fault_of([&] {
          prepare_batch({files.in, "/dev/null"});
        }).message.find("not a regular file") != std::string::npos);
}
