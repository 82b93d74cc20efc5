"""Ends a file of tests: with 77 and the reasons if all tests were skipped, which ctest shows."""
import sys
import unittest


def main():
    """As unittest.main."""
    result = unittest.main(exit=False).result
    if result.wasSuccessful() and result.skipped and len(result.skipped) >= result.testsRun:
        for test, why in result.skipped:
            print(f"skipped: {test}: {why}")
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
