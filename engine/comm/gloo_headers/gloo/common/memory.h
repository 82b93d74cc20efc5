// Debian's libgloo-dev 0.5 lacks this header, which those of its connections include: the handles
// that Gloo's operations have of buffers that are somebody else's. Each is one pointer of the
// standard library, as in the library itself; nothing here makes or follows one.
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
