// What the process may still do once it has opened what it needs: Landlock rules for files and connections, and a seccomp
// filter for calls that a server never makes (landlock(7), seccomp(2)). Nothing of it can be taken back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// Files, and folders with all below them. Links count as what they lead to now; what is not there is passed over.
struct confinement {
  std::vector<std::filesystem::path> readable, writable; // writable ones may be read, too
};

/// Confines the calling thread, and every thread that it starts from now on, to these files and what any program needs
/// of the system (libraries, time zones, /proc, /sys): nothing else is opened, made or removed; it connects to no TCP port;
/// it starts no program, looks into none, mounts nothing, and gains no rights. What is open stays open, and ports may be
/// listened on. Returns what cannot be done of it, as a sentence; empty if all is done. Does nothing if the process has
/// other threads.
std::string confine(const confinement& to);

} // namespace troupe
