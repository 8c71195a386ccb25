#include "tests/simulation/disk_faults.hpp"

#include "runtime/support/fault_injection.hpp"

#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe::simulation {

namespace fs = std::filesystem;

disk_faults::disk_faults(fs::path folder, int refused_every, std::uint64_t seed)
  : folder_(std::move(folder)), refuses_(refused_every > 0), dice_(seed + 5) {
  if (refuses_)
    fault_injection::set({{.kind = "disk",
                           .what = fault_rule::effect::refusal,
                           .every_passages = static_cast<std::uint64_t>(refused_every),
                           .count = 1000,
                           .seed = seed + 1}});
}

disk_faults::~disk_faults() {
  if (refuses_)
    fault_injection::set({});
}

std::string disk_faults::strike() {
  std::error_code failed;
  if (dice_.one_in(8)) {
    fs::remove_all(folder_, failed);
    return "the folder goes";
  }
  std::vector<fs::path> files;
  for (auto each = fs::recursive_directory_iterator(folder_, failed);
       !failed && each != fs::recursive_directory_iterator(); each.increment(failed))
    if (each->path().extension() == ".kv")
      files.push_back(each->path());
  if (files.empty())
    return {};
  const auto& file = files[dice_.next() % files.size()];
  switch (dice_.pick(0, 2)) {
    case 0: fs::remove(file, failed); return "a file goes";
    case 1: fs::resize_file(file, static_cast<std::uintmax_t>(dice_.pick(0, 200)), failed); return "a file is cut";
    default: {
      std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary);
      damaged.seekp(dice_.pick(0, 200));
      damaged.put(static_cast<char>(dice_.next()));
      return "a file is damaged";
    }
  }
}

} // namespace troupe::simulation
