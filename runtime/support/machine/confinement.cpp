#include "runtime/support/machine/confinement.hpp"

#include "runtime/support/files/descriptor.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <system_error>

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

// The struct of linux/landlock.h in kernel 6.18; Debian 12's lacks a part.
struct ruleset_rights {
  std::uint64_t files, net, scopes;
};
struct path_rule {
  std::uint64_t rights;
  std::int32_t below;
} __attribute__((packed));

constexpr std::uint64_t execute = 1 << 0, write_file = 1 << 1, read_file = 1 << 2, read_folder = 1 << 3,
                        remove_folder = 1 << 4, remove_file = 1 << 5, make_folder = 1 << 7, make_file = 1 << 8,
                        make_socket = 1 << 9, move = 1 << 13, truncate = 1 << 14, control_device = 1 << 15;
constexpr std::uint64_t of_files = execute | write_file | read_file | truncate | control_device;
constexpr std::uint64_t connect_tcp = 1 << 1, signal_others = 1 << 1;

constexpr std::uint64_t reading = read_file | read_folder;
constexpr std::uint64_t writing = reading | write_file | truncate | remove_folder | remove_file | make_folder |
  make_file | make_socket | move;

/// Rights that the kernel's version of Landlock knows.
ruleset_rights known_to(long version) {
  std::uint64_t files = (1 << 13) - 1;
  if (version >= 2)
    files |= move;
  if (version >= 3)
    files |= truncate;
  if (version >= 5)
    files |= control_device;
  return {files, version >= 4 ? connect_tcp : 0, version >= 6 ? signal_others : 0};
}

/// Sizes of ruleset_rights before it had `net`, and before it had `scopes`.
std::size_t size_in(long version) { return version < 4 ? 8 : version < 6 ? 16 : 24; }

void allow(int rules, const fs::path& path, std::uint64_t rights, std::uint64_t known) {
  const descriptor opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat what {};
  if (!opened || ::fstat(opened.get(), &what) != 0)
    return;
  path_rule rule{rights & known & (S_ISDIR(what.st_mode) ? ~std::uint64_t() : of_files), opened.get()};
  ::syscall(SYS_landlock_add_rule, rules, 1, &rule, 0);
}

std::string why_not(const char* what) { return std::string(what) + " (" + std::strerror(errno) + ")"; }

std::string confine_files(const confinement& to) {
  const auto version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1);
  if (version < 1)
    return why_not("the kernel has no Landlock");
  const auto known = known_to(version);
  const descriptor rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &known, size_in(version), 0)));
  if (!rules)
    return why_not("Landlock takes no rules");
  for (const auto* path : {"/usr", "/lib", "/lib64", "/opt", "/proc", "/sys", "/dev/urandom", "/etc/ld.so.cache",
                           "/etc/localtime", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf",
                           "/etc/gai.conf", "/etc/ssl/openssl.cnf"})
    allow(rules.get(), path, reading, known.files);
  for (const auto* path : {"/dev/null", "/dev/tty"})
    allow(rules.get(), path, read_file | write_file | truncate | control_device, known.files);
  for (const auto& path : to.readable)
    allow(rules.get(), path, reading, known.files);
  for (const auto& path : to.writable)
    allow(rules.get(), path, writing, known.files);
  return ::syscall(SYS_landlock_restrict_self, rules.get(), 0) == 0 ? "" : why_not("Landlock refuses");
}

/// Calls that fail with EPERM from now on.
constexpr std::array refused{
  SYS_execve,        SYS_execveat,    SYS_ptrace,          SYS_process_vm_readv, SYS_process_vm_writev,
  SYS_mount,         SYS_umount2,     SYS_pivot_root,      SYS_chroot,           SYS_move_mount,
  SYS_open_tree,     SYS_fsopen,      SYS_fsconfig,        SYS_fsmount,          SYS_fspick,
  SYS_setns,         SYS_unshare,     SYS_init_module,     SYS_finit_module,     SYS_delete_module,
  SYS_kexec_load,    SYS_bpf,         SYS_perf_event_open, SYS_userfaultfd,      SYS_add_key,
  SYS_request_key,   SYS_keyctl,      SYS_swapon,          SYS_swapoff,          SYS_reboot,
  SYS_acct,          SYS_quotactl,    SYS_io_uring_setup,  SYS_settimeofday,     SYS_sethostname,
  SYS_setdomainname, SYS_pidfd_getfd,
};

std::string refuse_calls() {
#if defined(__x86_64__)
  constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#endif
  constexpr std::uint32_t eperm = SECCOMP_RET_ERRNO | EPERM;
  constexpr std::uint32_t foreign = 0x40000000; // calls of x32
  std::vector<sock_filter> program{
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, eperm),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, foreign, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, eperm),
  };
  for (const auto call : refused) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, eperm));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0
    ? ""
    : why_not("the kernel filters no calls");
}

} // namespace

std::string confine(const confinement& to) {
  std::error_code ignored; // without /proc the kernel has to be believed
  const std::filesystem::directory_iterator threads("/proc/self/task", ignored);
  if (std::distance(begin(threads), end(threads)) > 1)
    return "it runs threads already, which Landlock does not confine";
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return why_not("the kernel knows no `no_new_privs`");
  const auto files = confine_files(to), calls = refuse_calls();
  return files.empty() || calls.empty() ? files + calls : files + ", and " + calls;
}

} // namespace troupe
