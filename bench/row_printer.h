// A Markdown table that prints each row at once, so that an aborted program keeps its results.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace hilbert_ring::bench {

class RowPrinter {
 public:
  explicit RowPrinter(std::vector<std::string> head) : head_(std::move(head)) {
    Line(head_);
    Line(std::vector<std::string>(head_.size(), "---"));
  }

  // Pads the row to the head's cells. Replaces '|' and newlines in cells.
  void Print(std::vector<std::string> row) const {
    row.resize(head_.size());
    for (std::string& cell : row) {
      std::replace(cell.begin(), cell.end(), '|', '/');
      std::replace(cell.begin(), cell.end(), '\n', ' ');
    }
    Line(row);
  }

 private:
  static void Line(const std::vector<std::string>& cells) {
    std::string line("|");
    for (const std::string& cell : cells) line.append(" ").append(cell).append(" |");
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  const std::vector<std::string> head_;
};

}  // namespace hilbert_ring::bench
