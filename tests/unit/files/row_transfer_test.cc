#include "server/files/row_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <random>
#include <string>

#include "engine/base/descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kOffset = 13;

// A file of rows behind a header; each byte depends on its position.
class RowTransferTest : public ::testing::Test {
 protected:
  FileRows Make(int64_t rows, int64_t row_bytes) {
    text_.assign(static_cast<size_t>(kOffset + rows * row_bytes), '\0');
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>(i * 7 + i / 251);
    std::ofstream(folder_ / "rows") << text_;
    file_ = Descriptor(open((folder_ / "rows").c_str(), O_RDWR | O_CLOEXEC));
    return {
        .descriptor = file_.number(), .path = "rows", .offset = kOffset, .row_bytes = row_bytes};
  }

  std::string Row(int64_t row, int64_t row_bytes) const {
    return text_.substr(static_cast<size_t>(kOffset + row * row_bytes),
                        static_cast<size_t>(row_bytes));
  }

  testing::TestFolder folder_;
  std::string text_;
  Descriptor file_;
};

std::vector<RowPiece> Scattered(int64_t rows, int64_t of, uint64_t seed) {
  std::vector<int64_t> tokens(static_cast<size_t>(of));
  std::iota(tokens.begin(), tokens.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(tokens.begin(), tokens.end(), random);
  std::vector<RowPiece> pieces;
  for (int64_t i = 0; i < rows; ++i) {
    pieces.push_back({.file_row = tokens[static_cast<size_t>(i)], .memory_row = i, .rows = 1});
  }
  return pieces;
}

TEST_F(RowTransferTest, RowsComeToTheirPlacesWhateverTheirOrder) {
  // Small rows, many in a gap; rows larger than a gap; a row larger than a call.
  for (const auto& [rows, row_bytes] :
       {std::pair<int64_t, int64_t>(5000, 24), {300, 5000}, {3, int64_t{9} << 20}}) {
    const FileRows file = Make(rows, row_bytes);
    const int64_t taken = rows - rows / 3;
    std::vector<RowPiece> pieces = Scattered(taken, rows, 1);
    const std::vector<RowPiece> wanted = pieces;
    InFileOrder(pieces);
    std::string memory(static_cast<size_t>(taken * row_bytes), '\0');
    ASSERT_TRUE(ReadRows(file, pieces, reinterpret_cast<std::byte*>(memory.data())).ok());
    for (const RowPiece& piece : wanted) {
      ASSERT_EQ(memory.substr(static_cast<size_t>(piece.memory_row * row_bytes),
                              static_cast<size_t>(row_bytes)),
                Row(piece.file_row, row_bytes))
          << rows << " rows, " << piece.file_row;
    }
  }
}

TEST_F(RowTransferTest, NeighboursBecomeOne) {
  std::vector<RowPiece> pieces = {{.file_row = 8, .memory_row = 4, .rows = 2},
                                  {.file_row = 4, .memory_row = 0, .rows = 4},
                                  {.file_row = 10, .memory_row = 9, .rows = 1}};
  InFileOrder(pieces);
  ASSERT_EQ(pieces.size(), 2);
  EXPECT_EQ(pieces[0].file_row, 4);
  EXPECT_EQ(pieces[0].rows, 6);
  EXPECT_EQ(pieces[1].memory_row, 9);
}

TEST_F(RowTransferTest, AFileThatEndsTooSoonIsAnError) {
  const FileRows file = Make(100, 8);
  ASSERT_EQ(truncate((folder_ / "rows").c_str(), kOffset + 50 * 8), 0);
  const RowPiece all{.file_row = 0, .memory_row = 0, .rows = 100};
  std::string memory(800, '\0');
  const absl::Status status =
      ReadRows(file, std::span(&all, 1), reinterpret_cast<std::byte*>(memory.data()));
  EXPECT_EQ(wire::ReasonOf(status), "FILE_CHANGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows: ends at byte 413"));
}

TEST_F(RowTransferTest, ADiskThatIsFullIsAnError) {
  const Descriptor full(open("/dev/full", O_RDWR | O_CLOEXEC));
  const FileRows file{.descriptor = full.number(), .path = "out.npy", .row_bytes = 8};
  const RowPiece one{.file_row = 0, .memory_row = 0, .rows = 1};
  const std::string memory(8, 'x');
  const absl::Status status =
      WriteRows(file, std::span(&one, 1), reinterpret_cast<const std::byte*>(memory.data()));
  EXPECT_EQ(wire::ReasonOf(status), "FILE_NO_SPACE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("out.npy: cannot write at byte 0"));
}

}  // namespace
}  // namespace hilbert_ring::server
