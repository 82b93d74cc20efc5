// Loaded before a process's own libraries (LD_PRELOAD): while the file $NO_THREADS_FOLDER/PID is
// there, as many threads can be started as the number in it says, and no more, as where the system
// has none left. Without a number: none.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

using Start = void* (*)(void*);

namespace {

std::atomic<int> started_meanwhile = 0;

bool IsOver() {
  const char* const folder = std::getenv("NO_THREADS_FOLDER");
  char path[4096];
  if (folder == nullptr ||
      std::snprintf(path, sizeof(path), "%s/%d", folder, static_cast<int>(getpid())) <= 0) {
    return false;
  }
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) {
    started_meanwhile = 0;
    return false;
  }
  int most = 0;
  if (std::fscanf(file, "%d", &most) != 1) most = 0;
  std::fclose(file);
  return started_meanwhile++ >= most;
}

}  // namespace

// The system's declaration names its parameters otherwise, with names that are reserved.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, Start start,
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, Start, void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (IsOver()) return EAGAIN;
  return create(thread, attributes, start, argument);
}
