// What a sanitizer's build cannot say.
#pragma once

namespace hilbert_ring::testing {

// Resident bytes: the address sanitizer keeps memory that was given back, the thread sanitizer
// shadows what is used.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kResidentBytesAreTheSanitizers = true;
#else
inline constexpr bool kResidentBytesAreTheSanitizers = false;
#endif

}  // namespace hilbert_ring::testing
