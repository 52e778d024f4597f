// Preloaded into a child process: who asks for memory and files that are not given back.
//
//     leaks_begin()        from now on, remember every allocation and every opened file
//     leaks_end(path)      write what was not given back: a line for each, with the native stack
//
// Stacks are kept once; what is freed is forgotten. Needs nothing but the C library.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

constexpr int kFrames = 160, kStacks = 4096, kEntries = 1 << 17;

struct Stack {
  int depth;
  void* frames[kFrames];
};
struct Entry {
  uintptr_t key;  // an address, or a file's number below 1 << 20; 0: free, 1: forgotten
  size_t bytes;
  int stack;
};

Stack stacks[kStacks];
uint64_t hashes[kStacks];
int stack_count = 0;
Entry entries[kEntries];
int entry_count = 0;
std::atomic<bool> active{false};
std::atomic_flag busy = ATOMIC_FLAG_INIT;
thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

struct Locked {
  Locked() { while (busy.test_and_set(std::memory_order_acquire)) sched_yield(); }
  ~Locked() { busy.clear(std::memory_order_release); }
};

int number_of_stack(void* const* frames, int depth) {
  uint64_t hash = 1469598103934665603ull;
  for (int n = 0; n < depth; n++) hash = (hash ^ reinterpret_cast<uintptr_t>(frames[n])) * 1099511628211ull;
  for (int n = 0; n < stack_count; n++)
    if (hashes[n] == hash) return n;
  if (stack_count == kStacks) return -1;
  hashes[stack_count] = hash;
  stacks[stack_count].depth = depth;
  std::memcpy(stacks[stack_count].frames, frames, depth * sizeof(void*));
  return stack_count++;
}

Entry* slot(uintptr_t key, bool for_new) {
  size_t at = (key >> 4 ^ key * 0x9E3779B97F4A7C15ull >> 40) % kEntries;
  for (int tried = 0; tried < kEntries; tried++, at = (at + 1) % kEntries) {
    Entry& entry = entries[at];
    if (entry.key == key) return &entry;
    if (entry.key == 0) return for_new ? &entry : nullptr;
    if (entry.key == 1 && for_new) return &entry;
  }
  return nullptr;
}

void remember(uintptr_t key, size_t bytes) {
  if (!active.load(std::memory_order_relaxed) || inside || key < 3) return;
  inside = true;
  void* frames[kFrames];
  int depth = backtrace(frames, kFrames);
  {
    Locked locked;
    int stack = number_of_stack(frames, depth);
    if (stack >= 0 && entry_count < kEntries / 2) {
      Entry* entry = slot(key, true);
      if (entry) {
        *entry = {key, bytes, stack};
        entry_count++;
      }
    }
  }
  inside = false;
}

void forget(uintptr_t key) {
  if (!active.load(std::memory_order_relaxed) || inside || key < 3) return;
  inside = true;
  {
    Locked locked;
    if (Entry* entry = slot(key, false)) {
      entry->key = 1;
      entry_count--;
    }
  }
  inside = false;
}

void* given(void* address, size_t bytes) {
  remember(reinterpret_cast<uintptr_t>(address), bytes);
  return address;
}

