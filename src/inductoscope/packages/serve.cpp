// Runs a package the way a server without Python does, and prints what it saw as lines of JSON.
//
//     serve WAY PACKAGE MODEL INPUTS OUTPUTS THREADS CALLS SEED [LIBRARY...]
//
// WAY is one of
//     serial      one thread; writes the outputs of every call to OUTPUTS
//     queue       several threads, one container with one runner: calls wait for each other
//     runners     several threads, one container with a runner for each
//     containers  several threads, each with a container of its own
//     containers-common  the same, for a model whose containers share their state
//     fresh       one thread; does a second container give again what the first one gave?
//     growth      one thread; memory, files and threads after every twentieth of the calls
// INPUTS is a list of tensors that inductoscope wrote. The outputs of serial are what others are
// compared with: whatever the order of the calls, together they must give the same results.

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_strided.h>
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using Tensors = std::vector<at::Tensor>;
using Model = std::function<Tensors(const Tensors&)>;

struct Task {
  std::string way, package, model, inputs, outputs;
  int threads = 1, calls = 1;
};

static std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') out << '\\' << c;
    else if (c < 0x20) out << ' ';
    else out << c;
  }
  out << '"';
  return out.str();
}

// --- tensors in files ---------------------------------------------------------------------------

static Tensors read_inputs(const std::string& path) {
  std::ifstream list(path);
  Tensors found;
  std::string line;
  while (std::getline(list, line)) {
    std::istringstream words(line);
    int dtype, ndim;
    std::string device, file;
    words >> dtype >> device >> ndim;
    std::vector<int64_t> sizes(ndim), strides(ndim);
    for (auto& size : sizes) words >> size;
    for (auto& stride : strides) words >> stride;
    words >> file;
    auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(dtype));
    auto tensor = at::empty_strided(sizes, strides, options);
    std::ifstream data(file, std::ios::binary);
    data.read(static_cast<char*>(tensor.data_ptr()), tensor.storage().nbytes());
    found.push_back(tensor.to(at::Device(device)));
  }
  return found;
}

