// Where cuBLASLt is looked for, in a made-up file system.
#include "kernels/cuda/library_places.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <map>

#include <unistd.h>

using namespace troupe::kernels::cuda;
namespace fs = std::filesystem;

namespace {

const std::string wanted_library = "libcublasLt.so.13";

/// A folder with empty files, and an environment.
struct made_up_machine {
  fs::path root = fs::temp_directory_path() / ("troupe-library-places-" + std::to_string(::getpid()));
  std::map<std::string, std::string> variables;

  made_up_machine() { fs::create_directories(root); }
  ~made_up_machine() { fs::remove_all(root); }

  std::string add(const std::string& file) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file).flush();
    return (root / file).string();
  }

  std::vector<std::string> places(const std::string& program = "bundle") const {
    const auto environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    return library_places(wanted_library, 13, {root / program, environment, root});
  }
};

} // namespace

TEST_CASE("a library is asked of the loader alone where no other place has it") {
  const made_up_machine machine;
  CHECK(machine.places() == std::vector<std::string>{wanted_library});
}

TEST_CASE(
  "a library is looked for beside the program, by the loader, in toolkits, then in wheels of its major version") {
  made_up_machine machine;
  const auto wheel = machine.add("home/.local/lib/python3.11/site-packages/nvidia/cu13/lib/" + wanted_library);
  machine.add("home/.local/lib/python3.11/site-packages/nvidia/cu12/lib/libcublasLt.so.12");
  const auto active = machine.add("venv/lib/python3.12/site-packages/nvidia/cublas/lib/" + wanted_library);
  const auto of_system = machine.add("usr/local/lib/python3.10/dist-packages/nvidia/cu13/lib/" + wanted_library);
  const auto newer_python = machine.add("usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib/" + wanted_library);
  const auto toolkit = machine.add("usr/local/cuda-13.0/targets/x86_64-linux/lib/" + wanted_library);
  const auto home = machine.add("elsewhere/lib64/" + wanted_library);
  const auto beside = machine.add("bundle/" + wanted_library);
  machine.add("usr/local/cuda-12.9/lib64/libcublasLt.so.12");
  fs::create_directories(machine.root / "usr/local/cuda/lib64" / wanted_library); // a folder, no library
  machine.variables = {{"CUDA_HOME", (machine.root / "elsewhere").string()},
                       {"CUDA_PATH", (machine.root / "elsewhere").string()}, // the same again
                       {"VIRTUAL_ENV", (machine.root / "venv").string()},
                       {"HOME", (machine.root / "home").string()}};
  CHECK(machine.places() ==
        std::vector<std::string>{beside, wanted_library, home, toolkit, active, wheel, newer_python, of_system});
}

TEST_CASE("a file that the user names is the only place, even if it does not exist") {
  made_up_machine machine;
  machine.add("bundle/" + wanted_library);
  machine.variables["TROUPE_CUBLASLT"] = "/nowhere/libcublasLt.so.13";
  CHECK(machine.places() == std::vector<std::string>{"/nowhere/libcublasLt.so.13"});
}
