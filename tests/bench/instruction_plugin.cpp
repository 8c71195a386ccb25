// A plugin of QEMU's user emulation that counts the instructions between two marks of instruction_cases.cpp, and prints
// "CASE COUNT" lines to stderr. Debian has no header of plugins: these are the declarations of version 1 that it needs
// (QEMU 6.0 and later, docs/devel/tcg-plugins).
#include <cstdint>
#include <cstdio>

extern "C" {

using qemu_plugin_id_t = std::uint64_t;
struct qemu_plugin_tb;
struct qemu_info_t;
enum qemu_plugin_op { qemu_plugin_inline_add_u64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb*, qemu_plugin_op, void* to, std::uint64_t what);
std::size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t,
                                          void (*)(qemu_plugin_id_t, unsigned cpu, std::int64_t number, std::uint64_t,
                                                   std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                                                   std::uint64_t, std::uint64_t, std::uint64_t));

[[gnu::visibility("default")]] int qemu_plugin_version = 1;
}

namespace {

constexpr std::int64_t mark = 0x7401; // as in instruction_cases.cpp
std::uint64_t executed = 0, begun = 0;
bool counting = false;

void translated(qemu_plugin_id_t, qemu_plugin_tb* block) {
  qemu_plugin_register_vcpu_tb_exec_inline(block, qemu_plugin_inline_add_u64, &executed, qemu_plugin_tb_n_insns(block));
}

void called(qemu_plugin_id_t, unsigned, std::int64_t number, std::uint64_t which, std::uint64_t, std::uint64_t,
            std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) {
  if (number != mark)
    return;
  if (counting)
    std::fprintf(stderr, "%llu %llu\n", static_cast<unsigned long long>(which),
                 static_cast<unsigned long long>(executed - begun));
  begun = executed;
  counting = !counting;
}

} // namespace

extern "C" [[gnu::visibility("default")]] int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t*, int,
                                                                  char**) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
