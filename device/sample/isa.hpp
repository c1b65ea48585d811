// Which copy of the numeric code a file holds. Headers that are compiled once per instruction set
// put their functions into `inline namespace SAC_ISA`, so that the linker can never merge an
// AVX-512 copy of an inline function into code that runs on a machine without AVX-512.
#pragma once

#ifndef SAC_ISA
#define SAC_ISA portable
#endif
