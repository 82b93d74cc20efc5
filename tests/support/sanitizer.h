#pragma once

namespace hilbert_ring {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// The address sanitizer keeps freed memory, and the thread sanitizer shadows used memory.
inline constexpr bool kResidentBytesAreTheSanitizers = kAddressSanitizer || kThreadSanitizer;

}  // namespace hilbert_ring
