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
// INPUTS is a list of tensors that torch.save wrote. The outputs of serial are what others are
// compared with: whatever the order of the calls, together they must give the same results.

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
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

// What torch.save has written, or `write` below.
static c10::IValue read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return torch::jit::pickle_load({std::istreambuf_iterator<char>(file), {}});
}

static void write(const std::string& path, const c10::IValue& value) {
  auto data = torch::jit::pickle_save(value);
  std::ofstream(path, std::ios::binary).write(data.data(), data.size());
}

static Tensors tensors_in(const c10::IValue& list) {
  Tensors found;
  for (const c10::IValue& item : list.toListRef()) found.push_back(item.toTensor());
  return found;
}

// Of inputs: bits, and the type that they are of. Files know no types as young as float8.
static Tensors inputs_in(const c10::IValue& list) {
  Tensors found;
  for (const c10::IValue& item : list.toListRef()) {
    const auto& pair = item.toTupleRef().elements();
    found.push_back(pair[0].toTensor().view(static_cast<at::ScalarType>(pair[1].toInt())));
  }
  return found;
}

static std::string bytes_of(const Tensors& tensors) {
  std::string all;
  for (const auto& one : tensors) all.append(static_cast<const char*>(one.data_ptr()), one.nbytes());
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
  std::vector<Tensors> results;  // copies of all outputs, call by call
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
        auto outputs = model(inputs);
        for (auto& one : outputs) one = one.detach().cpu().clone(at::MemoryFormat::Contiguous);
        each[number].results.push_back(outputs);
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
static bool near(const Tensors& left, const Tensors& right) {
  if (left.size() != right.size()) return false;
  for (size_t number = 0; number < left.size(); number++) {
    const auto &one = left[number], &other = right[number];
    auto dtype = one.scalar_type();
    if (dtype != other.scalar_type() || one.sizes() != other.sizes()) return false;
    if (std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0) continue;  // also NaN
    if (!at::isFloatingType(dtype)) return false;
    double share = dtype == at::kDouble ? 1e-10 : dtype == at::kFloat ? 1e-5 : 1e-2;
    auto wide = one.to(at::kDouble);
    double scale = wide.nan_to_num(0, 0, 0).abs().max().item<double>();
    if (!at::allclose(wide, other.to(at::kDouble), share, share * scale, true)) return false;
  }
  return true;
}

// How many results have no counterpart among what is expected, each of which counts once.
static int unmatched(
    const std::vector<Tensors>& results, const std::vector<Tensors>& expected) {
  std::map<std::string, std::vector<const Tensors*>> left;
  for (const auto& one : expected) left[bytes_of(one)].push_back(&one);
  std::vector<const Tensors*> rest;
  for (const auto& one : results) {
    auto& same = left[bytes_of(one)];
    if (same.empty()) rest.push_back(&one);
    else same.pop_back();
  }
  return std::count_if(rest.begin(), rest.end(), [&](const Tensors* one) {
    for (auto& [bytes, same] : left) {
      if (same.empty() || !near(*same.back(), *one)) continue;
      same.pop_back();
      return false;
    }
    return true;
  });
}

// --- the ways -----------------------------------------------------------------------------------

static void print_called(const Called& called, int lost) {
  std::set<std::string> distinct;
  for (const auto& one : called.results) distinct.insert(bytes_of(one));
  std::cout << "{\"event\": \"called\", \"calls\": " << called.results.size()
            << ", \"distinct\": " << distinct.size() << ", \"unmatched\": " << lost
            << ", \"errors\": " << called.errors.size() << ", \"error\": "
            << quoted(called.errors.empty() ? "" : called.errors[0]) << "}" << std::endl;
}

static void run_serially(const Task& task, const Tensors& inputs) {
  auto called = call_from_threads({load(task, 1)}, inputs, 1, task.calls);
  c10::List<c10::List<at::Tensor>> results;
  for (const auto& one : called.results) results.push_back(c10::List<at::Tensor>(one));
  write(task.outputs, results);
  print_called(called, 0);
}

static bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

static void run_threads(const Task& task, const Tensors& inputs) {
  auto written = read(task.outputs);
  std::vector<Tensors> serial;
  for (const c10::IValue& one : written.toListRef()) serial.push_back(tensors_in(one));
  std::vector<Model> models;
  int containers = starts_with(task.way, "containers") ? task.threads : 1;
  for (int number = 0; number < containers; number++)
    models.push_back(load(task, task.way == "runners" ? task.threads : 1));
  auto called = call_from_threads(models, inputs, task.threads, task.calls);
  int lost = 0;
  if (called.errors.empty()) {
    std::vector<Tensors> expected;
    int copies = task.way == "containers" ? containers : 1;
    for (int number = 0; number < copies; number++)
      expected.insert(expected.end(), serial.begin(), serial.begin() + task.calls / copies);
    lost = unmatched(called.results, expected);
  }
  print_called(called, lost);
}

static void run_again(const Task& task, const Tensors& inputs) {
  int calls = std::min(task.calls, 20);
  auto first = call_from_threads({load(task, 1)}, inputs, 1, calls);
  auto second = call_from_threads({load(task, 1)}, inputs, 1, calls);
  int lost = unmatched(second.results, first.results);
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
    auto inputs = inputs_in(read(task.inputs));
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
