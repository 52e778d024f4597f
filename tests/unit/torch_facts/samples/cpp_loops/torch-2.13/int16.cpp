#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const int16_t* in_ptr0,
                       const float* in_ptr1,
                       int16_t* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(2000L); x0+=static_cast<int64_t>(1L))
            {
                #pragma GCC ivdep
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(1000L); x1+=static_cast<int64_t>(1L))
                {
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 1000L*x0)];
                            auto tmp2 = in_ptr1[static_cast<int64_t>(x1)];
                            auto tmp1 = c10::convert<float>(tmp0);
                            auto tmp3 = float(tmp1 * tmp2);
                            auto tmp4 = static_cast<float>(-32768.0);
                            auto tmp5 = max_propagate_nan(tmp3, tmp4);
                            auto tmp6 = static_cast<float>(32767.0);
                            auto tmp7 = min_propagate_nan(tmp5, tmp6);
                            auto tmp8 = c10::convert<int16_t>(tmp7);
                            out_ptr0[static_cast<int64_t>(x1 + 1000L*x0)] = tmp8;
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
