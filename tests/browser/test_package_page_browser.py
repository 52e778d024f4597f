"""The page on packages, and on the trail from a fault to its cause, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

from support.visitor import Visitor


def test_trail_leads_from_the_fault_to_its_cause_and_into_the_panes(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic")
    kernels = [text.split()[0] for text in guest.all(".trail-box")]
    assert kernels == ["Fault", "extern_kernels.mm", "triton_poi_fused_add_mul_relu_sigmoid_1"]
    assert "Here it goes wrong: buf1 is 0.5" in guest.all(".trail-cause")[0]
    # What leads on is in the column; what else a kernel reads is beside it.
    assert guest.all(".trail-reads > li") == ["primals_2", "buf0 aten.relu.default, train.py:13"]
    reads = guest.page.locator(".trail-reads > li > span").all()
    makers = [one.get_attribute("title") for one in reads]
    assert makers == [None, "made by triton_poi_fused_relu_0"]
    guest.page.locator(".trail-buffer a", has_text="buf1").click()
    assert guest.parameters()["op"] == ["sigmoid"]
    assert guest.marked("python") == ["gate = torch.sigmoid(x)"]


def test_package_says_what_it_accepts_and_holds(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "compiles?compile=3")
    assert guest.all(".package-inputs tbody tr") == [
        "0 arg3_1\tfloat32\t[s77: 2 to 64, 16]\t[16, 1]\tcpu"
    ]
    constants = guest.all("section[aria-label=Constants] tbody tr")
    assert constants[0].split()[:2] == ["linear.weight", "parameter"]
    assert "cpp_fused_add_2" in constants[1]
