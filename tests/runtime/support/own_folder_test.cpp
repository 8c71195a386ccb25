#include "runtime/support/files/own_folder.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

mode_t mode_of(const fs::path& path) {
  struct stat s {};
  REQUIRE(stat(path.c_str(), &s) == 0);
  return s.st_mode & 07777;
}

} // namespace

TEST_CASE("A folder of ours is made for its owner alone, and what is made in it, too") {
  const temp_folder folder;
  const own_folder ours(folder.path() / "a" / "b");
  CHECK(mode_of(folder.path() / "a" / "b") == 0700);
  CHECK(ours.names().empty());
  const auto below = ours.within("c", true);
  REQUIRE(below);
  CHECK(mode_of(below->path()) == 0700);
  const auto made = below->create("d");
  REQUIRE(made);
  CHECK(write_whole(made, "text", 4));
  CHECK(mode_of(below->path() / "d") == 0600);
  CHECK(!below->create("d"));
  CHECK(errno == EEXIST);
  char text[5] = {};
  const auto opened = ours.open("c/d");
  CHECK(read_whole(opened, text, 4));
  CHECK(std::string(text) == "text");
  CHECK(!read_whole(opened, text, 1));
  CHECK(errno == 0);
  CHECK(below->remove("d"));
  CHECK(!ours.open("c/d"));
  CHECK(errno == ENOENT);
}

TEST_CASE("Links, folders and files that others may write to are not ours") {
  const temp_folder folder;
  const own_folder ours(folder.path());
  write(folder.path() / "file", "text");
  fs::create_symlink("file", folder.path() / "link");
  CHECK(!ours.open("link"));
  CHECK(errno == ELOOP);
  fs::permissions(folder.path() / "file", fs::perms::others_write, fs::perm_options::add);
  CHECK(!ours.open("file"));
  CHECK(errno == EPERM);
  fs::create_directory(folder.path() / "sub");
  CHECK(!ours.open("sub"));
  fs::create_directory_symlink("sub", folder.path() / "to-sub");
  CHECK(!ours.within("to-sub", true));
  fs::permissions(folder.path() / "sub", fs::perms::group_write, fs::perm_options::add);
  CHECK(!ours.within("sub", true));
  CHECK(errno == EPERM);
}

TEST_CASE("The secret is the same for all who open the folder, and for nobody else") {
  const temp_folder folder;
  const auto first = own_folder(folder.path() / "one").secret();
  CHECK(own_folder(folder.path() / "one").secret() == first);
  CHECK(own_folder(folder.path() / "two").secret() != first);
  CHECK(mode_of(folder.path() / "one" / "secret") == 0600);
  CHECK(own_folder(folder.path() / "one").names() == std::vector<std::string>{"secret"});
  fs::remove(folder.path() / "one" / "secret");
  fs::create_symlink(folder.path() / "two" / "secret", folder.path() / "one" / "secret");
  CHECK_THROWS_AS(own_folder(folder.path() / "one").secret(), failure);
}

TEST_CASE("An unfinished file that is another's, or has another name, is not written to; nor is what is no file") {
  const temp_folder folder;
  const auto file = folder.path() / "out", beside = folder.path() / ".out.troupe-partial";
  const auto refusal = [&] { return failure_of([&] { atomic_file::begin(file, 4); }); };
  write(folder.path() / "precious", "precious");
  fs::create_hard_link(folder.path() / "precious", beside);
  CHECK(refusal().find("is in the way: it is not a file of this user's alone") != std::string::npos);
  fs::remove(beside);
  fs::create_symlink(folder.path() / "precious", beside);
  CHECK(refusal().find("cannot be written: ") != std::string::npos);
  fs::remove(beside);
  CHECK(content(folder.path() / "precious") == "precious");
  if (geteuid() == 0) {
    write(beside, "theirs");
    REQUIRE(chown(beside.c_str(), 12345, 12345) == 0);
    CHECK(refusal().find("is in the way") != std::string::npos);
    CHECK(content(beside) == "theirs");
    fs::remove(beside);
  }
  CHECK(failure_of([] { atomic_file::begin("/dev/null", 4); }).find("not a regular file") != std::string::npos);
  CHECK(write_file(file, "text"));
  CHECK(content(file) == "text");
}
