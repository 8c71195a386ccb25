#include "runtime/techniques/steering/steering_library.hpp"

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/techniques/steering/steering_file.hpp"
#include "tests/runtime/checkpoint/gguf_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int steered_layers = 4, steered_width = 2;

/// The sentence of `what` without the file's path.
std::string complaint_about(const std::filesystem::path& file, std::string_view content) {
  write(file, content);
  auto what = failure_of([&] { read_steering(file, steered_layers, steered_width); });
  if (what.starts_with(file.string()))
    what.erase(0, file.string().size());
  return what;
}

std::string one_tensor(const std::string& name, const std::string& type, const std::string& shape, std::size_t bytes) {
  return safetensors("{\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
                       std::to_string(bytes) + "]}}",
                     bytes);
}

/// Layers 1 and 2 of four; `b` only layer 2.
struct two_vectors {
  temp_folder folder;
  steering_library library{steered_layers, steered_width};

  two_vectors() {
    write_steering(folder.path() / "a.safetensors", {{}, {1, 2}, {4, -8}, {}}, "llama");
    write_steering(folder.path() / "b.gguf", {{}, {}, {0.5f, 0.25f}, {}}, "llama");
    library.add("a", folder.path() / "a.safetensors");
    library.add("b", folder.path() / "b.gguf");
  }

  error refused(const std::vector<steering_choice>& choices) const {
    try {
      library.check(choices);
    } catch (const failure& f) {
      return f.what_failed();
    }
    return {};
  }
};

} // namespace

TEST_CASE("Steering files of both formats read as written, but for layer 0 of control vectors") {
  const temp_folder folder;
  const layer_directions all{{1, -2}, {}, {0.1f, 1e-30f}, {3, 4}};
  write_steering(folder.path() / "v.safetensors", all, "llama");
  CHECK(read_steering(folder.path() / "v.safetensors", steered_layers, steered_width) == all);
  write_steering(folder.path() / "v.gguf", all, "llama");
  CHECK(read_steering(folder.path() / "v.gguf", steered_layers, steered_width) ==
        layer_directions{{}, {}, {0.1f, 1e-30f}, {3, 4}});
  const gguf_file file(folder.path() / "v.gguf");
  CHECK(file.metadata().string("general.architecture") == "controlvector");
  CHECK(file.metadata().string("controlvector.model_hint") == "llama");
  CHECK(file.metadata().integer("controlvector.layer_count", 0, 100) == 4);
}

TEST_CASE("Bad steering files are refused in one sentence that names the tensor") {
  const temp_folder folder;
  const auto file = folder.path() / "bad";
  CHECK(complaint_about(file, one_tensor("direction.1", "F32", "[3]", 12)) ==
        ": tensor `direction.1` has the shape [3], expected [2], the model's hidden size");
  CHECK(complaint_about(file, one_tensor("direction.1", "F32", "[1,2]", 8)) ==
        ": tensor `direction.1` has the shape [1, 2], expected [2], the model's hidden size");
  CHECK(complaint_about(file, one_tensor("direction.4", "F32", "[2]", 8)) ==
        ": tensor `direction.4` is for a layer that the model does not have; its layers are 0 to 3");
  CHECK(complaint_about(file, one_tensor("direction.99999999999999999999", "F32", "[2]", 8)) ==
        ": tensor `direction.99999999999999999999` is for a layer that the model does not have; its layers are 0 to 3");
  for (const std::string name : {"layer.1", "direction.", "direction.-1", "direction.1x", "direction.01"})
    CHECK(complaint_about(file, one_tensor(name, "F32", "[2]", 8)) ==
          ": tensor `" + name + "` is not a steering vector: those are named direction.N, where N is the layer");
  CHECK(complaint_about(file, one_tensor("direction.1", "I32", "[2]", 8)) ==
        ": tensor `direction.1` is of type I32, which is not supported for steering vectors");
  CHECK(complaint_about(file, safetensors("{}", 0)) == ": has no tensor direction.N, of layer N");
  auto infinite = one_tensor("direction.1", "F32", "[2]", 8);
  infinite[infinite.size() - 1] = '\x7f', infinite[infinite.size() - 2] = '\x80';
  CHECK(complaint_about(file, infinite) == ": tensor `direction.1` has values that are not finite");
  CHECK(complaint_about(file, gguf_text{{entry("general.architecture", "llama")}, {}, 0}.str()) ==
        ": `general.architecture` is `llama`, expected `controlvector`");
  CHECK(complaint_about(file, gguf_text{{}, {}, 0}.str()) ==
        ": `general.architecture` is missing, expected `controlvector`");
  CHECK(complaint_about(
          file,
          gguf_text{{entry("general.architecture", "controlvector")}, {tensor_entry("direction.2", {3}, 0, 0)}, 32}
            .str()) == ": tensor `direction.2` has the shape [3], expected [2], the model's hidden size");
  CHECK_FALSE(complaint_about(file, "short").empty());
  CHECK_FALSE(failure_of([&] { read_steering(folder.path() / "none", 1, 1); }).empty());
}

