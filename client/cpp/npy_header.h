// The header of .npy files, by the names that the client library has for it.
#pragma once

#include "wire/npy_header.h"

namespace hilbert_ring::client {

using wire::FormatNpyHeader;
using wire::FormatShape;
using wire::kMaxNpyHeaderBytes;
using wire::MayHold;
using wire::NpyDescr;
using wire::NpyHeader;
using wire::NpyItemBytes;
using wire::NpyType;
using wire::NpyTypeName;
using wire::ParseNpyHeader;

}  // namespace hilbert_ring::client
