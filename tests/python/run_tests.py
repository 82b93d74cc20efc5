"""Runs test files with pytest. Exits with 77 and a reason if a module is absent."""
import importlib
import sys

for module in ("grpc", "google.protobuf", "numpy", "crc32c", "pytest"):
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"skipped: {error} (./dev setup installs it)")
        sys.exit(77)

import pytest  # noqa: E402

code = pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]])
# NO_TESTS_COLLECTED: pytest skipped the whole file and has printed why.
sys.exit(77 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
