"""What benchmarks on a GPU printed: tables, and whether that can be true."""
import math
import re

# TFLOP/s of 16-bit matrix products without sparsity that a GPU has at most, by a word of its name.
PEAKS = {"H100": 990, "H200": 990, "GH200": 990, "A100": 312, "L40S": 366, "B200": 2500}
NUMBERS = {"TFLOP/s", "over dense", "error", "seconds", "million tokens/s", "tiles/s", "first job, seconds",
           "microseconds", "largest error"}
ABOVE_ZERO = NUMBERS - {"error", "largest error"}


def cells(line):
    return [word.strip() for word in line.strip()[1:-1].split("|")]


def is_row(line):
    line = line.strip()
    return len(line) > 2 and line.startswith("|") and line.endswith("|")


def split(output):
    """([the lines of a table, its columns' first, its separator's second], other lines)."""
    tables, others, is_open = [], [], False
    lines = output.split("\n")
    for line, after in zip(lines, [*lines[1:], ""]):
        if is_open and is_row(line) and len(cells(line)) == len(cells(tables[-1][0])):
            tables[-1].append(line.strip())
            continue
        is_open = is_row(line) and is_row(after) and set(after) <= set("|-: ")
        if is_open:
            tables.append([line.strip()])
        else:
            others.append(line)
    return tables, others


def rows_of(output):
    """[{column: cell}] of all tables in the output. A line of other width is no row of a table."""
    return [dict(zip(cells(table[0]), cells(row))) for table in split(output)[0] for row in table[2:]]


def number(text):
    """The value, or NaN."""
    return float(text) if re.fullmatch(r"[0-9.]+(e[+-]?[0-9]+)?", text) else math.nan


def why_not(row, kernel, peak):
    """What cannot be true of a row, or nothing."""
    if any("WRONG" in text for text in row.values()):
        return "is wrong"
    if any(text.startswith("not run") for text in row.values()):
        return ""  # the program fails by itself where that is a failure
    if kernel and row.get("kernel", kernel) != kernel:
        return f"is of {row['kernel']}, not of {kernel}"
    for column in NUMBERS & row.keys():
        value = number(row[column])
        if row[column] and not (value > 0 if column in ABOVE_ZERO else value >= 0):
            return f"has {column} {row[column]}"
    rate = row.get("TFLOP/s", "")
    if rate and number(rate) > peak:
        return f"has {rate} TFLOP/s, and the GPU has at most {peak}"
    return ""


def judge(output, least_rows, kernel="", gpu=""):
    """Why a benchmark that ended well did not measure what it should, or nothing."""
    rows = rows_of(output)
    if len(rows) < least_rows:
        return f"{len(rows)} rows were printed, at least {least_rows} were expected"
    peak = next((most for name, most in sorted(PEAKS.items(), reverse=True) if name in gpu), 5000)
    wrong = [why for why in (why_not(row, kernel, peak) for row in rows) if why]
    return f"{len(wrong)} of {len(rows)} rows: the first {wrong[0]}" if wrong else ""


def beside(rows):
    """Markdown: TFLOP/s in bfloat16 of each kernel, and of PyTorch's best, pattern by pattern."""
    rates = {}
    for row in rows:
        rate = number(row.get("TFLOP/s", ""))
        if row.get("type") != "bfloat16" or math.isnan(rate):
            continue
        kernel = "PyTorch's best" if "PyTorch" in row.get("kernel", "") else row.get("kernel", "")
        found = rates.setdefault((row.get("head dim"), row.get("pattern")), {})
        found[kernel] = max(rate, found.get(kernel, 0))
    kernels = sorted({kernel for found in rates.values() for kernel in found})
    if not kernels:
        return []
    lines = ["## bfloat16, TFLOP/s\n", "| head dim | pattern | " + " | ".join(kernels) + " |",
             "| --- | --- |" + " --- |" * len(kernels)]
    for (dim, pattern), found in rates.items():
        values = (f"{found[kernel]:.1f}" if kernel in found else "" for kernel in kernels)
        lines.append(f"| {dim} | {pattern} | " + " | ".join(values) + " |")
    return [*lines, ""]
