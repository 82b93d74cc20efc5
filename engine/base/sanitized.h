// HILBERT_RING_SANITIZED: the program contains the address or the thread sanitizer.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC's
#define HILBERT_RING_SANITIZED
#elif defined(__has_feature)  // clang's
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HILBERT_RING_SANITIZED
#endif
#endif
