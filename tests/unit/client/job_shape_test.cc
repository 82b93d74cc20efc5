// A job's shape, from its spec and its files.
#include "client/cpp/job_shape.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/job_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kPattern[] = R"("segments": [2], "dilations": [1])";

// Tensors of two tokens, four heads over two, head dim 8, value dim 16.
class JobShapes : public ::testing::Test {
 protected:
  JobSource Source(wire::NpyType type = wire::NpyType::kFloat32) const {
    return {.q = Zeros("q.npy", type, {2, 4, 8}),
            .k = Zeros("k.npy", type, {2, 2, 8}),
            .v = Zeros("v.npy", type, {2, 2, 16})};
  }

  std::string Zeros(const char* name, wire::NpyType type, const std::vector<int64_t>& shape) const {
    int64_t bytes = wire::NpyItemBytes(type);
    for (const int64_t axis : shape) bytes *= axis;
    return files_.WriteNpy(name, type, shape, std::vector<char>(static_cast<size_t>(bytes)));
  }

  JobSource WithSpec(const std::string& fields, JobSource source) const {
    source.spec = files_.Write("s.json", absl::StrCat("{", kPattern, fields, "}"));
    return source;
  }

  static std::string Failure(const JobSource& source) {
    const auto files = OpenJob(source);
    EXPECT_EQ(files.status().code(), absl::StatusCode::kInvalidArgument) << files.status();
    return std::string(files.status().message());
  }

  const TestFiles files_;
};

TEST_F(JobShapes, FilesSayWhatASpecLeavesOut) {
  const auto files = OpenJob(WithSpec("", Source()));
  ASSERT_TRUE(files.ok()) << files.status();
  JobSpec expected;
  expected.tokens = 2;
  expected.heads = 4;
  expected.kv_heads = 2;
  expected.head_dim = 8;
  expected.value_dim = 16;
  expected.branches = {{2, 1}};
  EXPECT_EQ(files->job.spec, expected);
}

TEST_F(JobShapes, FieldsAloneAreASpec) {
  JobSource source = Source();
  source.fields = R"({"segments": [1], "dilations": [1], "causal": true})";
  const auto files = OpenJob(source);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files->job.spec.causal);
  EXPECT_EQ(files->job.spec.tokens, 2);
  source.fields = R"({"segments": [1], "dilations": [1], "heads": 8})";
  EXPECT_THAT(Failure(source), HasSubstr("heads of Q is 4 (axis 1 of shape (2, 4, 8)), must be "
                                         "8 (the command line)"));
  EXPECT_THAT(Failure(Source()), HasSubstr("segments is required"));
}

TEST_F(JobShapes, EachFieldIsComparedWithTheSpec) {
  for (const auto& [field, words] :
       {std::pair{"tokens", "tokens of Q is 2 (axis 0 of shape (2, 4, 8)), must be 24 (the spec)"},
        {"heads", "heads of Q is 4 (axis 1"},
        {"head_dim", "head_dim of Q is 8 (axis 2"},
        {"kv_heads", "kv_heads of K is 2 (axis 1"},
        {"value_dim", "value_dim of V is 16 (axis 2"}}) {
    EXPECT_THAT(Failure(WithSpec(absl::StrCat(", \"", field, "\": 24"), Source())),
                HasSubstr(words));
  }
  EXPECT_THAT(
      Failure(WithSpec(R"(, "dtype": "float16")", Source())),
      AllOf(HasSubstr(files_.Path("q.npy")), HasSubstr("Q has dtype float32 ('<f4'), must be "
                                                       "float16 ('<f2') with dtype float16 of "
                                                       "the spec")));
}

TEST_F(JobShapes, FilesAreComparedWithEachOther) {
  JobSource source = Source();
  source.v = Zeros("v.npy", wire::NpyType::kFloat32, {3, 2, 16});
  EXPECT_THAT(Failure(WithSpec("", source)),
              AllOf(HasSubstr(source.v + ": key_tokens of V is 3"),
                    HasSubstr(absl::StrCat("must be 2 (", source.k, ")"))));
  source = Source();
  source.k = Zeros("k.npy", wire::NpyType::kFloat16, {2, 2, 8});
  EXPECT_THAT(Failure(WithSpec("", source)),
              AllOf(HasSubstr(source.k + ": K has dtype float16 ('<f2')"),
                    HasSubstr(absl::StrCat("with dtype float32 of ", source.q))));
  source = Source();
  source.q = Zeros("q.npy", wire::NpyType::kFloat32, {2, 32});
  EXPECT_THAT(Failure(WithSpec("", source)),
              HasSubstr("Q has shape (2, 32), expected [tokens, heads, head_dim]"));
}

