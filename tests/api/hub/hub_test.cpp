// What a client of the hub decides without a network: addresses, listings, choices, checksums, and the cache's layout.
#include "api/hub/digest.hpp"
#include "api/hub/fetch.hpp"
#include "api/hub/repository.hpp"
#include "api/hub/store.hpp"
#include "api/hub/url.hpp"
#include "runtime/import/local_models.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cstdlib>
#include <thread>

using namespace troupe;
using namespace troupe::hub;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

std::string listing(const std::string& siblings) {
  return R"({"id":"org/name","sha":"0123456789abcdef0123456789abcdef01234567","siblings":[)" + siblings + "]}";
}

std::string entry(const std::string& path, int size = 3) {
  return R"({"rfilename":")" + path + R"(","size":)" + std::to_string(size) + R"(,"blobId":")" + std::string(40, 'a') +
    "\"}";
}

repository repository_of(const std::vector<std::string>& paths) {
  repository result{"0123", {}};
  for (const auto& path : paths)
    result.files.push_back({path, 1, std::string(40, 'a')});
  return result;
}

std::vector<std::string> selected(const std::vector<std::string>& paths, const std::string& format = {}) {
  std::vector<std::string> result;
  for (const auto& file : select_files(repository_of(paths), "org/name", format))
    result.push_back(file.path);
  return result;
}

class set_variable {
public:
  set_variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~set_variable() { unsetenv(name_); }
  set_variable(const set_variable&) = delete;
  set_variable& operator=(const set_variable&) = delete;

private:
  const char* name_;
};

} // namespace

TEST_CASE("addresses are parsed, and what could smuggle a line into a request is refused") {
  const auto simple = parse_url("https://huggingface.co/a/b?c#d");
  CHECK(simple.tls);
  CHECK(simple.host == "huggingface.co");
  CHECK(simple.port == "443");
  CHECK(simple.target == "/a/b?c");
  CHECK(simple.authority() == "huggingface.co");
  const auto local = parse_url("http://user:p%40ss@[::1]:8080");
  CHECK(local.host == "::1");
  CHECK(local.origin() == "http://[::1]:8080");
  CHECK(local.user == "user:p@ss");
  CHECK(local.target == "/");
  CHECK(parse_url("http://h?x").target == "/?x");
  for (const char* wrong :
       {"", "huggingface.co", "ftp://a", "https:/a", "https://", "http://a:", "http://a:b", "http://a:123456",
        "http://a b/", "http://a/\r\nX: y", "http://[::1", "http://[::1]x", "http://a\x7f/", "http://ä/"})
    CHECK_MESSAGE(!failure_of([&] { parse_url(wrong); }).empty(), wrong);
}

TEST_CASE("redirects lead where browsers would go") {
  const auto base = parse_url("https://hub/api/models/x?blobs=true");
  CHECK(resolve(base, "/other").origin() + resolve(base, "/other").target == "https://hub/other");
  CHECK(resolve(base, "near?y").target == "/api/models/near?y");
  CHECK(resolve(base, "//cdn/z").origin() == "https://cdn");
  CHECK(resolve(base, "http://cdn:81/z").origin() == "http://cdn:81");
  CHECK(!failure_of([&] { resolve(base, "/a b"); }).empty());
  CHECK(escaped_path("a b/ü?#%.json") == "a%20b/%C3%BC%3F%23%25.json");
}

TEST_CASE("proxies are those of the environment, except for hosts that it excepts") {
  const auto secure = parse_url("https://huggingface.co/"), plain = parse_url("http://127.0.0.1:80/");
  CHECK(!proxy_for(secure));
  const set_variable https("https_proxy", "proxy.local:3128"), all("ALL_PROXY", "http://u:p@other:1");
  CHECK(proxy_for(secure)->origin() == "http://proxy.local:3128");
  CHECK(proxy_for(plain)->user == "u:p");
  const set_variable none("no_proxy", "127.0.0.1, .co");
  CHECK(!proxy_for(secure));
  CHECK(!proxy_for(plain));
  CHECK(proxy_for(parse_url("https://notco/")).has_value());
  const set_variable wrong("https_proxy", "https://proxy");
  CHECK(failure_of([] { proxy_for(parse_url("https://a/")); }).find("not supported") != std::string::npos);
}

