#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(2000L); x0+=static_cast<int64_t>(4L))
            {
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(1500L); x1+=static_cast<int64_t>(4L))
                {
                    {
                        if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(2000L) && x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(1500L)))
                        {
                            alignas(std::max(std::size_t(4), alignof(float))) float tmp4[4*4];
                            transpose_mxn<float,static_cast<int64_t>(4),static_cast<int64_t>(4),false>(in_ptr1 + static_cast<int64_t>(x0 + 2000L*x1), static_cast<int64_t>(2000L), tmp4, static_cast<int64_t>(4));
                            for (long x0_inner = 0; x0_inner < static_cast<int64_t>(4); x0_inner++)
                            {
                                auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 1500L*x0 + 1500L*x0_inner), static_cast<int64_t>(4));
                                auto tmp5 = at::vec::Vectorized<float>::loadu(tmp4 + static_cast<int64_t>(4L*x0_inner), static_cast<int64_t>(4));
                                auto tmp1 = static_cast<float>(2.0);
                                auto tmp2 = at::vec::Vectorized<float>(tmp1);
                                auto tmp3 = tmp0 * tmp2;
                                auto tmp6 = tmp3 + tmp5;
                                tmp6.store(out_ptr0 + static_cast<int64_t>(x1 + 1500L*x0 + 1500L*x0_inner));
                            }
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
