#include "runner/hardware/peaks.h"

#include <string.h>

/* TFLOP/s of BF16, FP8 and FP4, then GB/s; the last is MXFP8's TFLOP/s where they differ.
 * Data sheets double their figures for 2:4 sparsity, and GeForce ones double them again for 16-bit
 * accumulation. Training uses neither, so these figures are without both.
 * Product strings are the driver's (nvidia-smi -L). */
static const struct peak PEAKS[] = {
    { "NVIDIA A100-SXM4-40GB", "8.0", 312, 0, 0, 1555, "A100 data sheet, 2020", false, 0 },
    { "NVIDIA A100-SXM4-80GB", "8.0", 312, 0, 0, 2039, "A100 80GB data sheet, 2021", false, 0 },
    { "NVIDIA A100-PCIE-40GB", "8.0", 312, 0, 0, 1555, "A100 data sheet, 2020", false, 0 },
    { "NVIDIA A100 80GB PCIe", "8.0", 312, 0, 0, 1935, "A100 80GB data sheet, 2021", false, 0 },
    { "NVIDIA L4", "8.9", 121, 242.5, 0, 300, "L4 data sheet, 2023", false, 0 },
    { "NVIDIA L40S", "8.9", 362.05, 733, 0, 864, "L40S data sheet, 2023", false, 0 },
    { "NVIDIA RTX 6000 Ada Generation", "8.9", 364.2, 728.5, 0, 960,
      "RTX 6000 Ada data sheet, 2022", false, 0 },
    { "NVIDIA GeForce RTX 4090", "8.9", 165.2, 330.3, 0, 1008, "Ada GPU architecture, appendix A",
      false, 0 },
    { "NVIDIA H100 80GB HBM3", "9.0", 989.4, 1978.9, 0, 3350, "H100 data sheet, SXM", false, 0 },
    { "NVIDIA H100 PCIe", "9.0", 756, 1513, 0, 2000, "H100 data sheet, PCIe", false, 0 },
    { "NVIDIA H200", "9.0", 989, 1979, 0, 4800, "H200 data sheet, SXM", false, 0 },
    { "NVIDIA H200 NVL", "9.0", 835.5, 1670.5, 0, 4800, "H200 data sheet, NVL", false, 0 },
    { "NVIDIA GH200 480GB", "9.0", 989, 1979, 0, 4000, "GH200 data sheet, 96 GB HBM3", false, 0 },
    { "NVIDIA GH200 144G HBM3e", "9.0", 989, 1979, 0, 4900, "GH200 data sheet, 144 GB HBM3e",
      false, 0 },
    { "NVIDIA B200", "10.0", 2250, 4500, 9000, 7700, "Blackwell data sheet, HGX B200", false, 0 },
    { "NVIDIA GB200", "10.0", 2500, 5000, 10000, 8000, "Blackwell data sheet, GB200 NVL72", false,
      0 },
    /* NVIDIA/dgxc-benchmarking, README.md of 841f5466: "Peak Theoretical Throughput", without
     * sparsity, and the reference architectures. FP4 is three times as fast as FP8. */
    { "NVIDIA B300 SXM6 AC", "10.3", 2250, 4500, 13500, 7700, "DGX Cloud Benchmarking, B300",
      false, 0 },
    { "NVIDIA GB300", "10.3", 2450, 4900, 14700, 8000, "DGX Cloud Benchmarking, GB300", false, 0 },
    /* GeForce halves the rate of FP8 with f32 accumulation. Products with block scales are reported
     * to be up to twice as fast, so MXFP8 has the figure that the document gives for 16 bits. */
    { "NVIDIA GeForce RTX 5090", "12.0", 209.5, 419, 1676, 1792,
      "RTX Blackwell GPU architecture, appendix A", false, 838 },
    { "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 503.8, 1007.6, 2015.2, 1792,
      "RTX PRO Blackwell GPU architecture", false, 0 },
    /* "1 PFLOP" is FP4 with sparsity: an eighth of it is BF16, a quarter FP8, half dense FP4. */
    { "NVIDIA GB10", "12.1", 125, 250, 500, 273,
      "DGX Spark data sheet: 1 PFLOP of sparse FP4", true, 0 },
};

const struct peak *peak_find(const char *product, const char *cc) {
    for (size_t i = 0; i < sizeof PEAKS / sizeof *PEAKS; i++)
        if (!strcmp(PEAKS[i].product, product) && !strcmp(PEAKS[i].cc, cc)) return &PEAKS[i];
    return NULL;
}
