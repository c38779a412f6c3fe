"""Time of one RNN layer and one attention layer over n tokens of d numbers: what notebook 06 measures, to n = 4096.

    python benchmarks/rnn_vs_attention.py

Both functions are those of the page and the package (notebook 06's `rnn`, `attention.attention`), NumPy in float64,
one sequence, forward only, without attention's projections, one thread, best of three runs. The last column is the
ratio of the multiplications, n / d: the two counts cross at n = d, the two times elsewhere.
"""

import os
import sys
from pathlib import Path

for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[library] = "1"  # NumPy reads these when it is imported
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from page_code import definitions  # noqa: E402


def main(lengths=(16, 64, 256, 1024, 4096), sizes=(64, 512)):
    race = definitions("06")["race"]  # milliseconds of (RNN, attention)
    print(f"{'d':>5}{'n':>7}{'RNN, ms':>11}{'attention, ms':>16}{'ratio':>9}{'ratio of counts':>18}")
    for d in sizes:
        for n in lengths:
            rnn_ms, attention_ms = race(n, d)
            print(f"{d:5}{n:7}{rnn_ms:11.2f}{attention_ms:16.2f}{attention_ms / rnn_ms:9.2f}{n / d:18.2f}", flush=True)


if __name__ == "__main__":
    main()