TEST_CASE("a listing gives names, sizes and checksums, also where the server leaves some out") {
  const auto large = R"({"rfilename":"model.safetensors","size":9,"blobId":")" + std::string(40, 'b') +
    R"(","lfs":{"sha256":")" + std::string(64, 'c') + R"(","size":7,"pointerSize":134}})";
  const auto read = parse_repository(listing(entry("config.json") + "," + large + R"(,{"rfilename":"x/y"})"), "n");
  CHECK(read.commit == "0123456789abcdef0123456789abcdef01234567");
  CHECK(read.files ==
        std::vector<remote_file>{{"config.json", 3, std::string(40, 'a')},
                                 {"model.safetensors", 7, std::string(64, 'c')},
                                 {"x/y", std::nullopt, ""}});
}

TEST_CASE("hostile and broken listings are refused") {
  const auto refused = [](const std::string& text) { return failure_of([&] { parse_repository(text, "the hub"); }); };
  for (const char* path :
       {"../x", "/etc/passwd", "a//b", "a/../b", "a/", "", "./a", "a\\\\b", "a\\u0000b", "a\\u001b[2J"})
    CHECK_MESSAGE(refused(listing(entry(path))).find("impossible name") != std::string::npos, path);
  CHECK(refused(listing(entry(std::string(600, 'a')))).find("impossible name") != std::string::npos);
  CHECK(refused(listing(entry("a") + "," + entry("a"))).ends_with("lists `a` twice"));
  CHECK(refused(listing(entry("a", -1))).find("`size`") != std::string::npos);
  CHECK(refused(R"({"sha":"../x","siblings":[]})").find("`sha`") != std::string::npos);
  CHECK(refused(listing(R"({"rfilename":"a","blobId":"../../x"})")).find("impossible checksum") != std::string::npos);
  for (const char* wrong : {"", "<html>", "[]", "{}", R"({"sha":"0123"})", R"({"sha":"0123","siblings":{}})",
                            R"({"sha":"0123","siblings":[1]})", R"({"sha":1,"siblings":[]})"})
    CHECK_MESSAGE(refused(wrong).starts_with("the hub"), wrong);
}

TEST_CASE("names of models may have a format, and be pasted as addresses") {
  const auto read = [](std::string_view text) {
    const auto is = parse_model_request(text, "http://mirror");
    return is.id + "|" + is.format;
  };
  CHECK(read("org/name") == "org/name|");
  CHECK(read("org/name:Q4_K_M") == "org/name|Q4_K_M");
  CHECK(read("https://huggingface.co/org/name/") == "org/name|");
  CHECK(read("hf.co/org/name:q8_0") == "org/name|q8_0");
  CHECK(read("http://mirror/org/name") == "org/name|");
  CHECK(read("org/name:sub/model-Q4_0.gguf") == "org/name|sub/model-Q4_0.gguf");
  for (const char* wrong : {"", "name", "org/name:", "a/b/c", "../x", "org/name:../x", "https://huggingface.co/",
                            "https://other/org/name", "org/na me"})
    CHECK_MESSAGE(
      failure_of([&] { parse_model_request(wrong, "http://mirror"); }).find("ORG/NAME") != std::string::npos, wrong);
  CHECK(failure_of([] { parse_model_request("a\xff", "http://mirror"); }).starts_with("`a\\xff` is not a model"));
  CHECK(failure_of([] { parse_url("a\xff"); }).starts_with("`a\\xff` is not an address"));
  CHECK(is_revision("refs/pr/1"));
  for (const char* wrong : {"", "../x", "-x", "a/../b", "a b", "/a"})
    CHECK_MESSAGE(!is_revision(wrong), wrong);
}

