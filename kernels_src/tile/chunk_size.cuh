/*
 * What threads copy at a time: 16 bytes, one cp.async, one row of an ldmatrix.
 */
#pragma once

#include "base/config.cuh"

constexpr int chunk_size = 16; /* bytes */
constexpr int chunk_elements = chunk_size / cfg::input_size;
