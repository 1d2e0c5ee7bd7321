int gemmd_kernels_embedded;