static std::string bytes_of(const at::Tensor& tensor) {
  auto plain = tensor.cpu().contiguous();
  return std::string(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
}

static std::string bytes_of(const Tensors& tensors) {
  std::string all;
  for (const auto& tensor : tensors) all += bytes_of(tensor);
  return all;
}

// --- loading and calling ------------------------------------------------------------------------

static Model load(const Task& task, int runners) {
  if (task.package.size() > 3 && task.package.substr(task.package.size() - 3) == ".so") {
    auto runner = std::make_shared<torch::inductor::AOTIModelContainerRunnerCpu>(
        task.package, static_cast<size_t>(runners));
    return [runner](const Tensors& inputs) { return runner->run(inputs); };
  }
  auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(
      task.package, task.model, false, static_cast<size_t>(runners));
  return [loader](const Tensors& inputs) { return loader->run(inputs); };
}

struct Called {
  std::vector<std::string> results;  // the bytes of all outputs, call by call
  std::vector<std::string> errors;
};

static Called call_from_threads(
    const std::vector<Model>& models, const Tensors& inputs, int threads, int calls) {
  std::vector<Called> each(threads);
  std::atomic<int> ready{0};
  auto work = [&](int number) {
    const auto& model = models[number % models.size()];
    ready++;
    while (ready < threads) std::this_thread::yield();
    for (int call = 0; call < calls / threads; call++) {
      try {
        each[number].results.push_back(bytes_of(model(inputs)));
      } catch (const std::exception& error) {
        each[number].errors.push_back(error.what());
      }
    }
  };
  std::vector<std::thread> running;
  for (int number = 0; number < threads; number++) running.emplace_back(work, number);
  for (auto& one : running) one.join();
  Called all;
  for (auto& one : each) {
    all.results.insert(all.results.end(), one.results.begin(), one.results.end());
    all.errors.insert(all.errors.end(), one.errors.begin(), one.errors.end());
  }
  return all;
}

// --- comparing ----------------------------------------------------------------------------------

// Equal but for rounding: libraries may add in another order when several threads compute.
static bool near(const Tensors& like, const std::string& one, const std::string& other) {
  size_t at = 0;
  if (one.size() != other.size()) return false;
  for (const auto& tensor : like) {
    auto plain = tensor.cpu().contiguous();
    size_t size = plain.nbytes();
    auto view = [&](const std::string& bytes) {
      auto copy = at::empty_strided(plain.sizes(), plain.strides(), plain.options());
      std::memcpy(copy.data_ptr(), bytes.data() + at, size);
      return copy;
    };
    auto left = view(one), right = view(other);
    at += size;
    if (std::memcmp(left.data_ptr(), right.data_ptr(), size) == 0) continue;
    if (!at::isFloatingType(plain.scalar_type())) return false;
    double share = plain.scalar_type() == at::kDouble ? 1e-10
        : plain.scalar_type() == at::kFloat         ? 1e-5
                                                    : 1e-2;
    auto wide_left = left.to(at::kDouble), wide_right = right.to(at::kDouble);
    double scale = wide_left.abs().max().item<double>();
    if (!at::allclose(wide_left, wide_right, share, share * scale, true)) return false;
  }
  return true;
}

// How many results have no counterpart among what is expected, each of which counts once.
static int unmatched(const Tensors& like, const std::vector<std::string>& results,
                     const std::vector<std::string>& expected) {
  std::map<std::string, int> left;
  for (const auto& one : expected) left[one]++;
  std::vector<const std::string*> rest;
  for (const auto& one : results) {
    auto found = left.find(one);
    if (found != left.end() && found->second > 0) found->second--;
    else rest.push_back(&one);
  }
  int lost = 0;
  for (const auto* one : rest) {
    bool matched = false;
    for (auto& [bytes, count] : left) {
      if (count > 0 && near(like, bytes, *one)) {
        count--;
        matched = true;
        break;
      }
    }
    lost += !matched;
  }
  return lost;
}

static std::vector<std::string> read_results(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> found;
  uint64_t size;
  while (file.read(reinterpret_cast<char*>(&size), sizeof size)) {
    std::string bytes(size, '\0');
    file.read(bytes.data(), size);
    found.push_back(bytes);
  }
  return found;
}

static void write_results(const std::string& path, const std::vector<std::string>& results) {
  std::ofstream file(path, std::ios::binary);
  for (const auto& bytes : results) {
    uint64_t size = bytes.size();
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file.write(bytes.data(), bytes.size());
  }
}

// --- the ways -----------------------------------------------------------------------------------

static void print_called(const Called& called, int lost) {
  std::map<std::string, int> distinct;
  for (const auto& one : called.results) distinct[one]++;
  std::cout << "{\"event\": \"called\", \"calls\": " << called.results.size()
            << ", \"distinct\": " << distinct.size() << ", \"unmatched\": " << lost
            << ", \"errors\": " << called.errors.size() << ", \"error\": "
            << quoted(called.errors.empty() ? "" : called.errors[0]) << "}" << std::endl;
}

static void run_serially(const Task& task, const Tensors& inputs) {
  auto called = call_from_threads({load(task, 1)}, inputs, 1, task.calls);
  write_results(task.outputs, called.results);
  print_called(called, 0);
}

static bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

static void run_threads(const Task& task, const Tensors& inputs) {
  auto serial = read_results(task.outputs);
  std::vector<Model> models;
  int containers = starts_with(task.way, "containers") ? task.threads : 1;
  for (int number = 0; number < containers; number++)
    models.push_back(load(task, task.way == "runners" ? task.threads : 1));
  auto called = call_from_threads(models, inputs, task.threads, task.calls);
  int lost = 0;
  if (called.errors.empty()) {
    auto like = models[0](inputs);  // After the calls: it may change the state of the model.
    std::vector<std::string> expected;
    int copies = task.way == "containers" ? containers : 1;
    for (int number = 0; number < copies; number++)
      expected.insert(expected.end(), serial.begin(), serial.begin() + task.calls / copies);
    lost = unmatched(like, called.results, expected);
  }
  print_called(called, lost);
}

static void run_again(const Task& task, const Tensors& inputs) {
  int calls = std::min(task.calls, 20);
  auto first = call_from_threads({load(task, 1)}, inputs, 1, calls);
  auto model = load(task, 1);
  auto second = call_from_threads({model}, inputs, 1, calls);
  int lost = first.errors.empty() && second.errors.empty()
      ? unmatched(model(inputs), second.results, first.results)
      : 0;
  second.errors.insert(second.errors.end(), first.errors.begin(), first.errors.end());
  print_called(second, lost);
}

static long entries(const char* folder) {
  long count = 0;
  if (DIR* opened = opendir(folder)) {
    while (readdir(opened)) count++;
    closedir(opened);
  }
  return count;
}

static void print_sample(int calls) {
  long pages = 0, resident = 0;
  if (FILE* file = fopen("/proc/self/statm", "r")) {
    if (fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(file);
  }
  long allocated = -1;
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  auto info = mallinfo2();
  allocated = static_cast<long>(info.uordblks + info.hblkhd);
#endif
  std::printf(
      "{\"event\": \"sample\", \"calls\": %d, \"resident\": %ld, \"allocated\": %ld, "
      "\"files\": %ld, \"threads\": %ld}\n",
      calls, resident * sysconf(_SC_PAGESIZE), allocated, entries("/proc/self/fd"),
      entries("/proc/self/task"));
  std::fflush(stdout);
}

static void watch_growth(const Task& task, const Tensors& inputs) {
  auto model = load(task, 1);
  int window = std::max(1, task.calls / 20);
  for (int call = 0; call < 2 * window + 10; call++) model(inputs);  // What is set up once.
  print_sample(0);
  for (int number = 1; number <= 20; number++) {
    for (int call = 0; call < window; call++) model(inputs);
    print_sample(number * window);
  }
}

int main(int argc, char** argv) {
  if (argc < 9) return 2;
  Task task{argv[1], argv[2], argv[3], argv[4], argv[5], std::atoi(argv[6]), std::atoi(argv[7])};
  try {
    for (int number = 9; number < argc; number++)
      if (!dlopen(argv[number], RTLD_NOW | RTLD_GLOBAL)) throw std::runtime_error(dlerror());
    at::manual_seed(std::strtoull(argv[8], nullptr, 10));
    auto inputs = read_inputs(task.inputs);
    std::cout << "{\"event\": \"ready\"}" << std::endl;
    if (task.way == "serial") run_serially(task, inputs);
    else if (task.way == "fresh") run_again(task, inputs);
    else if (task.way == "growth") watch_growth(task, inputs);
    else run_threads(task, inputs);
  } catch (const std::exception& error) {
    std::cout << "{\"event\": \"error\", \"message\": " << quoted(error.what()) << "}" << std::endl;
    return 1;
  }
  std::cout << "{\"event\": \"done\"}" << std::endl;
  std::_Exit(0);  // Ending may crash in libraries that are unloaded: that is not the question.
}
