#ifndef TESSERA_TESTS_SANITIZED_H_
#define TESSERA_TESTS_SANITIZED_H_

namespace tessera::testing {

// Whether ThreadSanitizer watches this program. It finds nothing in what lets
// only one thread at a time do something.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#else
inline constexpr bool kThreadSanitized = false;
#endif

// Whether a sanitizer slows this program down, and adds to its memory.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_SANITIZED_H_
