// What a sanitizer's build cannot say, and how it is slower.
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

// Resident bytes: the address sanitizer keeps memory that was given back, the thread sanitizer
// shadows what is used.
inline constexpr bool kResidentBytesAreTheSanitizers = kAddressSanitizer || kThreadSanitizer;

}  // namespace hilbert_ring