TEST_CASE("Halves and bf16 are steering vectors, too") {
  const temp_folder folder;
  for (const auto& [type, one] : {std::pair{"F16", std::uint16_t{0x3c00}}, {"BF16", std::uint16_t{0x3f80}}}) {
    auto file = one_tensor("direction.0", type, "[2]", 4);
    file.replace(file.size() - 4, 4, packed(one) + packed(one));
    write(folder.path() / "v", file);
    CHECK(read_steering(folder.path() / "v", steered_layers, steered_width) == layer_directions{{1, 1}, {}, {}, {}});
  }
}

TEST_CASE("A request's steering is the sum of its choices, within their layers") {
  const two_vectors v;
  CHECK(v.library.names() == std::vector<std::string>{"a", "b"});
  const auto whole = v.library.combine(std::vector<steering_choice>{{"a", 2}});
  REQUIRE(whole);
  CHECK(whole->layers == layer_directions{{}, {2, 4}, {8, -16}, {}});
  const auto part = v.library.combine(std::vector<steering_choice>{{"a", 1, 2, 3}, {"b", -2}});
  REQUIRE(part);
  CHECK(part->layers == layer_directions{{}, {}, {3, -8.5f}, {}});
  CHECK(part->checksum != whole->checksum);
  CHECK(v.library.combine(std::vector<steering_choice>{{"a", 1, 2, {}}, {"b", -2, 0, 3}}) == part); // the same
  CHECK(v.library.combine(std::vector<steering_choice>{{"a", 2, 1, 2}}) == whole);
  CHECK(v.library.combine(std::vector<steering_choice>{{"a", 1, 3, 3}}) == nullptr);
  CHECK(v.library.combine(std::vector<steering_choice>{{"a", 0}}) == nullptr);
  CHECK(v.library.combine({}) == nullptr);
}

TEST_CASE("A sum that nobody uses is forgotten, and its checksum comes back with it") {
  const two_vectors v;
  const auto id_of = [&](float strength) {
    return v.library.combine(std::vector<steering_choice>{{"a", strength}})->checksum;
  };
  const auto first = id_of(1);
  CHECK(id_of(2) != first);
  CHECK(id_of(1) == first);
  std::set<std::uint64_t> ids;
  for (int i = 1; i <= 3000; ++i)
    ids.insert(id_of(static_cast<float>(i) / 4));
  CHECK(ids.size() == 3000);
  const auto held = v.library.combine(std::vector<steering_choice>{{"b"}});
  for (int i = 1; i <= 3000; ++i)
    id_of(static_cast<float>(i) / 8);
  CHECK(v.library.combine(std::vector<steering_choice>{{"b"}}) == held);
}

TEST_CASE("Steering that cannot be is refused in one sentence that names the field") {
  const two_vectors v;
  const auto check = [&](const std::vector<steering_choice>& choices, const std::string& field,
                         const std::string& message) {
    const auto e = v.refused(choices);
    CHECK(e.code == errc::bad_request);
    CHECK(e.param == field);
    CHECK(e.message == message);
  };
  check({{"a"}, {"c"}}, "steering[1].name", "`steering[1].name` must be one of \"a\", \"b\", not \"c\"");
  check({{"a", 1001}}, "steering[0].strength", "`steering[0].strength` must be between -1000 and 1000");
  check({{"a", NAN}}, "steering[0].strength", "`steering[0].strength` must be between -1000 and 1000");
  check({{"a", 1, 4, {}}}, "steering[0].first_layer",
        "`steering[0].first_layer` must be a layer of the model, 0 to 3, not 4");
  check({{"a", 1, {}, -1}}, "steering[0].last_layer",
        "`steering[0].last_layer` must be a layer of the model, 0 to 3, not -1");
  check({{"a", 1, 2, 1}}, "steering[0].first_layer",
        "`steering[0].first_layer` must be at most `last_layer`, which is 1, not 2");
  check(std::vector<steering_choice>(17, {"a"}), "steering", "`steering` may have at most 16 entries, not 17");
  two_vectors large;
  write_steering(large.folder.path() / "c", {{3e38f, 0}, {}, {}, {}}, "");
  large.library.add("c", large.folder.path() / "c");
  CHECK(failure_of([&] {
          large.library.combine(std::vector<steering_choice>{{"c", 2}});
        }) == "`steering` adds values to layer 0 that are not finite");
  CHECK(failure_of([&] { large.library.add("c", large.folder.path() / "c"); }) ==
        "there are two steering vectors named `c`");
  CHECK(failure_of([&] { large.library.add("", large.folder.path() / "c"); }) ==
        "the name of a steering vector must have 1 to 64 bytes, not 0");
}
