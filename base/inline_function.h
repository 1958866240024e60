#ifndef TESSERA_BASE_INLINE_FUNCTION_H_
#define TESSERA_BASE_INLINE_FUNCTION_H_

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace tessera {

// A move-only callable that keeps callables of up to kBytes within itself, so
// that making, moving and destroying it allocates nothing. Larger ones, and
// those that may throw when moved, lie on the heap.
//
//   InlineFunction<int(int), 32> add = [k](int i) { return i + k; };
//
// Empty where made of nothing or nullptr, or moved from. Not thread-safe.
template <typename Signature, size_t kBytes>
class InlineFunction;

template <typename R, typename... Args, size_t kBytes>
class InlineFunction<R(Args...), kBytes> {
 public:
  InlineFunction() = default;
  InlineFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)

  template <typename F>
  requires(!std::is_same_v<std::decay_t<F>, InlineFunction> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      InlineFunction(F&& f) {  // NOLINT(google-explicit-constructor)
    using Function = std::decay_t<F>;
    if constexpr (kFits<Function>) {
      Emplace<Function>(std::forward<F>(f));
    } else {
      Emplace<OnHeap<Function>>(
          OnHeap<Function>{std::make_unique<Function>(std::forward<F>(f))});
    }
  }

  InlineFunction(InlineFunction&& other) noexcept { TakeFrom(other); }
  InlineFunction& operator=(InlineFunction&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    TakeFrom(other);
    return *this;
  }
  ~InlineFunction() { Reset(); }

  explicit operator bool() const { return table_ != nullptr; }

  // REQUIRES: not empty.
  R operator()(Args... args) {
    return table_->call(memory_, std::forward<Args>(args)...);
  }

 private:
  template <typename F>
  static constexpr bool kFits = sizeof(F) <= kBytes &&
                                alignof(F) <= alignof(std::max_align_t) &&
                                std::is_nothrow_move_constructible_v<F>;

  template <typename F>
  struct OnHeap {
    R operator()(Args... args) { return (*f)(std::forward<Args>(args)...); }
    std::unique_ptr<F> f;
  };

  // What is done with the callable in `memory`.
  struct Table {
    R (*call)(std::byte* memory, Args&&... args);
    void (*move)(std::byte* from, std::byte* to);  // leaves nothing behind
    void (*destroy)(std::byte* memory);
  };

  template <typename F>
  static F& In(std::byte* memory) {
    return *std::launder(reinterpret_cast<F*>(memory));
  }

  template <typename F>
  static constexpr Table kTable = {
      [](std::byte* memory, Args&&... args) -> R {
        return In<F>(memory)(std::forward<Args>(args)...);
      },
      [](std::byte* from, std::byte* to) {
        ::new (to) F(std::move(In<F>(from)));
        In<F>(from).~F();
      },
      [](std::byte* memory) { In<F>(memory).~F(); }};

  template <typename F, typename From>
  void Emplace(From&& from) {
    static_assert(kFits<F>);
    ::new (memory_) F(std::forward<From>(from));
    table_ = &kTable<F>;
  }

  void TakeFrom(InlineFunction& other) {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) table_->move(other.memory_, memory_);
  }

  void Reset() {
    if (table_ != nullptr) std::exchange(table_, nullptr)->destroy(memory_);
  }

  alignas(std::max_align_t) std::byte memory_[kBytes];
  const Table* table_ = nullptr;
};

}  // namespace tessera

#endif  // TESSERA_BASE_INLINE_FUNCTION_H_
