// Entry point of the device plane's tests; each test file is linked with this one.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
