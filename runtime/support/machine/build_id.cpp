#include "runtime/support/machine/build_id.hpp"

#include "runtime/support/text/hex.hpp"

#include <cstddef>
#include <cstring>
#include <string_view>

#include <elf.h>
#include <link.h>

namespace troupe {

namespace {

struct ids_so_far {
  std::string text;
  bool has_program = false; // which comes first, without a name
};

/// Adds the ids among a segment's notes. A note is (size of the name, of the content, type), the name, the content, each
/// padded to 4 bytes; where it should be 8, their sizes are such that it makes no difference.
void add_ids_in(const char* notes, std::size_t bytes, std::string& to) {
  const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes, sizeof head);
    const auto name = sizeof head, content = name + padded(head.n_namesz), next = content + padded(head.n_descsz);
    if (next > bytes)
      return;
    if (head.n_type == NT_GNU_BUILD_ID && std::string_view(notes + name, head.n_namesz) == std::string_view("GNU", 4))
      for (std::size_t i = 0; i < head.n_descsz; ++i)
        append_hex(to, static_cast<unsigned char>(notes[content + i]));
    notes += next;
    bytes -= next;
  }
}

int add_ids_of(dl_phdr_info* part, std::size_t, void* to) {
  auto& ids = *static_cast<ids_so_far*>(to);
  const std::string_view path = part->dlpi_name ? part->dlpi_name : "";
  const bool ours = ids.has_program ? path.substr(path.rfind('/') + 1).starts_with("troupe") : path.empty();
  ids.has_program = true;
  for (int i = 0; ours && i < part->dlpi_phnum; ++i)
    if (const auto& segment = part->dlpi_phdr[i]; segment.p_type == PT_NOTE)
      add_ids_in(reinterpret_cast<const char*>(part->dlpi_addr + segment.p_vaddr), segment.p_memsz, ids.text);
  return 0;
}

} // namespace

std::string build_id() {
  ids_so_far ids;
  ::dl_iterate_phdr(add_ids_of, &ids);
  return ids.text;
}

} // namespace troupe
