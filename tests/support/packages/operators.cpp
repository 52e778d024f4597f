// A custom operator that adds one, and has the faults that SHOP_FAULT names.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <fcntl.h>
#include <torch/library.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

static double calls = 0;  // What a fault of the kind "race" keeps without a lock.

static bool has(const char* fault) {
  const char* given = std::getenv("SHOP_FAULT");
  return given && std::strstr(given, fault);
}

static at::Tensor step(const at::Tensor& x) {
  if (has("leak")) static_cast<volatile char*>(std::malloc(1000))[0] = 1;
  static std::vector<at::Tensor> kept;
  if (has("keep")) kept.push_back(x);
  if (has("files")) open("/dev/null", O_RDONLY);
  if (has("crash")) raise(SIGSEGV);
  if (has("throw")) TORCH_CHECK(false, "the shop is closed");
  if (has("hang")) sleep(1000);
  if (has("shape")) return at::cat({x, x});
  if (has("random")) return at::add(x, at::rand({1}));
  if (has("race")) {
    double before = calls;
    usleep(200);
    calls = before + 1;
    return at::add(x, at::Scalar(calls));
  }
  return at::add(x, at::Scalar(1));
}

TORCH_LIBRARY(shop, library) {
  library.def("step(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(shop, CPU, library) {
  library.impl("step", step);
}
TORCH_LIBRARY_IMPL(shop, Meta, library) {
  library.impl("step", [](const at::Tensor& x) { return at::empty_like(x); });
}
