// hilbert-ring encode and models, as processes.
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/fake_encoder.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CliEncode : public ::testing::Test {
 protected:
  void SetUp() override {
    files_.WriteNpy("tiles.npy", wire::NpyType::kFloat32, {8, 4}, std::vector<float>(32, 0.5f));
    std::vector<int32_t> coords(16);
    std::iota(coords.begin(), coords.end(), 0);
    files_.WriteNpy("coords.npy", wire::NpyType::kInt32, {8, 2}, coords);
  }

  CliResult Encode(const FakeEncoder& service, const std::string& more,
                   const std::string& model = "small") const {
    return RunCli(absl::StrCat("encode --server ", service.address(), " --model ", model,
                               " --tiles ", files_.Path("tiles.npy"), " --coords ",
                               files_.Path("coords.npy"), " --out ", files_.Path("e.npy"), " ",
                               more));
  }

  struct Array {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  Array Read(const std::string& name) const {
    const std::string text = ReadFile(files_.Path(name));
    const auto header = wire::ParseNpyHeader(text);
    EXPECT_TRUE(header.ok()) << header.status();
    Array array{.shape = header->shape};
    array.values.resize(static_cast<size_t>(header->data_bytes) / sizeof(float));
    std::memcpy(array.values.data(), text.data() + header->data_offset, header->data_bytes);
    return array;
  }

  const TestFiles files_;
};

TEST_F(CliEncode, WritesItsFiles) {
  const FakeEncoder service;
  const CliResult result =
      Encode(service, absl::StrCat("--attention-map-heads --attention-map ", files_.Path("m.npy"),
                                   " --report ", files_.Path("r.json"), " --job-id slide-1"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("8 tiles of small"));
  EXPECT_THAT(result.err, HasSubstr("a note of the service"));
  EXPECT_THAT(files_.Names(), ElementsAre("coords.npy", "e.npy", "m.npy", "r.json", "tiles.npy"));
  EXPECT_THAT(Read("e.npy").shape, ElementsAre(1, 16));
  const Array map = Read("m.npy");
  EXPECT_THAT(map.shape, ElementsAre(9, 2));
  EXPECT_EQ(map.values[2 * 8 + 1], 5);
  EXPECT_EQ(nlohmann::json::parse(ReadFile(files_.Path("r.json")))["job_id"], "slide-1");
  const v1::EncodeSpec spec = service.record().open.encode();
  EXPECT_EQ(spec.pooling(), v1::POOLING_CLASS);
  EXPECT_THAT(spec.states(), ElementsAre(2));
  EXPECT_FALSE(spec.skip_final_norm());
  EXPECT_EQ(spec.attention_map_layer(), 2);
  EXPECT_EQ(spec.dtype(), v1::DATA_TYPE_FLOAT32);
}

// Several layers come without the final norm, as in published slide encoders.
TEST_F(CliEncode, LayersSlidesAndPooling) {
  const FakeEncoder service;
  CliResult result = Encode(service, "--layers all --pool mean --sequence-lengths 3,5");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Read("e.npy").shape, ElementsAre(2, 3, 16));
  EXPECT_TRUE(service.record().open.encode().skip_final_norm());
  result = Encode(service, "--layers 2,0 --pool none --final-norm apply --compute bfloat16");
  ASSERT_EQ(result.code, 0) << result.err;
  const Array rows = Read("e.npy");
  EXPECT_THAT(rows.shape, ElementsAre(9, 2, 16));
  EXPECT_EQ(rows.values[8 * 32], 208);
  EXPECT_EQ(rows.values[8 * 32 + 16], 8);
  const v1::EncodeSpec spec = service.record().open.encode();
  EXPECT_THAT(spec.states(), ElementsAre(2, 0));
  EXPECT_FALSE(spec.skip_final_norm());
  EXPECT_EQ(spec.compute(), v1::DATA_TYPE_BFLOAT16);
  result = Encode(service, "--layers 2,2");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(service.record().open.encode().skip_final_norm()) << "no other layer is wanted";
}

TEST_F(CliEncode, WhatIsNotFiniteIsARowOfTheOutput) {
  const FakeEncoder service({.spoilt = 1});
  EXPECT_THAT(Encode(service, "--pool mean --sequence-lengths 3,5").err,
              HasSubstr("the embeddings of 1 of 2 slides are not finite, the first of slide 1"));
  EXPECT_THAT(Encode(service, "--pool none").err,
              HasSubstr("1 of 9 rows of the output are not finite, the first for token 1"));
}

TEST_F(CliEncode, WhatIsWrongIsNamedAndNothingIsSent) {
  const FakeEncoder service;
  const auto refused = [&](const std::string& more, const std::string& what) {
    const CliResult result = Encode(service, more);
    EXPECT_EQ(result.code, 2) << more;
    EXPECT_THAT(result.err, HasSubstr(what));
  };
  refused("--layers 1,3", "--layers: 3 is no state of the model, must be 0 to 2");
  refused("--layers ''", "--layers: is empty");
  refused("--layers one", "must be all, last or numbers");
  refused("--pool max", "must be class|mean|none");
  refused("--sequence-lengths 3,4", "the sequence lengths add up to 7");
  refused("--attention-map-layer 1", "go with --attention-map FILE");
  std::vector<double> coords(16, 199.5);
  coords[9] = 200;
  files_.WriteNpy("coords.npy", wire::NpyType::kFloat64, {8, 2}, coords);
  refused("", "coords[4]");
  files_.WriteNpy("coords.npy", wire::NpyType::kFloat16, {8, 2}, std::vector<uint16_t>(16));
  refused("", "coordinates have dtype float16, expected integers of 16 to 64 bits, float32 or");
  files_.WriteNpy("coords.npy", wire::NpyType::kFloat64, {2, 8}, coords);
  refused("", "expected (8, 2)");
  files_.WriteNpy("tiles.npy", wire::NpyType::kFloat32, {4, 8}, std::vector<float>(32));
  refused("", "model small takes (tiles, 4)");
  EXPECT_EQ(service.calls(), 0);
  EXPECT_THAT(files_.Names(), ElementsAre("coords.npy", "tiles.npy"));
}

// The package's program is a script that fails.
TEST_F(CliEncode, ASlideIsWrittenByThePackageFirst) {
  const FakeEncoder service;
  const std::string python = files_.Write(
      "python", absl::StrCat("#!/bin/sh\n[ $# = 2 ] && exit 0  # -c and the import that is tried\n"
                             "echo \"given $*\" >> ",
                             files_.Path("words"), "; echo it is wrong >&2; exit 2\n"));
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const std::string folder = files_.Path("temporary");
  std::filesystem::create_directory(folder);
  const auto encode = [&](const std::string& more) {
    return RunShell(absl::StrCat("TMPDIR=", folder, " HILBERT_RING_PYTHON=", python,
                                 " $CLI encode --model small --server ", service.address(),
                                 " --out ", files_.Path("e.npy"), " ", more));
  };
  const CliResult result = encode("--slide -s.h5 --layout=clam --patches p.h5 --json");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "it is wrong\n");
  EXPECT_THAT(ReadFile(files_.Path("words")),
              AllOf(HasSubstr(" slide --tiles "), HasSubstr("/coords.npy --tile-size=10 "),
                    HasSubstr("--layout=clam --patches=p.h5 --json -- -s.h5\n")));
  EXPECT_EQ(encode("--slide s.h5 --tiles t.npy").code, 2);
  EXPECT_THAT(encode("").err, HasSubstr("--tiles FILE is needed, or --slide FILE"));
  EXPECT_THAT(encode(absl::StrCat("--slide ", files_.Path("e.npy"))).err,
              HasSubstr("is the same file as the input --slide"));
  EXPECT_EQ(service.calls(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(CliEncode, APlanSendsNoTilesAndWritesNothing) {
  const FakeEncoder service;
  const std::string job =
      absl::StrCat("encode --server ", service.address(),
                   " --model small --sequence-lengths 3,5 --pool mean --tiles ",
                   files_.Path("tiles.npy"), " --coords ", files_.Path("coords.npy"));
  CliResult result = RunCli(job + " --plan --workers 3");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("10 tokens over 3 workers"), HasSubstr("8 flop"),
                                HasSubstr("note: a note of the plan")));
  EXPECT_EQ(service.calls(), 0);
  EXPECT_THAT(service.planned().slide_tiles(), ElementsAre(3, 5));
  EXPECT_EQ(service.planned().pooling(), v1::POOLING_MEAN);
  EXPECT_EQ(service.planned().digest().size(), 64u);
  EXPECT_THAT(files_.Names(), ElementsAre("coords.npy", "tiles.npy"));
  result = RunCli(job + " --plan --json");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["planned"], true);
  result = RunCli(job);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--out FILE is needed, or --plan"));
  EXPECT_EQ(RunCli(job + " --workers 3 --out x.npy").code, 2);
}

TEST_F(CliEncode, ModelsAreListed) {
  const FakeEncoder service;
  const CliResult text = RunCli(absl::StrCat("models --server ", service.address()));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("small"), HasSubstr("0123456789ab"),
                              HasSubstr("\nconfig.json: layers is required\n")))
      << "below the table, however long it is";
  const CliResult json = RunCli(absl::StrCat("models --json --server ", service.address()));
  ASSERT_EQ(json.code, 0) << json.err;
  const auto models = nlohmann::json::parse(json.out)["models"];
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[1]["grid_pixels"], 200.0);
}

}  // namespace
}  // namespace hilbert_ring::client
