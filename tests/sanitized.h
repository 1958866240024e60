#ifndef TESSERA_TESTS_SANITIZED_H_
#define TESSERA_TESTS_SANITIZED_H_

namespace tessera::testing {

// Whether a sanitizer slows this program down, and adds to its memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_SANITIZED_H_
