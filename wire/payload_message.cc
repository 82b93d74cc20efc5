#include "wire/payload_message.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace hilbert_ring::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

uint32_t BytesTag(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

int64_t HeadBytes(uint32_t tag, int bytes) {
  return static_cast<int64_t>(CodedOutputStream::VarintSize32(tag) +
                              CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)));
}

bool ReadPayload(CodedInputStream& input, int bytes, Payload& payload) {
  while (bytes > 0) {
    const void* data = nullptr;
    int size = 0;
    if (!input.GetDirectBufferPointer(&data, &size) || size <= 0) return false;
    const int part = std::min(bytes, size);
    payload.Append({static_cast<const char*>(data), static_cast<size_t>(part)});
    if (!input.Skip(part)) return false;
    bytes -= part;
  }
  return true;
}

// Splits the inner message into its payload and its other fields. Returns false for varints with
// superfluous bytes: the stream accepts some that the generated classes refuse.
bool ReadInner(CodedInputStream& input, uint32_t payload_tag, std::string& others,
               Payload& payload) {
  int64_t least_bytes = 0;
  const int inner_bytes = input.BytesUntilLimit();
  {
    StringOutputStream to(&others);
    CodedOutputStream output(&to);
    while (input.BytesUntilLimit() > 0) {
      const uint32_t tag = input.ReadTag();
      if (tag == 0) return false;  // a tag may be cut off
      if (tag == payload_tag) {
        int bytes = 0;
        if (payload.bytes() > 0 || !input.ReadVarintSizeAsInt(&bytes)) return false;
        if (!ReadPayload(input, bytes, payload)) return false;
        least_bytes += HeadBytes(tag, bytes) + bytes;
      } else if (!WireFormatLite::SkipField(&input, tag, &output)) {
        return false;
      }
    }
  }
  return least_bytes + static_cast<int64_t>(others.size()) == inner_bytes;
}

// Returns whether at most `left` parts lie before the input's limit. Malformed input counts as few:
// the parser rejects it. Refuses groups, which no message of ours has.
bool HasFewParts(CodedInputStream& input, const Descriptor& message, int& left) {
  while (const uint32_t tag = input.ReadTag()) {
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_START_GROUP) return false;
    if (type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&input, tag)) return true;
      continue;
    }
    if (--left < 0) return false;
    int bytes = 0;
    if (!input.ReadVarintSizeAsInt(&bytes)) return true;
    const FieldDescriptor* const field =
        message.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field != nullptr && field->message_type() != nullptr) {
      const auto limit = input.PushLimit(bytes);
      if (!HasFewParts(input, *field->message_type(), left)) return false;
      if (!input.Skip(input.BytesUntilLimit())) return true;
      input.PopLimit(limit);
    } else if (!input.Skip(bytes)) {
      return true;
    }
  }
  return true;
}

}  // namespace

grpc::ByteBuffer JoinPayload(PayloadFields fields, const google::protobuf::MessageLite& inner,
                             const std::vector<grpc::Slice>& payload,
                             const google::protobuf::MessageLite* beside) {
  size_t payload_bytes = 0;
  for (const grpc::Slice& slice : payload) payload_bytes += slice.size();
  const uint32_t payload_tag = BytesTag(fields.payload);
  const size_t inner_bytes = inner.ByteSizeLong() + CodedOutputStream::VarintSize32(payload_tag) +
                             CodedOutputStream::VarintSize32(static_cast<uint32_t>(payload_bytes)) +
                             payload_bytes;
  std::string head;
  {
    StringOutputStream to(&head);
    CodedOutputStream output(&to);
    if (beside != nullptr) beside->SerializeToCodedStream(&output);
    output.WriteTag(BytesTag(fields.message));
    output.WriteVarint32(static_cast<uint32_t>(inner_bytes));
    inner.SerializeToCodedStream(&output);
    output.WriteTag(payload_tag);
    output.WriteVarint32(static_cast<uint32_t>(payload_bytes));
  }
  std::vector<grpc::Slice> slices{grpc::Slice(head)};
  slices.insert(slices.end(), payload.begin(), payload.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

bool SplitPayload(grpc::ByteBuffer& buffer, PayloadFields fields,
                  google::protobuf::MessageLite& inner, Payload& payload) {
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok()) return false;
  CodedInputStream input(&reader);
  int bytes = 0;
  if (input.ReadTag() != BytesTag(fields.message) || !input.ReadVarintSizeAsInt(&bytes)) {
    return false;
  }
  if (input.CurrentPosition() != HeadBytes(BytesTag(fields.message), bytes)) return false;
  const auto limit = input.PushLimit(bytes);
  std::string others;
  payload = Payload();
  if (!ReadInner(input, BytesTag(fields.payload), others, payload)) return false;
  input.PopLimit(limit);
  return input.ReadTag() == 0 && input.ConsumedEntireMessage() && inner.ParseFromString(others);
}

bool SplitMessage(grpc::ByteBuffer& buffer, std::span<const PayloadFields> fields,
                  google::protobuf::MessageLite& outer, Payload& payload) {
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok()) return false;
  CodedInputStream input(&reader);
  std::string stripped;  // the outer message without the payload
  int64_t removed = 0;
  bool found = false;
  payload = Payload();
  {
    StringOutputStream to(&stripped);
    CodedOutputStream output(&to);
    while (const uint32_t tag = input.ReadTag()) {
      const auto inner = std::ranges::find_if(
          fields, [tag](const PayloadFields& of) { return BytesTag(of.message) == tag; });
      if (inner == fields.end()) {
        if (!WireFormatLite::SkipField(&input, tag, &output)) return false;
        continue;
      }
      int bytes = 0;
      if (std::exchange(found, true) || !input.ReadVarintSizeAsInt(&bytes)) return false;
      const auto limit = input.PushLimit(bytes);
      std::string others;
      if (!ReadInner(input, BytesTag(inner->payload), others, payload)) return false;
      input.PopLimit(limit);
      const int other_bytes = static_cast<int>(others.size());
      removed = HeadBytes(tag, bytes) + bytes - HeadBytes(tag, other_bytes) - other_bytes;
      output.WriteTag(tag);
      output.WriteVarint32(static_cast<uint32_t>(other_bytes));
      output.WriteString(others);
    }
  }
  return found && input.ConsumedEntireMessage() &&
         static_cast<int64_t>(buffer.Length()) == std::ssize(stripped) + removed &&
         outer.ParseFromString(stripped);
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool Parse(grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message) {
  grpc::ProtoBufferReader reader(&buffer);
  return reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
}

bool ParseBounded(grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  {
    grpc::ProtoBufferReader reader(&buffer);
    if (!reader.status().ok()) return false;
    CodedInputStream input(&reader);
    int left = kMostParts;
    if (!HasFewParts(input, *message.GetDescriptor(), left)) return false;
  }
  return Parse(buffer, message);
}

grpc::Slice SliceOf(std::string_view bytes, std::shared_ptr<const void> owner) {
  const auto release = [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); };
  return grpc::Slice(const_cast<char*>(bytes.data()), bytes.size(), release,
                     new std::shared_ptr<const void>(std::move(owner)));
}

}  // namespace hilbert_ring::wire
