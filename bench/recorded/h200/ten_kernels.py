"""Ten kernels of different kinds on a GPU: what the files beside this one were recorded with.

    inductoscope profile --json profile.json ten_kernels.py
    python ten_kernels.py torch.profiler > torch_profiler.txt
    ncu --csv --metrics dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum \\
        -k regex:triton python ten_kernels.py > ncu.csv

Of profile.json, only the members that are compared are kept.
"""

import sys

import torch

torch.manual_seed(0)


def pointwise(x, y):
    return torch.nn.functional.gelu(x) * y + 1.0


def copy(x):
    return x + 0.0


def softmax(x):
    return torch.softmax(x, -1)


def norm(x, w):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w)


def total(x):
    return x.square().sum()


def rows(x):
    return x.amax(-1)


def columns(x):
    return x.sum(0)


def gather(table, index):
    return table[index] * 2.0


def product(a, b):
    return torch.relu(a @ b)


def turn(x):
    return (x.t() * 2.0).contiguous()


big = torch.randn(8192, 8192, device="cuda")
ones, index = torch.ones(8192, device="cuda"), torch.randint(0, 8192, (8192,), device="cuda")
half = big.bfloat16()
cases = [
    (pointwise, (big, big)),
    (copy, (big,)),
    (softmax, (big,)),
    (norm, (big, ones)),
    (total, (big,)),
    (rows, (big,)),
    (columns, (big,)),
    (gather, (big, index)),
    (product, (half, half)),
    (turn, (big,)),
]
compiled = [(torch.compile(function), inputs) for function, inputs in cases]


def call_all(times):
    for function, inputs in compiled:
        for _ in range(times):
            function(*inputs)
    torch.cuda.synchronize()


call_all(3)
if sys.argv[1:] == ["torch.profiler"]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call_all(30)
    for event in sorted(profiler.key_averages(), key=lambda event: event.key):
        mean = event.device_time_total / event.count
        print(f"{event.key[:70]:70} {event.count:4} {mean:10.2f} us")
else:
    call_all(30)
