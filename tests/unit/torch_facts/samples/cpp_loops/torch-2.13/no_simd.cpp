#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(2000000L); x0+=static_cast<int64_t>(1L))
            {
                {
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = static_cast<float>(0.5);
                        auto tmp2 = float(tmp0 * tmp1);
                        auto tmp3 = static_cast<float>(0.7071067811865476);
                        auto tmp4 = float(tmp0 * tmp3);
                        auto tmp5 = std::erf(tmp4);
                        auto tmp6 = static_cast<float>(1.0);
                        auto tmp7 = float(tmp5 + tmp6);
                        auto tmp8 = float(tmp2 * tmp7);
                        auto tmp9 = decltype(tmp0)(1) / (decltype(tmp0)(1) + std::exp(-tmp0));
                        auto tmp10 = float(tmp8 * tmp9);
                        auto tmp11 = decltype(tmp0)(-tmp0);
                        auto tmp12 = float(tmp11 * tmp0);
                        auto tmp13 = std::exp(tmp12);
                        auto tmp14 = float(tmp10 + tmp13);
                        out_ptr0[static_cast<int64_t>(x0)] = tmp14;
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
