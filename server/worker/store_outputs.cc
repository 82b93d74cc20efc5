#include "server/worker/store_outputs.h"

#include <memory>
#include <string>

#include "engine/base/return_if_error.h"

namespace hilbert_ring::server {

OutputSource SourceOf(const ShardStore& store) {
  auto copied = std::make_shared<std::string>();
  return {.tokens = store.tokens(),
          .read = [&store, copied](TensorKind tensor, int64_t local_row,
                                   int64_t rows) -> absl::StatusOr<std::string_view> {
            const auto bytes = static_cast<size_t>(rows * store.layout().RowBytes(tensor));
            if (store.host_memory()) {
              return std::string_view(reinterpret_cast<const char*>(store.Row(tensor, local_row)),
                                      bytes);
            }
            copied->resize(bytes);
            RETURN_IF_ERROR(store.Read(tensor, local_row, rows, copied->data()));
            return std::string_view(*copied);
          }};
}

}  // namespace hilbert_ring::server