TEST_F(JobShapes, WhatFilesSayMustBeValid) {
  JobSource source = Source();
  source.q = Zeros("q.npy", wire::NpyType::kFloat32, {2, 4, 12});
  source.k = Zeros("k.npy", wire::NpyType::kFloat32, {2, 2, 12});
  EXPECT_THAT(Failure(WithSpec("", source)),
              AllOf(HasSubstr("head_dim is 12, must be"),
                    HasSubstr(absl::StrCat("; ", source.q, " has tokens 2, heads 4, head_dim 12; ",
                                           source.k, " has key_tokens 2, kv_heads 2; "))));
}

TEST_F(JobShapes, TheTypeIsTold) {
  const auto dtype = [this](wire::NpyType type, const char* fields) {
    return OpenJob(WithSpec(fields, Source(type)))->job.spec.dtype;
  };
  EXPECT_EQ(dtype(wire::NpyType::kFloat32, ""), DataType::kFloat32);
  EXPECT_EQ(dtype(wire::NpyType::kFloat16, ""), DataType::kFloat16);
  EXPECT_EQ(dtype(wire::NpyType::kRaw16, ""),
            DataType::kBFloat16);  // ml_dtypes saves bfloat16 so
  EXPECT_EQ(dtype(wire::NpyType::kUInt16, R"(, "dtype": "bfloat16")"), DataType::kBFloat16);
}

TEST_F(JobShapes, SixteenBitIntegersTellNoType) {
  for (const wire::NpyType type : {wire::NpyType::kUInt16, wire::NpyType::kInt16}) {
    const JobSource source = Source(type);
    EXPECT_THAT(Failure(WithSpec("", source)),
                AllOf(HasSubstr(source.q), HasSubstr("bfloat16's bits or integers"),
                      HasSubstr("give the dtype")));
  }
  JobSource source = Source(wire::NpyType::kUInt16);
  source.v = Zeros("v.npy", wire::NpyType::kRaw16, {2, 2, 16});
  EXPECT_EQ(OpenJob(WithSpec("", source))->job.spec.dtype, DataType::kBFloat16);
  source.v = Zeros("v.npy", wire::NpyType::kFloat16, {2, 2, 16});
  EXPECT_THAT(Failure(WithSpec("", source)),
              AllOf(HasSubstr("Q has dtype uint16"), HasSubstr("with dtype float16 of "),
                    HasSubstr("v.npy")));
  EXPECT_THAT(Failure(WithSpec("", Source(wire::NpyType::kFloat64))),
              HasSubstr("astype('float32')"));
}

TEST_F(JobShapes, FortranOrderSaysHowToSave) {
  JobSource source = Source();
  source.k = files_.WriteFortranNpy("k.npy", wire::NpyType::kFloat32, {2, 2, 8});
  EXPECT_THAT(Failure(WithSpec("", source)),
              AllOf(HasSubstr(source.k + ": K of shape (2, 2, 8) is in Fortran order"),
                    HasSubstr("numpy.save(path, numpy.ascontiguousarray(array))")));
}

TEST_F(JobShapes, APlanNeedsNoFilesWhereItsSpecIsWhole) {
  EXPECT_THAT(std::string(ReadJob(WithSpec("", {})).status().message()),
              HasSubstr("tokens is required"));
  EXPECT_THAT(std::string(ReadJob(WithSpec(R"(, "tokens": 5, "heads": 2)", {})).status().message()),
              HasSubstr("head_dim is required"));
  const auto job = ReadJob(WithSpec(R"(, "tokens": 5, "heads": 2, "head_dim": 8)", {}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.kv_heads, 2);
  const auto some = ReadJob(WithSpec("", {.q = Source().q}));
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->spec.kv_heads, 4);
  EXPECT_EQ(OpenJob(WithSpec("", {.q = Source().q})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hilbert_ring::client
