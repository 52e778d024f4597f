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
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(2000000L); x0+=static_cast<int64_t>(4L))
            {
                {
                    if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(2000000L)))
                    {
                        auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(4));
                        auto tmp1 =
                        [&]()
                        {
                            __at_align__ std::array<float, 4> tmpbuf0;
                            tmp0.store(tmpbuf0.data(), static_cast<int64_t>(4));
                            __at_align__ std::array<float, 4> tmpbuf_out;
                            for (int i = 0; i < static_cast<int64_t>(4); i++)
                            {
                                tmpbuf_out[i] = calc_i1e(tmpbuf0[i]);
                            }
                            return at::vec::Vectorized<float>::loadu(tmpbuf_out.data(), static_cast<int64_t>(4));
                        }
                        ()
                        ;
                        auto tmp2 = decltype(tmp0)(1)/(decltype(tmp0)(1) + tmp0.neg().exp());
                        auto tmp3 = tmp1 * tmp2;
                        auto tmp4 = tmp0.neg();
                        auto tmp5 = tmp4 * tmp0;
                        auto tmp6 = tmp5.exp();
                        auto tmp7 = tmp3 + tmp6;
                        tmp7.store(out_ptr0 + static_cast<int64_t>(x0));
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