TEST_CASE("of a repository of safetensors, what a model is read from is selected") {
  const std::vector<std::string> wanted{"LICENSE",           "config.json",    "merges.txt",
                                        "model.safetensors", "tokenizer.json", "1_Pooling/config.json"};
  auto all = wanted;
  for (const char* other :
       {"README.md", "pytorch_model.bin", "onnx/model.onnx", "model.fp16.safetensors", "consolidated.safetensors",
        "original/params.json", "picture.png", "model.gguf", "train.py"})
    all.emplace_back(other);
  CHECK(selected(all) == wanted);
  CHECK(selected({"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "consolidated.safetensors"})
          .size() == 4);
}

TEST_CASE("of a repository of GGUF files, one model is selected, with all of its parts") {
  const std::vector<std::string> all{"name-Q2_K.gguf",
                                     "name-Q4_K_M.gguf",
                                     "name-UD-Q4_K_XL.gguf",
                                     "Q8_0/name-Q8_0-00001-of-00002.gguf",
                                     "Q8_0/name-Q8_0-00002-of-00002.gguf",
                                     "mmproj-F16.gguf",
                                     "mtp-name-Q8_0.gguf",
                                     "config.json"};
  CHECK(selected(all) == std::vector<std::string>{"name-Q4_K_M.gguf"});
  CHECK(selected(all, "q2_k") == std::vector<std::string>{"name-Q2_K.gguf"});
  CHECK(selected(all, "UD-Q4_K_XL") == std::vector<std::string>{"name-UD-Q4_K_XL.gguf"});
  CHECK(selected(all, "name-Q2_K") == std::vector<std::string>{"name-Q2_K.gguf"});
  CHECK(selected(all, "Q8_0") ==
        std::vector<std::string>{"Q8_0/name-Q8_0-00001-of-00002.gguf", "Q8_0/name-Q8_0-00002-of-00002.gguf"});
  CHECK(selected({"only.gguf"}) == std::vector<std::string>{"only.gguf"});
  CHECK(selected({"config.json", "model.safetensors", "name-Q8_0.gguf"}, "Q8_0") ==
        std::vector<std::string>{"name-Q8_0.gguf"});
  const auto refused = [](const std::vector<std::string>& paths, const std::string& format) {
    return failure_of([&] { selected(paths, format); });
  };
  // A format is never taken for a longer one that begins like it.
  CHECK(refused(all, "UD-Q4_K_X") == "org/name has no `UD-Q4_K_X`; there are Q2_K, Q4_K_M, UD-Q4_K_XL, Q8_0");
  CHECK(refused({"a-Q8_0.gguf", "b-Q8_0.gguf"}, "Q8_0") ==
        "org/name has several such models; name one of org/name:a-Q8_0, org/name:b-Q8_0");
  CHECK(refused({"a-Q8_0-00001-of-00002.gguf"}, "").find("there is no a-Q8_0-00002-of-00002.gguf") !=
        std::string::npos);
  CHECK(refused({"pytorch_model.bin", "config.json"}, "").find("PyTorch's format") != std::string::npos);
  CHECK(refused({}, "").find("neither a checkpoint of safetensors nor GGUF files") != std::string::npos);
}

TEST_CASE("checksums are those of sha256sum and git hash-object") {
  digest sum;
  sum.add("ab");
  sum.add("c");
  CHECK(sum.finish() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  digest blob(6);
  blob.add("hello\n");
  CHECK(blob.finish() == "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST_CASE("a store keeps a partial file for the next try, and its links lead to blobs") {
  const temp_folder folder;
  const repository_store store(folder.path(), "org/name", "0123");
  {
    const auto partial = store.begin("abcd");
    partial->append("hel");
    CHECK(partial->size() == 3);
  }
  const auto partial = store.begin("abcd");
  CHECK(partial->size() == 3);
  partial->append("lo");
  std::string there;
  partial->read([&](std::string_view bytes) { there += bytes; });
  CHECK(there == "hello");
  partial->commit();
  store.link("sub/file.txt", "abcd");
  store.link("sub/file.txt", "abcd");
  store.name_version("main");
  store.name_version("refs/pr/1");
  store.name_version("0123");
  const auto repository = folder.path() / "models--org--name";
  CHECK(content(repository / "snapshots/0123/sub/file.txt") == "hello");
  CHECK(fs::read_symlink(repository / "snapshots/0123/sub/file.txt") == "../../../blobs/abcd");
  CHECK(content(repository / "refs/main") == "0123");
  CHECK(content(repository / "refs/refs/pr/1") == "0123");
  CHECK(!fs::exists(repository / "refs/0123"));
  CHECK(content(folder.path() / "CACHEDIR.TAG").starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
  std::vector<std::string> left;
  for (const auto& file : fs::recursive_directory_iterator(repository))
    if (!file.is_directory())
      left.push_back(file.path().lexically_relative(repository).string());
  CHECK(left.size() == 4);
}

TEST_CASE("a blob that one pull holds makes another wait") {
  const temp_folder folder;
  const repository_store store(folder.path(), "org/name", "0123");
  bool waited = false;
  auto held = store.lock("abcd", [&] { waited = true; });
  CHECK(!waited);
  std::jthread other([&] {
    const auto mine = store.lock("abcd", [&] {
      waited = true;
      held.reset(); // as the other one would, later
    });
  });
  other.join();
  CHECK(waited);
}
