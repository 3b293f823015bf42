// Reads "m n k" from standard input and answers each with the index that select(m, n, k) of SELECT gives; then, on the
// last line, how many nanoseconds a call took over all of them.
#include HEADER

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace picker = SELECT;

int main() {
  struct Shape {
    long long m, n, k;
  };
  std::vector<Shape> shapes;
  for (Shape shape; std::scanf("%lld %lld %lld", &shape.m, &shape.n, &shape.k) == 3;) {
    shapes.push_back(shape);
  }
  for (const Shape& shape : shapes) {
    const int index = picker::select(shape.m, shape.n, shape.k);
    std::printf("%s\n", index < 0 ? "-" : picker::templates[index].id);
  }
  double least_ns = 1e30;
  for (int round = 0; round < 20; ++round) {
    long long sum = 0;
    const auto started = std::chrono::steady_clock::now();
    for (const Shape& shape : shapes) {
      sum += picker::select(shape.m, shape.n, shape.k);
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - started;
    const volatile long long kept = sum;
    (void)kept;
    least_ns = taken.count() / static_cast<double>(shapes.size()) < least_ns
                   ? taken.count() / static_cast<double>(shapes.size())
                   : least_ns;
  }
  std::printf("%.1f\n", least_ns);
}
