// Loaded before a process's own libraries (LD_PRELOAD): no thread can be started while the file
// $NO_THREADS_FOLDER/PID is there, as where the system has none left.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

using Start = void* (*)(void*);

// The system's declaration names its parameters otherwise, with names that are reserved.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, Start start,
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, Start, void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  const char* const folder = std::getenv("NO_THREADS_FOLDER");
  char path[4096];
  if (folder != nullptr &&
      std::snprintf(path, sizeof(path), "%s/%d", folder, static_cast<int>(getpid())) > 0 &&
      access(path, F_OK) == 0) {
    return EAGAIN;
  }
  return create(thread, attributes, start, argument);
}
