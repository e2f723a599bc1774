"""Numbers of "Reducing the GPU Memory Bottleneck with Lossless Compression for ML" (EuroSys 2026); A100, PCIe 4 x16."""

MEMCPY_GB_PER_S = 25  # section 6, system configuration
ALIGNED_GAIN_PERCENT = 25  # section 4.4: GPU (aligned) over GPU
# Section 6.1, Figure 7: percent of the ideal at 90 % of the space saved, by row bytes.
DECODE_AT_90 = {256: 50, 1024: 78, 4096: 86}
# Table 5: ratio by the percent of rows that preprocessing looked at, scored on all rows. "citeseer" holds the same rows
# as here; "cora" is another, larger data set of that name (34 KB a row).
SAMPLE_PERCENTS = (1, 5, 10, 25, 50, 100)
SAMPLE = {
    "pubmed": (7.37, 7.34, 7.34, 7.34, 7.35, 7.35),
    "citeseer": (25.09,) * 6,
    "cora": (26.36, 26.36, 26.36, 26.36, 26.36, 26.34),
}
# Section 6.5, Figure 13, Products: 8-byte chunks reach 12.7 %; thresholds of 80 to 85 % do best.
CHUNK8_BEST_PERCENT = 12.7
BEST_THRESHOLDS = (80, 85)
# Tables 1 to 3: throughput relative to uncompressed rows, space saved in %, compression in ms; 100,000 rows.
COLUMNS = ("GNN sparse", "GNN dense", "DLRM", "LLM KV fp16", "LLM KV bf16", "LLM weights bf16")
SPEEDUP = {
    "ANS": (2.1, 0.1, 0.1, 0.10, 0.12, 0.20),
    "Bitcomp": (3.9, 0.4, 0.5, 0.65, 0.65, 0.64),
    "Cascaded": (8.6, 0.8, 0.8, 0.48, 0.51, 0.76),
    "GDeflate": (2.1, 0.3, 0.5, 0.16, 0.16, 0.18),
    "LZ4": (2.3, 0.6, 0.9, 0.47, 0.33, 0.25),
    "Snappy": (1.6, 0.4, 0.7, 0.21, 0.17, 0.13),
    "zStd": (1.8, 0.1, 0.3, 0.1, 0.10, 0.02),
    "ndzip": (5.1, 1.0, 1.0, 0.96, 1.01, 1.01),
    "IBP": (9.7, 1.2, 1.1, 1.02, 1.27, 1.32),
}
SAVED_PERCENT = {
    "ANS": (76.7, -78.1, -132.6, 6.2, 18.84, 12.40),
    "Bitcomp": (80.5, -8.8, -14.9, -0.15, 0.59, -0.97),
    "Cascaded": (89.2, -1.0, -2.0, -0.01, 0.72, -0.09),
    "GDeflate": (86.9, -22.7, -40.8, 33.25, 34.24, 19.20),
    "LZ4": (89.7, -0.3, -1.0, 33.33, 27.63, -0.30),
    "Snappy": (88.6, -1.0, -1.0, 23.24, 11.64, -0.73),
    "zStd": (93.4, 1.6, -2.0, 38.91, 43.03, 21.37),
    "ndzip": (62.9, 6.3, 4.8, -0.21, 4.95, 4.31),
    "IBP": (92.9, 10.4, 8.3, 4.49, 23.43, 26.71),
}
COMPRESS_MS = {
    "ANS": (33.1, 105.4, 80.4, 25.2, 26.8, 104.6),
    "Bitcomp": (13.0, 39.0, 27.9, 17.4, 23.3, 61.4),
    "Cascaded": (12.8, 33.6, 26.7, 35.7, 46.9, 120.8),
    "GDeflate": (68.5, 482.7, 316.8, 394.2, 420.9, 1407.7),
    "LZ4": (135.1, 69.3, 43.4, 105.5, 141.6, 495.1),
    "Snappy": (133.3, 81.8, 55.3, 165.2, 181.0, 440.9),
    "zStd": (53.5, 292.1, 266.3, 121.5, 150.1, 515.7),
    "ndzip": (16.4, 20.7, 15.0, 16.5, 20.6, 56.2),
    "IBP": (151.5, 53.2, 34.2, 42.8, 40.9, 94.9),
}
# Which of the paper's columns a table of ours is set beside: never the same rows, but rows of that kind.
NEAREST = {
    "citeseer": "GNN sparse",
    "cora": "GNN sparse",
    "pubmed": "GNN sparse",
    "deepwalk128_f32": "GNN dense",
    "gaussian_f32": "GNN dense",
    "gaussian_f16": "LLM KV fp16",
    "gaussian_bf16": "LLM weights bf16",
}
