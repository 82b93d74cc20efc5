// Debian's libgloo-dev 0.5 lacks this header, which its transport headers include. Each handle of
// another's buffer holds one pointer, as in Gloo itself. No code uses a handle here.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr final {
  std::shared_ptr<T> held_;
};

template <typename T>
class WeakNonOwningPtr final {
  std::weak_ptr<T> held_;
};

template <typename T>
class ShareableNonOwningPtr final {
  std::shared_ptr<T> held_;
};

}  // namespace gloo
