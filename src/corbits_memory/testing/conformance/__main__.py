"""``python -m corbits_memory.testing.conformance --store my_package.store:make_store``, and any option of pytest."""

import sys

import pytest

PACKAGE = "corbits_memory.testing.conformance"

if __name__ == "__main__":
    sys.exit(pytest.main(["-p", f"{PACKAGE}.options", "--pyargs", PACKAGE, *sys.argv[1:]]))