int opened(int file) {
  if (file >= 0) remember(static_cast<uintptr_t>(file), 0);
  return file;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

void quote(FILE* out, const char* text) {
  std::fputc('"', out);
  for (; text && *text; text++)
    if (*text != '"' && *text != '\\' && static_cast<unsigned char>(*text) >= 0x20) std::fputc(*text, out);
  std::fputc('"', out);
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) { return given(__libc_malloc(bytes), bytes); }
void* calloc(size_t count, size_t each) { return given(__libc_calloc(count, each), count * each); }
void* memalign(size_t to, size_t bytes) { return given(__libc_memalign(to, bytes), bytes); }
void* aligned_alloc(size_t to, size_t bytes) { return given(__libc_memalign(to, bytes), bytes); }
int posix_memalign(void** into, size_t to, size_t bytes) {
  *into = given(__libc_memalign(to, bytes), bytes);
  return *into ? 0 : 12;  // ENOMEM
}
void* realloc(void* old, size_t bytes) {
  forget(reinterpret_cast<uintptr_t>(old));
  return given(__libc_realloc(old, bytes), bytes);
}
void free(void* address) {
  forget(reinterpret_cast<uintptr_t>(address));
  __libc_free(address);
}

#define WITH_MODE(last, mode)                     \
  mode_t mode = 0;                                \
  if (flags & (O_CREAT | O_TMPFILE)) {            \
    va_list more;                                 \
    va_start(more, last);                         \
    mode = static_cast<mode_t>(va_arg(more, int)); \
    va_end(more);                                 \
  }

int open(const char* path, int flags, ...) {
  WITH_MODE(flags, mode)
  return opened(next<int (*)(const char*, int, ...)>("open")(path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  WITH_MODE(flags, mode)
  return opened(next<int (*)(const char*, int, ...)>("open64")(path, flags, mode));
}
int openat(int folder, const char* path, int flags, ...) {
  WITH_MODE(flags, mode)
  return opened(next<int (*)(int, const char*, int, ...)>("openat")(folder, path, flags, mode));
}
FILE* fopen(const char* path, const char* mode) {
  FILE* file = next<FILE* (*)(const char*, const char*)>("fopen")(path, mode);
  if (file) opened(fileno(file));
  return file;
}
FILE* fopen64(const char* path, const char* mode) {
  FILE* file = next<FILE* (*)(const char*, const char*)>("fopen64")(path, mode);
  if (file) opened(fileno(file));
  return file;
}
int socket(int domain, int type, int protocol) {
  return opened(next<int (*)(int, int, int)>("socket")(domain, type, protocol));
}
int dup(int file) { return opened(next<int (*)(int)>("dup")(file)); }
int close(int file) {
  forget(static_cast<uintptr_t>(file));
  return next<int (*)(int)>("close")(file);
}
int fclose(FILE* file) {
  if (file) forget(static_cast<uintptr_t>(fileno(file)));
  return next<int (*)(FILE*)>("fclose")(file);
}

void leaks_begin() {
  void* frames[4];
  backtrace(frames, 4);  // Loads what it needs, before anything is counted.
  active = true;
}

void leaks_end(const char* path) {
  active = false;
  FILE* out = next<FILE* (*)(const char*, const char*)>("fopen")(path, "w");
  if (!out) return;
  for (const Entry& entry : entries) {
    if (entry.key < 2) continue;
    std::fprintf(out, "{\"stack\": %d, \"bytes\": %zu", entry.stack, entry.bytes);
    if (entry.key < (1 << 20)) {
      char link[64], target[512] = "";
      std::snprintf(link, sizeof link, "/proc/self/fd/%d", static_cast<int>(entry.key));
      ssize_t length = readlink(link, target, sizeof target - 1);
      target[length > 0 ? length : 0] = 0;
      std::fputs(", \"file\": ", out);
      quote(out, target);
    }
    std::fputs("}\n", out);
  }
  for (int number = 0; number < stack_count; number++) {
    std::fprintf(out, "{\"frames_of\": %d, \"frames\": [", number);
    for (int n = 0; n < stacks[number].depth; n++) {
      Dl_info info{};
      // A return address may be the first of the next function.
      bool known = dladdr(static_cast<char*>(stacks[number].frames[n]) - 1, &info) != 0;
      std::fputs(n ? ", [" : "[", out);
      quote(out, known && info.dli_sname ? info.dli_sname : "");
      std::fputs(", ", out);
      quote(out, known ? info.dli_fname : "");
      std::fputs("]", out);
    }
    std::fputs("]}\n", out);
  }
  next<int (*)(FILE*)>("fclose")(out);
}
}
